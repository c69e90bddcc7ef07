//! A database of an earlier version: what was under way in it goes on where it was.

use crate::database::Database;
use crate::shop::{commit_of, wide};
use crate::world::{DAWN, LEASE, World};
use rules::{Fence, JobId, TaskId, Token};
use store::migrate::MIGRATIONS;
use wire::{Answer, Proof, Renewal};

on_both_engines![
    work_goes_on_after_executions_moved_into_their_tasks_rows,
    a_program_of_before_that_was_left_running_is_refused,
];

/// The version in which executions had a table of their own.
const BEFORE: &str = "0009_audit_runs";

/// One job of one stage: a task that waits, one leased, one under way after a lost execution, one committed, one settled,
/// one that failed and is to be tried again.
const WORK: &str = "
INSERT INTO worker (id, name, kind, hostname, version, status, phase, capabilities, metadata, slots, registered_at, last_heartbeat)
VALUES ('01999999-0000-7000-8000-000000000001', 'w', 'local', 'h', '0', 'busy', 'Processing', 'noop', '{}', 4, 1763200000000, 1763200000000);
INSERT INTO lane (id, asks, prefers_gpu) VALUES (1, 'noop', FALSE);
INSERT INTO job (id, user_id, name, priority, spec, spec_hash, max_attempts, backoff_initial_ms, backoff_max_ms, created_at, updated_at)
VALUES (1, '', 'old', 5, '{}', 'h', 3, 10000, 300000, 1763199990000, 1763199990000);
INSERT INTO stage (job_id, position, name, phase, kind, payload, needs, reads, is_plan, lane_id, is_optional, is_expanded,
                   is_released, first_task, tasks, open)
VALUES (1, 0, 'work', 'processing', 'noop', '{}', '[]', '[]', FALSE, 1, FALSE, TRUE, TRUE, 1048576, 6, 5);
INSERT INTO task (id, stage, segment, state, lane_id, priority, fence, attempts, max_attempts, queued_at, due_at, failure, updated_at)
VALUES (1048576, 0, 0, 'READY', 1, 5, 0, 0, 3, 1763199990000, NULL, NULL, 1763199990000),
       (1048577, 0, 1, 'RUNNING', 1, 5, 1, 1, 3, NULL, NULL, NULL, 1763199995000),
       (1048578, 0, 2, 'RUNNING', 1, 5, 2, 2, 3, NULL, NULL, NULL, 1763199995000),
       (1048579, 0, 3, 'DONE', 1, 5, 1, 1, 3, NULL, NULL, NULL, 1763199995000),
       (1048580, 0, 4, 'DONE', 1, 5, 1, 1, 3, NULL, NULL, NULL, 1763199995000),
       (1048581, 0, 5, 'ERROR', 1, 5, 1, 1, 3, NULL, 1763200000000, 'transient', 1763199995000);
INSERT INTO execution (task_id, fence, token, worker_id, status, lease_expires_at, progress, progressed_at, leased_at,
                       started_at, committed_at, finished_at, failure, error, result, wall_ms)
VALUES (1048577, 1, 11, '01999999-0000-7000-8000-000000000001', 'LEASED', 1763200060000, 0, 1763199995000, 1763199995000, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
       (1048578, 1, 21, '01999999-0000-7000-8000-000000000001', 'ABORTED', 1763199994000, 0, 1763199993000, 1763199993000, NULL, NULL, 1763199994500, 'lease_expired', 'lost', NULL, NULL),
       (1048578, 2, 22, '01999999-0000-7000-8000-000000000001', 'IN_PROGRESS', 1763200060000, 7, 1763199996000, 1763199995000, 1763199996000, NULL, NULL, NULL, NULL, NULL, NULL),
       (1048579, 1, 33, '01999999-0000-7000-8000-000000000001', 'COMMITTED', 1763200060000, 0, 1763199994000, 1763199994000, 1763199994000, 1763199995000, NULL, NULL, NULL, '\"third\"', 1000),
       (1048580, 1, 44, '01999999-0000-7000-8000-000000000001', 'DONE', 1763200060000, 0, 1763199994000, 1763199994000, 1763199994000, 1763199995000, 1763199995000, NULL, NULL, '\"fourth\"', 1000),
       (1048581, 1, 55, '01999999-0000-7000-8000-000000000001', 'ABORTED', 1763200060000, 0, 1763199994000, 1763199994000, 1763199994000, NULL, 1763199995000, 'transient', 'oops', NULL, 3);
INSERT INTO audit (at, job_id, task_id, fence, role, command, from_state, to_state, to_execution)
SELECT t.updated_at, 1, t.id, t.fence, 'worker', 'before', 'NEW', t.state, e.status
FROM task t LEFT JOIN execution e ON e.task_id = t.id AND e.fence = t.fence;";

fn proof(task: i64, fence: i64, token: i64) -> Proof {
    let worker = "01999999-0000-7000-8000-000000000001".parse().unwrap();
    Proof { task: TaskId(1_048_576 + task), fence: Fence(fence), token: Token(token), worker }
}

async fn work_goes_on_after_executions_moved_into_their_tasks_rows(world: &World) {
    let known = MIGRATIONS.iter().position(|migration| migration.name == BEFORE).unwrap();
    let world =
        World::on(Database::of_version(world.store.is_postgres(), &MIGRATIONS[..=known], WORK).await).await;
    let job = JobId(1);

    assert_eq!(world.task_states(job).await, ["READY", "RUNNING", "RUNNING", "DONE", "DONE", "ERROR"]);
    let statuses: Vec<String> = world.executions(job).await.into_iter().map(|it| it.status).collect();
    assert_eq!(statuses, ["LEASED", "ABORTED", "IN_PROGRESS", "COMMITTED", "DONE", "ABORTED"]);
    let lost = &world.executions(job).await[1];
    assert_eq!((lost.failure.as_deref(), lost.error.as_deref()), (Some("lease_expired"), Some("lost")));

    let renewal = Renewal { proof: proof(1, 1, 11), progress: 1 };
    assert_eq!(world.store.renew(&[renewal]).await.unwrap(), [Answer::Accepted]);
    assert_ne!(world.say(commit_of(proof(2, 1, 21))).await, Answer::Accepted, "its lease was lost");
    assert_eq!(world.say(commit_of(proof(2, 2, 22))).await, Answer::Accepted);
    assert_eq!(world.say(commit_of(proof(3, 1, 33))).await, Answer::AlreadyAccepted);
    world.turn(LEASE);
    let worker = world.worker("noop").await;
    world.work_off(worker).await;

    assert!(world.is(job, rules::job::State::Completed).await);
    assert_eq!(world.statuses(proof(1, 1, 11).task).await, ["ABORTED", "DONE"], "its worker never came back");
    assert_eq!(world.statuses(proof(2, 2, 22).task).await, ["ABORTED", "DONE"]);
    let results = world.store.results_of_stage(job, "work").await.unwrap();
    assert_eq!((&results[3], &results[4]), (&"third".into(), &"fourth".into()));
    assert!(world.now().0 > DAWN);
    world.end().await;
}

/// Its statements, in which executions have a table of their own.
async fn a_program_of_before_that_was_left_running_is_refused(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(3)).await;
    let task = world.claim(worker).await;

    for sql in [
        "UPDATE task SET state = 'RUNNING', fence = 1, attempts = 1, queued_at = NULL WHERE state = 'READY'",
        "UPDATE task SET state = 'DONE' WHERE state = 'RUNNING'",
        "UPDATE task SET state = 'READY', queued_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET state = 'ERROR', failure = 'transient', due_at = 1 WHERE state = 'RUNNING'",
        "UPDATE execution SET status = 'COMMITTED', committed_at = 1",
        "UPDATE execution SET lease_expires_at = 1",
        "DELETE FROM execution",
        "INSERT INTO execution (task_id, fence, token, worker_id, status, lease_expires_at, progress, progressed_at, leased_at)
         VALUES (1048577, 1, 1, 'w', 'LEASED', 1, 0, 1, 1)",
    ] {
        assert!(world.execute(sql).await.is_err(), "{sql}");
    }

    assert_eq!(world.commit(&task).await, Answer::Accepted);
}
