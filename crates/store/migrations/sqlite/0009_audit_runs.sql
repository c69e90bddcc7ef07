-- One row speaks for a run of tasks of one job that made the same move in one transaction: those from task_id on, so many.
ALTER TABLE audit ADD COLUMN tasks BIGINT NOT NULL DEFAULT 1 CHECK (tasks = 1 OR (tasks > 1 AND task_id IS NOT NULL));
