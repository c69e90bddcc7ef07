//! Cancelling jobs.

use crate::shop::{commit_of, planned, simple, spec, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::job::{Refusal, State};
use rules::task;
use rules::{JobId, TaskId};
use serde_json::json;
use store::Error;
use wire::Answer;

on_both_engines![
    a_waiting_job_is_cancelled_at_once,
    a_running_job_is_cancelled_and_its_late_words_are_refused,
    a_cancelled_job_waits_for_no_retry,
    a_commit_and_a_cancel_at_once_are_consistent,
    a_job_of_which_everything_is_committed_has_completed,
    a_commit_before_the_cancel_is_settled_by_it,
    only_a_job_that_has_not_ended_is_cancelled,
    a_cancel_is_refused_when_someone_was_faster,
    a_cancel_is_audited_and_told,
];

async fn a_waiting_job_is_cancelled_at_once(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    world.turn(5);

    world.store.cancel(job, None).await.unwrap();

    let seen = world.store.job(job).await.unwrap();
    assert_eq!((seen.state, seen.ended_at), (State::Cancelled, Some(world.now().0)));
    assert_eq!(world.task_states(job).await, ["NEW", "NEW"]);
    assert!(world.finds_nothing(worker).await);
}

async fn a_running_job_is_cancelled_and_its_late_words_are_refused(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(2)).await;
    let task = world.claim(worker).await;
    world.progress(&task, 1).await;

    world.store.cancel(job, None).await.unwrap();

    let refused = Answer::Refused(task::Refusal::NotRunning);
    assert_eq!(world.commit(&task).await, refused);
    assert_eq!(world.fail(&task, Kind::Transient).await, refused);
    assert_eq!(world.renew(&task, 2).await, refused);
    assert_eq!(world.progress(&task, 2).await, refused);
    assert_eq!(world.task_states(job).await, ["NEW", "NEW"]);
    let execution = world.latest(task.proof.task).await;
    assert_eq!((execution.status.as_str(), execution.failure.as_deref()), ("ABORTED", Some("withdrawn")));
    world.orchestrate().await;
    assert!(world.is(job, State::Cancelled).await);
}

async fn a_cancelled_job_waits_for_no_retry(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.fail(&task, Kind::Transient).await;

    world.store.cancel(job, None).await.unwrap();
    world.turn(1_000_000);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["ERROR"]);
    let due = world.store.due(10).await.unwrap();
    assert!(due.retries.is_empty() && due.verdicts.is_empty());
}

async fn a_commit_and_a_cancel_at_once_are_consistent(world: &World) {
    let worker = world.worker("noop").await;
    let another = world.elsewhere().await;
    let stages = json!([{ "name": "work", "kind": "noop", "segments": 3, "effect": { "append": "x" } }]);
    for round in 0..20 {
        let job = world.submit(spec(stages.clone(), json!({}))).await;
        let commits: Vec<_> =
            world.store.claim(worker, 3).await.unwrap().iter().map(|task| commit_of(task.proof)).collect();

        let cancel = async {
            for _ in 0..round % 5 {
                tokio::task::yield_now().await;
            }
            another.cancel(job, None).await
        };
        let (answers, cancelled) = tokio::join!(world.store.commit(&commits), cancel);

        let accepted = answers.unwrap().iter().filter(|answer| **answer == Answer::Accepted).count();
        assert!(accepted == 0 || accepted == 3, "all were said before the cancel, or all after");
        let ended = if accepted == 0 { State::Cancelled } else { State::Completed };
        assert_eq!(cancelled.is_ok(), ended == State::Cancelled, "{cancelled:?}");
        assert!(world.is(job, ended).await);
        let done = world.task_states(job).await.iter().filter(|state| *state == "DONE").count();
        assert_eq!(done, accepted);
        let effects = world.store.take_messages(100).await.unwrap();
        let effects = effects.iter().filter(|one| one.topic == "append").count();
        assert_eq!(effects, accepted, "an effect for each commit and for nothing else");
        world.orchestrate().await;
        assert!(world.is(job, ended).await);
    }
}

async fn a_job_of_which_everything_is_committed_has_completed(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(2)).await;
    for task in [world.claim(worker).await, world.claim(worker).await] {
        world.commit(&task).await;
    }

    let refused = world.store.cancel(job, None).await.unwrap_err();

    assert_eq!(refused.to_string(), "the job is completed, which is final");
    assert!(world.is(job, State::Completed).await, "and it was settled on the way");
    assert_eq!(world.statuses(TaskId::new(job, 0)).await, ["DONE"]);
    assert_eq!(world.endings(job).await, ["complete"]);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_commit_before_the_cancel_is_settled_by_it(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let task = world.claim(worker).await;
    world.commit_with(&task, json!({ "segments": [1] })).await;

    world.store.cancel(job, None).await.unwrap();

    assert_eq!(world.statuses(TaskId::new(job, 0)).await, ["DONE"]);
    world.orchestrate().await;
    assert!(world.finds_nothing(worker).await, "and nothing follows from it");
    assert!(world.is(job, State::Cancelled).await);
}

async fn only_a_job_that_has_not_ended_is_cancelled(world: &World) {
    let worker = world.worker("noop").await;
    let completed = world.submit(simple()).await;
    world.work_off(worker).await;
    let failed = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.fail(&task, Kind::Permanent).await;
    world.orchestrate().await;
    let cancelled = world.submit(simple()).await;
    world.store.cancel(cancelled, None).await.unwrap();

    for (job, state) in
        [(completed, State::Completed), (failed, State::Failed), (cancelled, State::Cancelled)]
    {
        let refused = world.store.cancel(job, None).await.unwrap_err();
        assert_eq!(refused.to_string(), format!("the job is {state}, which is final"));
        assert!(matches!(refused, Error::Refused(store::Refusal::Job(Refusal::Ended(_)))));
    }
    let unknown = world.store.cancel(JobId(404), None).await;
    assert!(matches!(unknown, Err(Error::NotFound("job"))));
}

async fn a_cancel_is_refused_when_someone_was_faster(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let seen = world.store.job(job).await.unwrap().version;
    let task = world.claim(worker).await;
    world.commit_with(&task, json!({ "segments": [1] })).await;
    world.orchestrate().await;

    let stale = world.store.cancel(job, Some(seen)).await;

    assert!(matches!(stale, Err(Error::VersionMismatch { .. })), "the plan is part of the job: {stale:?}");
    let version = world.store.job(job).await.unwrap().version;
    world.store.cancel(job, Some(version)).await.unwrap();
}

async fn a_cancel_is_audited_and_told(world: &World) {
    let job = world.submit(simple()).await;

    world.store.cancel(job, None).await.unwrap();

    let audit = world.store.audit_of_job(job).await.unwrap();
    let row = audit.iter().find(|row| row.command == "cancel").unwrap();
    assert_eq!((row.role.as_str(), row.task), ("user", None));
    assert_eq!((row.from.as_deref(), row.to.as_deref()), (Some("pending"), Some("cancelled")));
    assert_eq!(world.endings(job).await, ["cancel"]);
}
