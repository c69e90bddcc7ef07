//! Failures, backoff and attempts.

use crate::shop::{failure_of, simple, spec, wide};
use crate::world::{LEASE, World};
use rules::failure::{FREE_RELEASES, Kind, MOST_SPARED};
use rules::job::State;
use rules::{JobId, WorkerId};
use serde_json::json;
use wire::Answer;

on_both_engines![
    a_transient_failure_is_tried_again_after_its_backoff,
    the_backoff_doubles,
    a_job_has_its_own_backoff,
    a_permanent_failure_ends_the_job_with_the_reason,
    three_attempts_are_three_executions,
    one_attempt_is_one_execution,
    a_poison_pill_ends_in_failed,
    draining_uses_no_attempt,
    a_storage_that_is_away_uses_no_attempt_and_is_waited_for,
    a_full_disk_of_a_worker_uses_no_attempt_and_is_waited_for,
    a_task_is_not_spared_for_ever,
    a_task_that_is_given_back_again_and_again_waits_and_fails_in_the_end,
    a_failure_that_a_later_version_named_is_tried_again,
    a_job_goes_on_without_an_optional_stage,
    an_optional_stage_keeps_what_it_has_done,
    a_failed_job_takes_its_other_tasks_back,
    judging_and_retrying_twice_at_once_counts_once,
];

/// A job of one task, and its first execution failed.
async fn failed_once(world: &World, spec: rules::spec::Spec, kind: Kind) -> (WorkerId, JobId) {
    let worker = world.worker("noop").await;
    let job = world.submit(spec).await;
    let task = world.claim(worker).await;
    assert_eq!(world.fail(&task, kind).await, Answer::Accepted);
    (worker, job)
}

async fn delay(world: &World, job: JobId) -> i64 {
    world.tasks(job).await[0].due_at.unwrap() - world.now().0
}

async fn a_transient_failure_is_tried_again_after_its_backoff(world: &World) {
    let (worker, job) = failed_once(world, simple(), Kind::Transient).await;
    assert_eq!(world.task_states(job).await, ["ERROR"]);
    let delay = delay(world, job).await;
    assert!((7_500..=12_500).contains(&delay), "10 s, give or take: {delay}");

    world.turn(delay - 1);
    world.orchestrate().await;
    assert!(world.finds_nothing(worker).await);

    world.turn(1);
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["READY"]);
    assert_eq!(world.claim(worker).await.attempt, 2);
}

async fn the_backoff_doubles(world: &World) {
    let many = spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "max_attempts": 10 }));
    let (worker, job) = failed_once(world, many, Kind::Transient).await;

    for nominal in [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
        let delay = delay(world, job).await;
        assert!((nominal * 3 / 4..=(nominal * 5 / 4).min(300_000)).contains(&delay), "{nominal}: {delay}");
        world.turn(delay);
        world.orchestrate().await;
        let task = world.claim(worker).await;
        world.fail(&task, Kind::Transient).await;
    }
}

async fn a_job_has_its_own_backoff(world: &World) {
    let hasty = json!({ "backoff_initial_ms": 100, "backoff_max_ms": 100 });
    let hasty = spec(json!([{ "name": "work", "kind": "noop" }]), hasty);

    let (_, job) = failed_once(world, hasty, Kind::Transient).await;

    assert!((75..=100).contains(&delay(world, job).await));
}

async fn a_permanent_failure_ends_the_job_with_the_reason(world: &World) {
    let (_, job) = failed_once(world, simple(), Kind::Permanent).await;
    assert!(world.is(job, State::Pending).await, "what it means is the orchestrator's to say");

    world.orchestrate().await;

    let seen = world.store.job(job).await.unwrap();
    assert_eq!(seen.state, State::Failed);
    assert_eq!(seen.error, Some(format!("stage work, task {job}-0: the disk is full")));
    assert_eq!(world.executions(job).await.len(), 1);
    assert_eq!(world.audited(rules::TaskId::new(job, 0)).await, ["advance", "claim", "fail", "judge"]);
}

/// Fails until nothing is left to claim; how many executions there were.
async fn fail_on(world: &World, attempts: u32) -> (JobId, usize) {
    let worker = world.worker("noop").await;
    let stages = json!([{ "name": "work", "kind": "noop" }]);
    let job = world.submit(spec(stages, json!({ "max_attempts": attempts }))).await;
    while let [task] = world.store.claim(worker, 1).await.unwrap().as_slice() {
        world.fail(task, Kind::Transient).await;
        world.turn(400_000);
        world.orchestrate().await;
    }
    (job, world.executions(job).await.len())
}

async fn three_attempts_are_three_executions(world: &World) {
    let (job, executions) = fail_on(world, 3).await;

    assert_eq!(executions, 3);
    assert!(world.is(job, State::Failed).await);
    assert_eq!(world.tasks(job).await[0].attempts, 3);
}

async fn one_attempt_is_one_execution(world: &World) {
    let (job, executions) = fail_on(world, 1).await;

    assert_eq!(executions, 1);
    assert!(world.is(job, State::Failed).await);
}

async fn a_poison_pill_ends_in_failed(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;

    // It takes down every worker that touches it.
    while let [_] = world.store.claim(worker, 1).await.unwrap().as_slice() {
        world.turn(LEASE);
        world.orchestrate().await;
    }

    assert_eq!(world.executions(job).await.len(), 3);
    let seen = world.store.job(job).await.unwrap();
    assert_eq!(seen.state, State::Failed);
    let error = seen.error.unwrap();
    assert!(error.contains("its worker died or fell silent 3 times while working on it"), "{error}");
}

async fn draining_uses_no_attempt(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;

    for _ in 0..5 {
        let task = world.claim(worker).await;
        assert_eq!(task.attempt, 1);
        world.fail(&task, Kind::Drained).await;
        world.orchestrate().await;
    }

    let task = world.claim(worker).await;
    assert_eq!(world.executions(job).await.len(), 6);
    assert_eq!(world.tasks(job).await[0].attempts, 1);
    world.commit(&task).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_storage_that_is_away_uses_no_attempt_and_is_waited_for(world: &World) {
    is_waited_for(world, Kind::StorageAway, "waits for the storage").await;
}

async fn a_full_disk_of_a_worker_uses_no_attempt_and_is_waited_for(world: &World) {
    is_waited_for(world, Kind::DiskFull, "was full when it worked on task").await;
}

async fn is_waited_for(world: &World, kind: Kind, reason: &str) {
    let (worker, job) = failed_once(world, simple(), kind).await;

    for nominal in [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
        let delay = delay(world, job).await;
        assert!((nominal * 3 / 4..=nominal * 5 / 4).contains(&delay), "{nominal}: {delay}");
        let why = world.store.why(job).await.unwrap().reasons.join(" ");
        assert!(why.contains(reason) && why.contains("none of its 3 attempts"), "{why}");
        world.turn(delay);
        world.orchestrate().await;
        let task = world.claim(worker).await;
        assert_eq!(task.attempt, 1);
        world.fail(&task, kind).await;
    }

    world.turn(delay(world, job).await);
    world.orchestrate().await;
    let task = world.claim(worker).await;
    assert_eq!(world.tasks(job).await[0].attempts, 1);
    let executions = world.executions(job).await;
    let spared = executions.iter().filter(|it| it.failure.as_deref() == Some(kind.as_str()));
    assert_eq!(spared.count(), 8);
    world.commit(&task).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

/// A worker may be wrong about whose fault it is.
async fn a_task_is_not_spared_for_ever(world: &World) {
    let quick = json!({ "backoff_initial_ms": 1, "backoff_max_ms": 1 });
    let (worker, job) =
        failed_once(world, spec(json!([{ "name": "work", "kind": "noop" }]), quick), Kind::StorageAway).await;

    for kind in [Kind::DiskFull, Kind::StorageAway].into_iter().cycle().take(MOST_SPARED as usize + 2) {
        world.turn(1);
        world.orchestrate().await;
        world.fail(&world.claim(worker).await, kind).await;
    }

    world.orchestrate().await;
    let counted = world.executions(job).await;
    let counted = counted.iter().filter(|it| it.failure.as_deref() == Some("transient")).count();
    assert_eq!((counted, world.tasks(job).await[0].attempts), (3, 3));
    assert!(world.is(job, State::Failed).await);
}

/// As a rolling restart does a few times, and a hostile worker for ever.
async fn a_task_that_is_given_back_again_and_again_waits_and_fails_in_the_end(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;

    for _ in 0..FREE_RELEASES {
        world.fail(&world.claim(worker).await, Kind::Drained).await;
        world.orchestrate().await;
    }
    for nominal in [10_000, 20_000, 40_000] {
        world.fail(&world.claim(worker).await, Kind::Drained).await;
        world.orchestrate().await;
        assert!(world.finds_nothing(worker).await, "it waits");
        world.turn(nominal * 5 / 4);
        world.orchestrate().await;
    }
    let mut releases = FREE_RELEASES + 3;
    while !world.state(job).await.is_final() {
        let task = world.claim(worker).await;
        assert_eq!(task.attempt, 1 + releases.saturating_sub(MOST_SPARED));
        world.fail(&task, Kind::Drained).await;
        world.turn(300_000);
        world.orchestrate().await;
        releases += 1;
    }

    assert_eq!((world.state(job).await, releases), (State::Failed, MOST_SPARED + 3));
}

fn with_captions() -> rules::spec::Spec {
    let stages = json!([
        { "name": "captions", "kind": "noop", "optional": true, "segments": 2 },
        { "name": "package", "kind": "noop", "needs": ["captions"] },
    ]);
    spec(stages, json!({}))
}

/// In a rolling upgrade, when the newer server has written it and this one goes on.
async fn a_failure_that_a_later_version_named_is_tried_again(world: &World) {
    let (worker, job) = failed_once(world, simple(), Kind::StorageAway).await;
    world.execute("UPDATE task SET failure = 'quota_gone'").await.unwrap();
    world.execute("UPDATE execution_aborted SET failure = 'quota_gone'").await.unwrap();
    assert_eq!(world.tasks(job).await[0].failure.as_deref(), Some("quota_gone"), "shown as it is");

    world.turn(400_000);
    world.orchestrate().await;

    let task = world.claim(worker).await;
    assert_eq!((task.attempt, world.commit(&task).await), (1, Answer::Accepted));
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_job_goes_on_without_an_optional_stage(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(with_captions()).await;
    let captions = world.store.claim(worker, 2).await.unwrap();

    world.fail(&captions[0], Kind::Permanent).await;
    world.orchestrate().await;
    assert!(world.finds_nothing(worker).await, "the other may still succeed");
    world.fail(&captions[1], Kind::Permanent).await;
    world.orchestrate().await;

    assert_eq!(world.claim(worker).await.stage, "package");
    assert_eq!(world.task_states(job).await, ["ERROR", "ERROR", "RUNNING"]);
}

async fn an_optional_stage_keeps_what_it_has_done(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(with_captions()).await;
    let captions = world.store.claim(worker, 2).await.unwrap();

    world.commit(&captions[0]).await;
    world.fail(&captions[1], Kind::Permanent).await;
    world.work_off(worker).await;

    assert_eq!(world.task_states(job).await, ["DONE", "ERROR", "DONE"]);
    assert!(world.is(job, State::Completed).await);
    let stages = world.store.stages_of_job(job).await.unwrap();
    assert_eq!((stages[0].open, stages[0].failed), (0, 1));
}

async fn a_failed_job_takes_its_other_tasks_back(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(4)).await;
    let tasks = world.store.claim(worker, 3).await.unwrap();
    world.commit(&tasks[0]).await;

    world.fail(&tasks[1], Kind::Permanent).await;
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["DONE", "ERROR", "NEW", "NEW"]);
    assert_eq!(world.latest(tasks[2].proof.task).await.failure.as_deref(), Some("withdrawn"));
    assert!(matches!(world.commit(&tasks[2]).await, Answer::Refused(_)));
    assert!(world.finds_nothing(worker).await);
}

async fn judging_and_retrying_twice_at_once_counts_once(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(with_captions()).await;
    let retried = world.submit(wide(20)).await;
    let failures: Vec<_> = world
        .store
        .claim(worker, 22)
        .await
        .unwrap()
        .iter()
        .map(|task| {
            let kind = if task.job == job { Kind::Permanent } else { Kind::Transient };
            failure_of(task.proof, kind, "")
        })
        .collect();
    world.store.fail(&failures).await.unwrap();
    world.turn(12_500);
    let another = world.elsewhere().await;
    let due = world.store.due(100).await.unwrap();
    assert_eq!((due.retries.len(), due.verdicts.len()), (20, 2));

    let retries = async { tokio::join!(world.store.retry(&due.retries), another.retry(&due.retries)) };
    let verdicts = async { tokio::join!(world.store.judge(&due.verdicts), another.judge(&due.verdicts)) };
    let ((here, there), (judged, again)) = tokio::join!(retries, verdicts);

    assert!(here.unwrap() + there.unwrap() <= 20);
    assert!(judged.unwrap() + again.unwrap() <= 2);
    world.orchestrate().await;
    assert_eq!(world.count("SELECT CAST(sum(tasks) AS BIGINT) FROM audit WHERE command = 'retry'").await, 20);
    assert_eq!(world.store.stages_of_job(job).await.unwrap()[0].failed, 2);
    assert_eq!(world.store.job(retried).await.unwrap().done, 0);
}
