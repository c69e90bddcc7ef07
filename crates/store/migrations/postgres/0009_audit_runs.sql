-- One row speaks for a run of tasks of one job that made the same move in one transaction: those from task_id on, so many.
-- What is written already is of one task each, so that the CHECK need not look at it.
ALTER TABLE audit ADD COLUMN tasks BIGINT NOT NULL DEFAULT 1;
ALTER TABLE audit ADD CONSTRAINT audit_tasks CHECK (tasks = 1 OR (tasks > 1 AND task_id IS NOT NULL)) NOT VALID;
