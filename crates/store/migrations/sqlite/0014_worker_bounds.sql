-- What an admin allowed a remote worker at its registration: the upper bound of what it may be given, the pool it belongs
-- to, and the users (a JSON array) whose jobs it takes. NULL: no such bound.
ALTER TABLE worker ADD COLUMN granted TEXT;
ALTER TABLE worker ADD COLUMN pool TEXT;
ALTER TABLE worker ADD COLUMN users TEXT;
-- The metadata of the registration; `metadata` is what the worker's process says of itself.
ALTER TABLE worker ADD COLUMN registered_metadata TEXT;
-- Rejected reports: how many since when, and why the worker was suspended for them. A suspended worker is `disabled`.
ALTER TABLE worker ADD COLUMN rejections BIGINT NOT NULL DEFAULT 0;
ALTER TABLE worker ADD COLUMN rejected_since BIGINT;
ALTER TABLE worker ADD COLUMN suspended TEXT;
-- When an execution of this worker last ended without a commit.
ALTER TABLE worker ADD COLUMN failed_at BIGINT;
-- The pool whose remote workers make this video, also when it is made again.
ALTER TABLE video ADD COLUMN pool TEXT;
