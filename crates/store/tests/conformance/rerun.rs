//! A person retries a failed job.

use crate::shop::{planned, simple, spec, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::job::{Refusal, State};
use rules::{JobId, WorkerId};
use serde_json::json;
use store::Error;

on_both_engines![
    a_retried_job_keeps_what_was_done,
    a_retried_task_has_all_its_attempts_again,
    a_retried_job_takes_up_what_was_withdrawn,
    a_retried_job_takes_up_a_plan_that_was_never_settled,
    an_optional_task_that_was_withdrawn_is_tried_again,
    an_optional_stage_that_others_went_on_without_stays_failed,
    only_a_failed_job_is_retried,
    a_job_may_be_retried_again_and_again,
    a_retry_is_refused_when_someone_was_faster,
    two_retries_at_once_are_one,
];

async fn fail_all(world: &World, worker: WorkerId) {
    for task in world.store.claim(worker, 100).await.unwrap() {
        world.fail(&task, Kind::Permanent).await;
    }
    world.orchestrate().await;
}

async fn a_retried_job_keeps_what_was_done(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "first", "kind": "noop", "segments": 2 },
        { "name": "second", "kind": "noop", "needs": ["first"] },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let done = world.claim(worker).await;
    world.commit(&done).await;
    fail_all(world, worker).await;
    assert!(world.is(job, State::Failed).await);

    world.store.retry_job(job, None).await.unwrap();

    assert_eq!(world.task_states(job).await, ["DONE", "READY", "NEW"]);
    let seen = world.store.job(job).await.unwrap();
    assert_eq!((seen.state, seen.error, seen.ended_at), (State::Processing, None, None));
    world.work_off(worker).await;
    assert!(world.is(job, State::Completed).await);
    assert_eq!(world.statuses(done.proof.task).await, ["DONE"], "done once");
}

async fn a_retried_task_has_all_its_attempts_again(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let exhaust = async || {
        while let [task] = world.store.claim(worker, 1).await.unwrap().as_slice() {
            world.fail(task, Kind::Transient).await;
            world.turn(400_000);
            world.orchestrate().await;
        }
    };
    exhaust().await;
    assert!(world.is(job, State::Failed).await);

    world.store.retry_job(job, None).await.unwrap();
    exhaust().await;

    assert!(world.is(job, State::Failed).await);
    assert_eq!(world.executions(job).await.len(), 6);
}

async fn a_retried_job_takes_up_what_was_withdrawn(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(5)).await;
    let tasks = world.store.claim(worker, 3).await.unwrap();
    world.fail(&tasks[0], Kind::Transient).await;
    world.fail(&tasks[1], Kind::Permanent).await;
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["ERROR", "ERROR", "NEW", "NEW", "NEW"]);

    world.store.retry_job(job, None).await.unwrap();

    assert_eq!(world.task_states(job).await, ["READY"; 5]);
    world.work_off(worker).await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_retried_job_takes_up_a_plan_that_was_never_settled(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "plan", "kind": "noop" },
        { "name": "check", "kind": "noop" },
        { "name": "encode", "kind": "noop", "needs": ["plan", "check"], "expand": "plan" },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let tasks = world.store.claim(worker, 2).await.unwrap();
    world.fail(&tasks[1], Kind::Permanent).await;
    world.commit_with(&tasks[0], json!({ "segments": [1, 2] })).await;
    let verdicts = world.store.due(10).await.unwrap().verdicts;
    world.store.judge(&verdicts).await.unwrap();

    world.store.retry_job(job, None).await.unwrap();
    world.work_off(worker).await;

    assert!(world.is(job, State::Completed).await);
    assert_eq!(world.tasks(job).await.len(), 4);
}

fn with_captions() -> rules::spec::Spec {
    let stages = json!([
        { "name": "captions", "kind": "noop", "optional": true, "segments": 3 },
        { "name": "encode", "kind": "noop" },
        { "name": "package", "kind": "noop", "needs": ["captions", "encode"] },
    ]);
    spec(stages, json!({}))
}

async fn an_optional_task_that_was_withdrawn_is_tried_again(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(with_captions()).await;
    let tasks = world.store.claim(worker, 4).await.unwrap();
    // One caption is given up for good, one waits for its backoff, one runs, when the job fails.
    world.fail(&tasks[0], Kind::Permanent).await;
    world.orchestrate().await;
    world.fail(&tasks[1], Kind::Transient).await;
    world.fail(&tasks[3], Kind::Permanent).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Failed).await);

    world.store.retry_job(job, None).await.unwrap();
    world.work_off(worker).await;

    assert!(world.is(job, State::Completed).await, "{:?}", world.store.why(job).await.unwrap());
}

async fn an_optional_stage_that_others_went_on_without_stays_failed(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(with_captions()).await;
    let tasks = world.store.claim(worker, 4).await.unwrap();
    for task in &tasks[..3] {
        world.fail(task, Kind::Permanent).await;
    }
    world.commit(&tasks[3]).await;
    world.orchestrate().await;
    fail_all(world, worker).await;
    assert!(world.is(job, State::Failed).await);

    world.store.retry_job(job, None).await.unwrap();

    assert_eq!(world.task_states(job).await, ["ERROR", "ERROR", "ERROR", "DONE", "READY"]);
    world.work_off(worker).await;
    assert!(world.is(job, State::Completed).await);
}

async fn only_a_failed_job_is_retried(world: &World) {
    let worker = world.worker("noop").await;
    let completed = world.submit(simple()).await;
    world.work_off(worker).await;
    let cancelled = world.submit(simple()).await;
    world.store.cancel(cancelled, None).await.unwrap();
    let pending = world.submit(planned()).await;

    for (job, state) in
        [(completed, State::Completed), (cancelled, State::Cancelled), (pending, State::Pending)]
    {
        let refused = world.store.retry_job(job, None).await.unwrap_err();
        let Error::Refused(store::Refusal::Job(Refusal::NotFailed(found))) = refused else {
            panic!("{refused}");
        };
        assert_eq!(found, state);
    }
    let unknown = world.store.retry_job(JobId(404), None).await;
    assert!(matches!(unknown, Err(Error::NotFound("job"))));
}

async fn a_job_may_be_retried_again_and_again(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(2)).await;
    for _ in 0..3 {
        fail_all(world, worker).await;
        assert!(world.is(job, State::Failed).await);
        world.store.retry_job(job, None).await.unwrap();
    }

    world.work_off(worker).await;

    assert!(world.is(job, State::Completed).await);
    assert_eq!(world.endings(job).await, ["fail", "fail", "fail", "complete"]);
}

async fn a_retry_is_refused_when_someone_was_faster(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let version = world.store.job(job).await.unwrap().version;
    fail_all(world, worker).await;

    let stale = world.store.retry_job(job, Some(version)).await;

    let found = world.store.job(job).await.unwrap().version;
    assert!(
        matches!(stale, Err(Error::VersionMismatch { expected, found: f }) if (expected, f) == (version, found))
    );
    world.store.retry_job(job, Some(found)).await.unwrap();
}

async fn two_retries_at_once_are_one(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    fail_all(world, worker).await;
    let another = world.elsewhere().await;

    let (here, there) = tokio::join!(world.store.retry_job(job, None), another.retry_job(job, None));

    assert!(here.is_ok() != there.is_ok(), "{here:?} {there:?}");
    let retried = world.store.audit_of_job(job).await.unwrap();
    assert_eq!(retried.iter().filter(|row| row.command == "retry").count(), 1);
}
