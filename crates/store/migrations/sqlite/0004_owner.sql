-- Whose work waits: each has queues of its own, so that one's backlog does not starve the others. What was there
-- before, and what an older version adds beside this one, belongs to number 0.
CREATE TABLE owner (
    id   INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE
);
INSERT INTO owner (id, name) VALUES (0, '');
ALTER TABLE stage ADD COLUMN owner_id BIGINT NOT NULL DEFAULT 0;
ALTER TABLE task ADD COLUMN owner_id BIGINT NOT NULL DEFAULT 0;
DROP INDEX task_ready;
CREATE INDEX task_queue ON task (lane_id, owner_id, priority DESC, queued_at, id) WHERE queued_at IS NOT NULL;
