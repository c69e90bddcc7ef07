-- Durable progress: how much the executions of a task have left for the next one to continue from, in a unit of the work's own,
-- and the fence of the execution that last left more. migrations/postgres has the same.
ALTER TABLE task ADD COLUMN kept BIGINT NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN kept_fence BIGINT NOT NULL DEFAULT 0;
