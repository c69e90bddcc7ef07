-- The execution of a task that counts stands in the task's own row; those that were aborted have a table of their own. So a
-- task is claimed by one update and committed by another, and what had to be looked for is now impossible: a RUNNING task
-- without a lease, two leases, a DONE task without its commit (INV_001). migrations/sqlite has the same.

CREATE TABLE task_new (
    -- A claim and a commit add an entry each; with room for them no page is split.
    id                BIGINT PRIMARY KEY WITH (fillfactor = 30),
    stage             BIGINT NOT NULL,
    segment           BIGINT NOT NULL,
    state             TEXT NOT NULL,
    lane_id           BIGINT NOT NULL,
    owner_id          BIGINT NOT NULL DEFAULT 0,
    priority          BIGINT NOT NULL,
    fence             BIGINT NOT NULL,
    attempts          BIGINT NOT NULL,
    max_attempts      BIGINT NOT NULL,
    queued_at         BIGINT,
    due_at            BIGINT,
    failure           TEXT,
    twin_of           BIGINT,
    updated_at        BIGINT NOT NULL,
    -- Its execution, once there is one that was not aborted. A word of a worker changes none of what an index is about.
    status            TEXT,
    token             BIGINT,
    worker_id         TEXT,
    lease_expires_at  BIGINT,
    progress          BIGINT,
    progressed_at     BIGINT,
    stall_ms          BIGINT,
    deadline_at       BIGINT,
    step              TEXT,
    permille          BIGINT,
    leased_at         BIGINT,
    started_at        BIGINT,
    committed_at      BIGINT,
    finished_at       BIGINT,
    wall_ms           BIGINT,
    cpu_ms            BIGINT,
    peak_memory_bytes BIGINT,
    bytes_in          BIGINT,
    bytes_out         BIGINT,
    -- Last, for it may be long.
    result            TEXT,
    CHECK (attempts BETWEEN 0 AND max_attempts),
    -- What there is in each state: a RUNNING task has a lease and a DONE one a commit, and nothing else has either.
    CHECK ((CASE state
        WHEN 'RUNNING' THEN status IN ('LEASED', 'IN_PROGRESS') AND token IS NOT NULL AND worker_id IS NOT NULL
            AND lease_expires_at IS NOT NULL AND leased_at IS NOT NULL AND committed_at IS NULL AND finished_at IS NULL
            AND queued_at IS NULL AND failure IS NULL AND due_at IS NULL
        WHEN 'DONE' THEN status = CASE WHEN finished_at IS NULL THEN 'COMMITTED' ELSE 'DONE' END AND token IS NOT NULL
            AND leased_at IS NOT NULL AND committed_at IS NOT NULL
            AND queued_at IS NULL AND failure IS NULL AND due_at IS NULL
        WHEN 'READY' THEN queued_at IS NOT NULL AND failure IS NULL AND due_at IS NULL
            AND status IS NULL AND token IS NULL AND leased_at IS NULL AND committed_at IS NULL AND finished_at IS NULL
        WHEN 'NEW' THEN queued_at IS NULL AND failure IS NULL AND due_at IS NULL
            AND status IS NULL AND token IS NULL AND leased_at IS NULL AND committed_at IS NULL AND finished_at IS NULL
        WHEN 'ERROR' THEN queued_at IS NULL AND failure IS NOT NULL
            AND status IS NULL AND token IS NULL AND leased_at IS NULL AND committed_at IS NULL AND finished_at IS NULL
        ELSE FALSE
    END) IS TRUE)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
INSERT INTO task_new (id, stage, segment, state, lane_id, owner_id, priority, fence, attempts, max_attempts,
                      queued_at, due_at, failure, twin_of, updated_at, status, token, worker_id, lease_expires_at,
                      progress, progressed_at, stall_ms, deadline_at, step, permille, leased_at, started_at,
                      committed_at, finished_at, wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out, result)
SELECT t.id, t.stage, t.segment, t.state, t.lane_id, t.owner_id, t.priority, t.fence, t.attempts, t.max_attempts,
       t.queued_at, t.due_at, t.failure, t.twin_of, t.updated_at, e.status, e.token, e.worker_id, e.lease_expires_at,
       e.progress, e.progressed_at, e.stall_ms, e.deadline_at, e.step, e.permille, e.leased_at, e.started_at,
       e.committed_at, e.finished_at, e.wall_ms, e.cpu_ms, e.peak_memory_bytes, e.bytes_in, e.bytes_out, e.result
FROM task t LEFT JOIN execution e ON e.task_id = t.id AND e.fence = t.fence AND e.failure IS NULL;

CREATE TABLE execution_aborted (
    task_id           BIGINT NOT NULL,
    fence             BIGINT NOT NULL,
    token             BIGINT NOT NULL,
    worker_id         TEXT NOT NULL,
    lease_expires_at  BIGINT NOT NULL,
    progress          BIGINT NOT NULL,
    progressed_at     BIGINT NOT NULL,
    stall_ms          BIGINT,
    deadline_at       BIGINT,
    step              TEXT,
    permille          BIGINT,
    leased_at         BIGINT NOT NULL,
    started_at        BIGINT,
    finished_at       BIGINT NOT NULL,
    failure           TEXT NOT NULL,
    error             TEXT,
    wall_ms           BIGINT,
    cpu_ms            BIGINT,
    peak_memory_bytes BIGINT,
    bytes_in          BIGINT,
    bytes_out         BIGINT,
    PRIMARY KEY (task_id, fence)
);
INSERT INTO execution_aborted (task_id, fence, token, worker_id, lease_expires_at, progress, progressed_at, stall_ms,
                               deadline_at, step, permille, leased_at, started_at, finished_at, failure, error,
                               wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out)
SELECT task_id, fence, token, worker_id, lease_expires_at, progress, progressed_at, stall_ms, deadline_at, step,
       permille, leased_at, started_at, finished_at, failure, error, wall_ms, cpu_ms, peak_memory_bytes, bytes_in,
       bytes_out
FROM execution WHERE failure IS NOT NULL;

DROP TABLE execution;
DROP TABLE task;
ALTER TABLE task_new RENAME TO task;
ALTER INDEX task_new_pkey RENAME TO task_pkey;
CREATE INDEX task_queue ON task (lane_id, owner_id, priority DESC, queued_at, id) WHERE queued_at IS NOT NULL;
CREATE INDEX task_due ON task (due_at) WHERE due_at IS NOT NULL;
CREATE UNIQUE INDEX task_twin ON task (twin_of) WHERE twin_of IS NOT NULL;
-- What is leased, as large as the fleet, which recovery scans; and what is committed and not settled.
CREATE INDEX task_running ON task (id) WHERE leased_at IS NOT NULL AND committed_at IS NULL;
CREATE INDEX task_unsettled ON task (id) WHERE committed_at IS NOT NULL AND finished_at IS NULL;

-- A commit is for ever: no statement that speaks of it may touch it again.
CREATE FUNCTION refuse_second_commit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'task % is committed, for ever', OLD.id;
END $$;
CREATE TRIGGER task_commits_once AFTER UPDATE OF committed_at ON task
    FOR EACH ROW WHEN (OLD.committed_at IS NOT NULL) EXECUTE FUNCTION refuse_second_commit();

-- All executions, for whoever looks.
CREATE VIEW execution AS
SELECT id AS task_id, fence, status, token, worker_id, lease_expires_at, progress, progressed_at, stall_ms,
       deadline_at, step, permille, leased_at, started_at, committed_at, finished_at, CAST(NULL AS TEXT) AS failure,
       CAST(NULL AS TEXT) AS error, result, wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out
FROM task WHERE leased_at IS NOT NULL
UNION ALL
SELECT task_id, fence, 'ABORTED', token, worker_id, lease_expires_at, progress, progressed_at, stall_ms, deadline_at,
       step, permille, leased_at, started_at, CAST(NULL AS BIGINT), finished_at, failure, error, CAST(NULL AS TEXT),
       wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out
FROM execution_aborted;
