-- What a server keeps beside the queue. migrations/postgres has the same, and a test compares them.

-- What a person decided once for all servers of a database, such as the hash of the admin's secret.
CREATE TABLE setting (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
);

-- The process behind a remote worker's key: a restart brings a new one, and only the newest is heard.
ALTER TABLE worker ADD COLUMN incarnation TEXT;
ALTER TABLE worker ADD COLUMN load TEXT;

-- What was asked for when the video came, so that it can be asked for again.
ALTER TABLE video ADD COLUMN settings TEXT;
ALTER TABLE video ADD COLUMN is_early_playback BOOLEAN NOT NULL DEFAULT FALSE;
CREATE INDEX video_source ON video (source);
CREATE INDEX video_deleted ON video (deleted_at) WHERE deleted_at IS NOT NULL;

-- A resumable upload on its way. How much of it is here, the file itself says.
CREATE TABLE upload (
    id         TEXT PRIMARY KEY,
    length     BIGINT NOT NULL,
    metadata   TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    video_id   BIGINT
);
CREATE INDEX upload_expires ON upload (expires_at);

-- Captions that a person attached: they belong to the video, not to one generation of it.
CREATE TABLE caption (
    video_id   BIGINT NOT NULL REFERENCES video (id),
    language   TEXT NOT NULL,
    label      TEXT NOT NULL,
    text       TEXT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (video_id, language)
);

-- A second task for the same segment, made when the first sits with a slow worker. The first commit of the two counts.
ALTER TABLE task ADD COLUMN twin_of BIGINT;
CREATE UNIQUE INDEX task_twin ON task (twin_of) WHERE twin_of IS NOT NULL;
ALTER TABLE stage ADD COLUMN is_hedged BOOLEAN NOT NULL DEFAULT FALSE;

-- Live events are read from the audit. Here its ids are in the order of commits, for there is one writer at a time.
ALTER TABLE audit ADD COLUMN video_id BIGINT;
ALTER TABLE audit ADD COLUMN xact BIGINT NOT NULL DEFAULT 0;

-- The alerts that somebody wants to be told of; of each kind at most one in so long.
CREATE TABLE alert (
    topic       TEXT PRIMARY KEY,
    cooldown_ms BIGINT NOT NULL,
    last_at     BIGINT NOT NULL DEFAULT 0,
    suppressed  BIGINT NOT NULL DEFAULT 0
);
