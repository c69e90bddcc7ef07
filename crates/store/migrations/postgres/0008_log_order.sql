-- Lines of a job's log are followed as events are: ids are given before commits, and a follower that went by ids alone
-- would pass the lines of a slow transaction for ever. See 0002 on audit.xact.
ALTER TABLE job_log ADD COLUMN xact BIGINT NOT NULL DEFAULT (pg_current_xact_id()::TEXT::BIGINT);
