-- The core, on SQLite. migrations/postgres has the same tables and columns, and the reasons; a test compares them.
-- Times are milliseconds since the epoch by this database's clock. JSON is kept as text.

CREATE TABLE video (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    slug          TEXT NOT NULL UNIQUE,
    title         TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    source        TEXT,
    source_hash   TEXT,
    source_bytes  BIGINT,
    duration_ms   BIGINT,
    generation_id BIGINT,
    created_at    BIGINT NOT NULL,
    updated_at    BIGINT NOT NULL,
    deleted_at    BIGINT
);

CREATE TABLE job (
    id                 INTEGER PRIMARY KEY AUTOINCREMENT,
    video_id           BIGINT REFERENCES video (id),
    user_id            TEXT NOT NULL,
    name               TEXT NOT NULL,
    priority           BIGINT NOT NULL CHECK (priority BETWEEN 0 AND 10),
    spec               TEXT NOT NULL,
    plan               TEXT,
    idempotency_key    TEXT,
    spec_hash          TEXT NOT NULL,
    version            BIGINT NOT NULL DEFAULT 1,
    max_attempts       BIGINT NOT NULL CHECK (max_attempts BETWEEN 1 AND 100),
    backoff_initial_ms BIGINT NOT NULL,
    backoff_max_ms     BIGINT NOT NULL,
    outcome            TEXT CHECK (outcome IN ('completed', 'failed', 'cancelled')),
    error              TEXT,
    created_at         BIGINT NOT NULL,
    updated_at         BIGINT NOT NULL,
    ended_at           BIGINT,
    CHECK ((outcome IS NULL) = (ended_at IS NULL)),
    CHECK (created_at <= ended_at),
    UNIQUE (user_id, idempotency_key)
);
CREATE INDEX job_open ON job (id) WHERE outcome IS NULL;
CREATE INDEX job_ended ON job (ended_at) WHERE outcome IS NOT NULL;
CREATE INDEX job_video ON job (video_id, id);

CREATE TABLE lane (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    asks        TEXT NOT NULL,
    prefers_gpu BOOLEAN NOT NULL,
    UNIQUE (asks, prefers_gpu)
);

CREATE TABLE stage (
    job_id       BIGINT NOT NULL REFERENCES job (id),
    position     BIGINT NOT NULL,
    name         TEXT NOT NULL,
    phase        TEXT NOT NULL,
    kind         TEXT NOT NULL,
    payload      TEXT NOT NULL,
    effect       TEXT,
    needs        TEXT NOT NULL,
    reads        TEXT NOT NULL,
    expands      BIGINT,
    is_plan      BOOLEAN NOT NULL,
    lane_id      BIGINT NOT NULL REFERENCES lane (id),
    is_optional  BOOLEAN NOT NULL,
    timeout_ms   BIGINT,
    stall_ms     BIGINT,
    is_expanded  BOOLEAN NOT NULL,
    is_released  BOOLEAN NOT NULL,
    -- Its tasks are this one and those that follow it; known once it is expanded.
    first_task   BIGINT,
    tasks        BIGINT NOT NULL,
    open         BIGINT NOT NULL CHECK (open BETWEEN 0 AND tasks),
    failed       BIGINT NOT NULL DEFAULT 0 CHECK (failed BETWEEN 0 AND tasks),
    PRIMARY KEY (job_id, position)
);

-- queued_at is set exactly while READY and due_at exactly while the orchestrator has to look again, so that the
-- indexes on them, and not `state`, decide which updates are cheap (HOT).
CREATE TABLE task (
    id           INTEGER PRIMARY KEY,
    stage        BIGINT NOT NULL,
    segment      BIGINT NOT NULL,
    state        TEXT NOT NULL CHECK (state IN ('NEW', 'READY', 'RUNNING', 'DONE', 'ERROR')),
    lane_id      BIGINT NOT NULL,
    priority     BIGINT NOT NULL,
    fence        BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    max_attempts BIGINT NOT NULL,
    queued_at    BIGINT,
    due_at       BIGINT,
    failure      TEXT,
    updated_at   BIGINT NOT NULL,
    CHECK ((state = 'READY') = (queued_at IS NOT NULL)),
    CHECK ((state = 'ERROR') = (failure IS NOT NULL)),
    CHECK (due_at IS NULL OR state = 'ERROR'),
    CHECK (attempts BETWEEN 0 AND max_attempts)
);
CREATE INDEX task_ready ON task (lane_id, priority DESC, queued_at, id) WHERE queued_at IS NOT NULL;
CREATE INDEX task_due ON task (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE task_input (
    task_id INTEGER PRIMARY KEY,
    input   TEXT NOT NULL
);

CREATE TABLE execution (
    task_id           BIGINT NOT NULL,
    fence             BIGINT NOT NULL,
    token             BIGINT NOT NULL,
    worker_id         TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED', 'DONE', 'ABORTED')),
    lease_expires_at  BIGINT NOT NULL,
    progress          BIGINT NOT NULL,
    progressed_at     BIGINT NOT NULL,
    stall_ms          BIGINT,
    deadline_at       BIGINT,
    step              TEXT,
    permille          BIGINT,
    leased_at         BIGINT NOT NULL,
    started_at        BIGINT,
    committed_at      BIGINT,
    finished_at       BIGINT,
    failure           TEXT,
    error             TEXT,
    result            TEXT,
    wall_ms           BIGINT,
    cpu_ms            BIGINT,
    peak_memory_bytes BIGINT,
    bytes_in          BIGINT,
    bytes_out         BIGINT,
    PRIMARY KEY (task_id, fence),
    CHECK ((status IN ('COMMITTED', 'DONE')) = (committed_at IS NOT NULL)),
    CHECK ((status IN ('DONE', 'ABORTED')) = (finished_at IS NOT NULL)),
    CHECK ((status = 'ABORTED') = (failure IS NOT NULL))
) WITHOUT ROWID;
-- INV_001: at most one execution of a task is not aborted, so there is one lease at a time and never a second
-- commit. Commits and renewals do not touch what the index is about, which keeps them cheap (HOT).
CREATE UNIQUE INDEX execution_current ON execution (task_id) WHERE failure IS NULL;
-- The live set that settling and recovery scan.
CREATE INDEX execution_open ON execution (task_id) WHERE finished_at IS NULL;

CREATE TABLE generation (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    video_id   BIGINT NOT NULL REFERENCES video (id),
    job_id     BIGINT NOT NULL,
    task_id    BIGINT NOT NULL UNIQUE,
    manifest   TEXT NOT NULL,
    created_at BIGINT NOT NULL
);
CREATE INDEX generation_video ON generation (video_id, id);

CREATE TABLE rendition (
    generation_id BIGINT NOT NULL REFERENCES generation (id),
    name          TEXT NOT NULL,
    codec         TEXT NOT NULL,
    width         BIGINT,
    height        BIGINT,
    bandwidth     BIGINT,
    bytes         BIGINT NOT NULL,
    PRIMARY KEY (generation_id, name)
);

CREATE TABLE worker (
    id             TEXT PRIMARY KEY,
    name           TEXT NOT NULL,
    kind           TEXT NOT NULL CHECK (kind IN ('local', 'remote')),
    hostname       TEXT NOT NULL,
    version        TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('active', 'idle', 'busy', 'draining', 'offline', 'disabled')),
    phase          TEXT NOT NULL,
    capabilities   TEXT NOT NULL,
    metadata       TEXT NOT NULL,
    slots          BIGINT NOT NULL,
    running        BIGINT NOT NULL DEFAULT 0,
    done           BIGINT NOT NULL DEFAULT 0,
    failed         BIGINT NOT NULL DEFAULT 0,
    registered_at  BIGINT NOT NULL,
    last_heartbeat BIGINT
);

CREATE TABLE api_key (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    worker_id    TEXT NOT NULL REFERENCES worker (id) ON DELETE CASCADE,
    prefix       TEXT NOT NULL,
    hash         TEXT NOT NULL,
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT
);
CREATE INDEX api_key_prefix ON api_key (prefix);

CREATE TABLE outbox (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    key          TEXT NOT NULL UNIQUE,
    topic        TEXT NOT NULL,
    job_id       BIGINT,
    payload      TEXT NOT NULL,
    attempts     BIGINT NOT NULL DEFAULT 0,
    error        TEXT,
    created_at   BIGINT NOT NULL,
    available_at BIGINT NOT NULL,
    delivered_at BIGINT
);
CREATE INDEX outbox_due ON outbox (available_at) WHERE delivered_at IS NULL;

CREATE TABLE job_archive (
    job_id          INTEGER PRIMARY KEY,
    video_id        BIGINT,
    user_id         TEXT NOT NULL,
    idempotency_key TEXT,
    spec_hash       TEXT NOT NULL,
    outcome         TEXT NOT NULL,
    ended_at        BIGINT NOT NULL,
    archived_at     BIGINT NOT NULL,
    record          TEXT NOT NULL,
    UNIQUE (user_id, idempotency_key)
);
CREATE INDEX job_archive_video ON job_archive (video_id, job_id);

-- Tables that grow for ever.
CREATE TABLE audit (
    id             INTEGER PRIMARY KEY,
    at             BIGINT NOT NULL,
    job_id         BIGINT,
    task_id        BIGINT,
    fence          BIGINT,
    worker_id      TEXT,
    role           TEXT NOT NULL,
    command        TEXT NOT NULL,
    from_state     TEXT,
    to_state       TEXT,
    from_execution TEXT,
    to_execution   TEXT,
    failure        TEXT,
    note           TEXT
);
CREATE INDEX audit_job ON audit (job_id);

CREATE TABLE job_log (
    id       INTEGER PRIMARY KEY,
    at       BIGINT NOT NULL,
    job_id   BIGINT NOT NULL,
    task_id  BIGINT,
    level    TEXT NOT NULL CHECK (level IN ('debug', 'info', 'warn', 'error')),
    stage    TEXT,
    message  TEXT NOT NULL,
    metadata TEXT
);
CREATE INDEX job_log_job ON job_log (job_id, id);

CREATE TABLE execution_step (
    id           INTEGER PRIMARY KEY,
    at           BIGINT NOT NULL,
    task_id      BIGINT NOT NULL,
    fence        BIGINT NOT NULL,
    kind         TEXT NOT NULL,
    command      TEXT NOT NULL,
    exit_code    BIGINT,
    signal       BIGINT,
    stdout_tail  TEXT NOT NULL,
    stderr_tail  TEXT NOT NULL,
    duration_ms  BIGINT NOT NULL,
    is_success   BOOLEAN NOT NULL,
    error        TEXT
);
CREATE INDEX execution_step_task ON execution_step (task_id, id);

-- How far back each of them has been dropped.
CREATE TABLE history (
    name           TEXT PRIMARY KEY,
    dropped_before BIGINT NOT NULL
);
INSERT INTO history (name, dropped_before) VALUES ('audit', 0), ('job_log', 0), ('execution_step', 0);

-- Append-only: no change ever, and no deletion but of what `history` says was dropped for its age.
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit
WHEN OLD.at >= (SELECT dropped_before FROM history WHERE name = 'audit')
BEGIN
    SELECT RAISE(ABORT, 'the audit log is append-only');
END;
