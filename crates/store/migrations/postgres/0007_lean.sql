-- Less to write for each task. migrations/sqlite has what of this SQLite needs.

-- A task is claimed and committed with its neighbours: its page has room for both versions of all of them, so that the
-- second one stays beside the first (HOT).
ALTER TABLE task SET (fillfactor = 50);

-- INV_001 and the key in one index: of the executions of a task that are not aborted there is one at most, and each of the
-- aborted has its own fence. Commits and renewals do not touch what it is about.
DROP INDEX execution_current;
CREATE UNIQUE INDEX execution_current ON execution (task_id, (CASE WHEN failure IS NULL THEN 0 ELSE fence END));
ALTER TABLE execution DROP CONSTRAINT execution_pkey;
