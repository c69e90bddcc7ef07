//! The doctor sees each kind of damage, and the database prevents what it can.
//!
//! That it sees nothing on a healthy database is asked at the end of every behaviour of this suite.

use crate::shop::{commit_of, planned, simple, spec, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::{GenerationId, JobId};
use serde_json::json;
use wire::{Commit, Publication};

on_both_engines![
    a_healthy_database_is_counted,
    a_missing_execution_is_found,
    attempts_that_never_happened_are_found,
    an_execution_without_its_task_is_found,
    a_task_without_its_stage_is_found,
    a_task_that_waits_elsewhere_is_found,
    a_commit_without_its_effect_is_found,
    a_stage_that_miscounts_its_tasks_is_found,
    a_stage_that_miscounts_what_is_open_is_found,
    a_stage_that_counts_failures_that_never_were_is_found,
    a_task_that_is_ready_too_early_is_found,
    a_task_that_was_never_made_ready_is_found,
    work_left_in_an_ended_job_is_found,
    a_state_that_the_audit_does_not_explain_is_found,
    a_gap_in_the_audit_is_found,
    a_second_commit_in_the_audit_is_found,
    a_second_commit_that_was_settled_at_once_is_found,
    a_gap_in_the_audit_of_an_execution_is_found,
    a_state_that_the_run_of_its_audit_does_not_explain_is_found,
    a_gap_inside_a_run_of_the_audit_is_found,
    a_second_commit_inside_a_run_of_the_audit_is_found,
    a_gap_of_an_execution_inside_a_run_of_the_audit_is_found,
    a_gap_in_the_audit_of_an_archived_job_is_found,
    a_video_that_points_astray_is_found,
    a_generation_that_nobody_committed_is_found,
    an_outcome_that_the_tasks_do_not_say_is_found,
    a_job_that_should_have_ended_is_found,
    a_commit_is_for_ever,
    the_database_refuses_states_that_contradict_themselves,
    the_database_refuses_runs_of_no_tasks,
];

/// A job of each kind of task: done and settled, running, failed once, ready.
async fn busy(world: &World) -> JobId {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(4)).await;
    let tasks = world.store.claim(worker, 3).await.unwrap();
    world.commit(&tasks[0]).await;
    world.fail(&tasks[1], Kind::Transient).await;
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["DONE", "ERROR", "RUNNING", "READY"]);
    job
}

/// Damages the database, and names the check that must see it.
async fn damage(world: &World, sql: &'static str, check: &str) {
    assert!(world.store.examine().await.unwrap().findings.is_empty());
    assert!(world.execute(sql).await.unwrap() > 0, "nothing was damaged by {sql}");
    let found = world.store.examine().await.unwrap().findings;
    assert!(found.iter().any(|finding| finding.check.contains(check)), "{check}: {found:#?}");
    world.is_damaged();
}

async fn a_healthy_database_is_counted(world: &World) {
    busy(world).await;

    let report = world.store.examine().await.unwrap();

    assert_eq!((report.jobs, report.tasks, report.executions), (1, 4, 3));
    assert!(report.checks >= 18 && report.findings.is_empty());
}

async fn a_missing_execution_is_found(world: &World) {
    busy(world).await;

    damage(world, "DELETE FROM execution_aborted", "numbered without a gap").await;
}

async fn attempts_that_never_happened_are_found(world: &World) {
    busy(world).await;

    let sql = "UPDATE task SET attempts = attempts + 1 WHERE state = 'ERROR'";
    damage(world, sql, "attempts are the executions that count").await;
}

async fn an_execution_without_its_task_is_found(world: &World) {
    busy(world).await;

    damage(world, "DELETE FROM task WHERE state = 'ERROR'", "every execution has its task").await;
}

async fn a_task_without_its_stage_is_found(world: &World) {
    busy(world).await;

    damage(world, "UPDATE task SET stage = 7 WHERE state = 'READY'", "every task has its stage").await;
}

async fn a_task_that_waits_elsewhere_is_found(world: &World) {
    busy(world).await;

    let sql = "UPDATE task SET owner_id = owner_id + 1 WHERE state = 'READY'";
    damage(world, sql, "a task waits where its stage's tasks wait").await;
}

async fn a_commit_without_its_effect_is_found(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([{ "name": "work", "kind": "noop", "segments": 3, "effect": { "append": "x" } }]);
    world.submit(spec(stages, json!({}))).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.commit(&tasks[0]).await;
    let told: Vec<i64> = world.store.take_messages(10).await.unwrap().iter().map(|it| it.id).collect();
    world.store.messages_delivered(&told).await.unwrap();
    world.commit(&tasks[1]).await;

    let sql = "DELETE FROM outbox WHERE delivered_at IS NULL";
    damage(world, sql, "a commit has its effect in the outbox").await;
}

async fn a_stage_that_miscounts_its_tasks_is_found(world: &World) {
    busy(world).await;

    damage(world, "UPDATE stage SET tasks = tasks + 1, open = open + 1", "a stage counts its tasks").await;
}

async fn a_stage_that_miscounts_what_is_open_is_found(world: &World) {
    busy(world).await;

    damage(world, "UPDATE stage SET open = open - 1", "a stage counts what is open").await;
}

async fn a_stage_that_counts_failures_that_never_were_is_found(world: &World) {
    busy(world).await;

    damage(world, "UPDATE stage SET failed = 1", "a stage counts no more failed tasks").await;
}

async fn a_task_that_is_ready_too_early_is_found(world: &World) {
    world.submit(planned()).await;

    let sql = "UPDATE task SET state = 'READY', queued_at = 1 WHERE state = 'NEW'";
    damage(world, sql, "a stage's tasks are NEW before its release").await;
}

async fn a_task_that_was_never_made_ready_is_found(world: &World) {
    busy(world).await;

    let sql = "UPDATE task SET state = 'NEW', queued_at = NULL WHERE state = 'READY'";
    damage(world, sql, "in an open job, not after").await;
}

async fn work_left_in_an_ended_job_is_found(world: &World) {
    let job = world.submit(simple()).await;
    world.store.cancel(job, None).await.unwrap();

    let sql = "UPDATE task SET state = 'READY', queued_at = 1";
    damage(world, sql, "an ended job has nothing READY, RUNNING or due").await;
}

async fn a_state_that_the_audit_does_not_explain_is_found(world: &World) {
    let job = world.submit(planned()).await;
    world.store.cancel(job, None).await.unwrap();

    let sql = "UPDATE task SET state = 'ERROR', failure = 'transient'";
    damage(world, sql, "the audit explains each task's state").await;
}

const AUDIT_ROW: &str = "
INSERT INTO audit (at, job_id, task_id, role, command, from_state, to_state)
SELECT at, job_id, task_id, role, 'magic', 'NEW', to_state FROM audit WHERE to_state = 'DONE' AND command = 'commit'";

async fn a_gap_in_the_audit_is_found(world: &World) {
    busy(world).await;

    damage(world, AUDIT_ROW, "the audit has no gap").await;
}

async fn a_second_commit_in_the_audit_is_found(world: &World) {
    busy(world).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, role, command, from_state, to_state, to_execution)
SELECT at, job_id, task_id, role, command, 'DONE', to_state, to_execution FROM audit WHERE command = 'commit'";
    damage(world, sql, "the audit shows at most one commit").await;
}

async fn a_second_commit_that_was_settled_at_once_is_found(world: &World) {
    busy(world).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, fence, role, command, from_state, to_state, from_execution, to_execution)
SELECT at, job_id, task_id, 2, role, command, from_state, to_state, 'LEASED', 'DONE' FROM audit WHERE command = 'commit'";
    damage(world, sql, "the audit shows at most one commit").await;
}

async fn a_gap_in_the_audit_of_an_execution_is_found(world: &World) {
    busy(world).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, fence, role, command, from_state, to_state, from_execution, to_execution)
SELECT at, job_id, task_id, fence, role, 'magic', to_state, to_state, 'LEASED', 'DONE' FROM audit WHERE command = 'commit'";
    damage(world, sql, "the audit of an execution has no gap").await;
}

/// As [`damage`], by a row for a run of tasks that is right for its first one: the second one is what must be found.
async fn damage_run(world: &World, sql: &'static str, check: &str) {
    damage(world, sql, check).await;
    let found = world.store.examine().await.unwrap().findings;
    let subjects = found.iter().filter(|finding| finding.check.contains(check)).map(|it| it.subject.as_str());
    assert_eq!(subjects.collect::<Vec<_>>(), ["task 1-1"], "{found:#?}");
}

/// Two tasks: the first is READY once more, and the second still runs.
async fn second_runs(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(2)).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.fail(&tasks[0], Kind::Transient).await;
    world.turn(1_000_000);
    let due = world.store.due(10).await.unwrap();
    world.store.retry(&due.retries).await.unwrap();
}

async fn a_state_that_the_run_of_its_audit_does_not_explain_is_found(world: &World) {
    second_runs(world).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, tasks, role, command, to_state)
SELECT at, job_id, task_id, 2, role, 'magic', 'READY' FROM audit WHERE command = 'retry'";
    damage_run(world, sql, "the audit explains each task's state").await;
}

async fn a_gap_inside_a_run_of_the_audit_is_found(world: &World) {
    second_runs(world).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, tasks, role, command, from_state, to_state)
SELECT at, job_id, task_id, 2, role, 'magic', 'READY', 'READY' FROM audit WHERE command = 'retry'";
    damage_run(world, sql, "the audit has no gap").await;
}

async fn a_second_commit_inside_a_run_of_the_audit_is_found(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(3)).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.commit(&tasks[1]).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, tasks, role, command, to_state, to_execution)
SELECT at, job_id, task_id - 1, 2, role, command, to_state, 'COMMITTED' FROM audit WHERE command = 'commit'";
    damage_run(world, sql, "the audit shows at most one commit").await;
}

async fn a_gap_of_an_execution_inside_a_run_of_the_audit_is_found(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(2)).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.progress(&tasks[1], 1).await;

    let sql = "
INSERT INTO audit (at, job_id, task_id, tasks, fence, role, command, from_state, to_state, from_execution, to_execution)
SELECT at, job_id, task_id - 1, 2, fence, role, command, from_state, to_state, 'LEASED', to_execution
FROM audit WHERE command = 'start'";
    damage_run(world, sql, "the audit of an execution has no gap").await;
}

async fn a_gap_in_the_audit_of_an_archived_job_is_found(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(2)).await;
    world.work_off(worker).await;
    world.turn(1);
    world.store.archive(world.now(), 10).await.unwrap();
    assert_eq!(world.count("SELECT count(*) FROM task").await, 0);

    let sql = "
INSERT INTO audit (at, job_id, task_id, tasks, role, command, from_state, to_state)
SELECT at, job_id, task_id, 2, role, 'magic', 'NEW', to_state FROM audit WHERE command = 'commit'";
    damage(world, sql, "the audit has no gap").await;
}

/// A video with one generation.
async fn published(world: &World) -> GenerationId {
    let worker = world.worker("noop").await;
    let video = world.video("talk").await;
    world.submit_for(video, simple()).await;
    let publication = Some(Publication { video, manifest: json!({}), renditions: Vec::new() });
    let task = world.claim(worker).await;
    world.say(Commit { publication, ..commit_of(task.proof) }).await;
    world.orchestrate().await;
    world.store.video(video).await.unwrap().generation.unwrap()
}

async fn a_video_that_points_astray_is_found(world: &World) {
    published(world).await;
    world.video("other").await;

    let sql = "UPDATE video SET generation_id = (SELECT max(id) FROM generation) WHERE slug = 'other'";
    damage(world, sql, "a video points at a generation of its own").await;
}

async fn a_generation_that_nobody_committed_is_found(world: &World) {
    published(world).await;

    let sql = "UPDATE generation SET task_id = task_id + 1";
    damage(world, sql, "a generation was committed by its task").await;
}

async fn an_outcome_that_the_tasks_do_not_say_is_found(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    world.work_off(worker).await;

    let sql = "UPDATE job SET outcome = 'failed'";
    damage(world, sql, "a job's outcome follows from its tasks").await;
}

async fn a_job_that_should_have_ended_is_found(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    world.work_off(worker).await;

    let sql = "UPDATE job SET outcome = NULL, ended_at = NULL";
    damage(world, sql, "a job's outcome follows from its tasks").await;
}

async fn a_commit_is_for_ever(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    world.work_off(worker).await;

    for sql in [
        "UPDATE task SET committed_at = committed_at + 1",
        "UPDATE task SET state = 'READY', queued_at = 1, status = NULL, token = NULL, leased_at = NULL,
                         committed_at = NULL, finished_at = NULL",
    ] {
        let refused = world.execute(sql).await.unwrap_err();

        assert!(names(&refused, "for ever"), "{refused:?}");
    }
}

fn names(error: &store::Error, words: &str) -> bool {
    match error {
        store::Error::Database(source) => source.to_string().contains(words),
        _ => false,
    }
}

async fn the_database_refuses_states_that_contradict_themselves(world: &World) {
    let job = busy(world).await;
    world.submit(spec(json!([{ "name": "w", "kind": "noop" }]), json!({}))).await;

    for sql in [
        "UPDATE task SET queued_at = NULL WHERE state = 'READY'",
        "UPDATE task SET queued_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET failure = NULL WHERE state = 'ERROR'",
        "UPDATE task SET due_at = 1 WHERE state = 'DONE'",
        "UPDATE task SET attempts = max_attempts + 1",
        "UPDATE task SET state = 'ready' WHERE state = 'READY'",
        "UPDATE task SET state = 'READY', queued_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET state = 'DONE', committed_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET state = 'RUNNING' WHERE state = 'DONE'",
        "UPDATE task SET status = NULL WHERE state = 'RUNNING'",
        "UPDATE task SET token = NULL WHERE state = 'RUNNING'",
        "UPDATE task SET worker_id = NULL WHERE state = 'RUNNING'",
        "UPDATE task SET lease_expires_at = NULL WHERE state = 'RUNNING'",
        "UPDATE task SET leased_at = NULL WHERE state = 'RUNNING'",
        "UPDATE task SET status = 'COMMITTED' WHERE state = 'RUNNING'",
        "UPDATE task SET committed_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET finished_at = 1 WHERE state = 'RUNNING'",
        "UPDATE task SET status = 'ABORTED' WHERE state = 'RUNNING'",
        "UPDATE task SET status = NULL WHERE state = 'DONE'",
        "UPDATE task SET token = NULL WHERE state = 'DONE'",
        "UPDATE task SET finished_at = NULL WHERE state = 'DONE'",
        "UPDATE task SET status = 'LEASED', token = 1, worker_id = 'w', lease_expires_at = 1, leased_at = 1 WHERE state = 'READY'",
        "UPDATE task SET token = 1 WHERE state = 'ERROR'",
        "UPDATE execution_aborted SET failure = NULL",
        "INSERT INTO execution_aborted SELECT * FROM execution_aborted",
        "UPDATE stage SET open = tasks + 1",
        "UPDATE stage SET open = -1",
        "UPDATE job SET outcome = 'completed'",
        "UPDATE job SET priority = 11",
        "UPDATE worker SET status = 'asleep'",
    ] {
        assert!(world.execute(sql).await.is_err(), "{sql}");
    }

    assert_eq!(world.task_states(job).await, ["DONE", "ERROR", "RUNNING", "READY"]);
}

async fn the_database_refuses_runs_of_no_tasks(world: &World) {
    for sql in [
        "INSERT INTO audit (at, job_id, task_id, tasks, role, command) VALUES (0, 1, 1048576, 0, 'user', 'magic')",
        "INSERT INTO audit (at, job_id, task_id, tasks, role, command) VALUES (0, 1, 1048576, -1, 'user', 'magic')",
        "INSERT INTO audit (at, job_id, tasks, role, command) VALUES (0, 1, 2, 'user', 'magic')",
    ] {
        assert!(world.execute(sql).await.is_err(), "{sql}");
    }
}
