-- A step says with its execution's token which execution it is of: a number alone may be given twice. Steps that are there
-- already, and those of older programs, have none.
ALTER TABLE execution_step ADD COLUMN token BIGINT;
