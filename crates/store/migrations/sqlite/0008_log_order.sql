-- Here is one writer at a time, and ids are in the order of commits; the column is there so that one statement reads both.
ALTER TABLE job_log ADD COLUMN xact BIGINT NOT NULL DEFAULT 0;
