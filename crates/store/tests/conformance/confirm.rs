//! What a remote worker calls hopeless is tried by another before its job fails.

use crate::bounds::remote;
use crate::shop::{heartbeat, simple, spec};
use crate::world::World;
use rules::failure::Kind;
use rules::job::State;
use rules::placement::Grant;
use rules::{JobId, WorkerId};
use serde_json::json;
use store::submit::{NewJob, Submitted};
use wire::{Answer, Assignment};

on_both_engines![
    one_remote_worker_alone_fails_no_job,
    a_second_worker_confirms_a_permanent_failure,
    the_servers_own_worker_confirms_a_permanent_failure,
    a_worker_cannot_confirm_itself,
    the_only_worker_uses_up_the_attempts_so_that_the_job_ends,
    it_is_confirmed_by_another_however_often_one_has_repeated_it,
    the_word_of_a_local_worker_is_final,
    an_unconfirmed_failure_uses_up_no_attempt,
    a_rejected_result_uses_up_no_attempt_and_goes_to_another,
    a_result_that_is_always_rejected_fails_the_job_in_the_end,
    a_task_that_a_remote_worker_failed_goes_to_another,
    a_task_goes_back_to_its_worker_when_no_other_is_left,
    a_plan_that_cannot_be_used_is_made_again_by_another,
    a_plan_beyond_the_jobs_limit_is_refused_with_the_limits_name,
];

async fn remote_noop(world: &World) -> WorkerId {
    remote(world, "noop", Grant::default()).await
}

async fn try_claim(world: &World, worker: WorkerId) -> Option<Assignment> {
    world.store.heartbeat(&heartbeat(worker)).await.unwrap();
    let has_work = world.store.has_work(worker).await.unwrap();
    let claimed = world.store.claim(worker, 1).await.unwrap();
    assert_eq!(has_work, !claimed.is_empty());
    claimed.into_iter().next()
}

async fn fails(world: &World, task: &Assignment, kind: Kind) {
    assert_eq!(world.fail(task, kind).await, Answer::Accepted);
    world.orchestrate().await;
}

async fn failures(world: &World, job: JobId) -> Vec<String> {
    world.executions(job).await.into_iter().filter_map(|it| it.failure).collect()
}

async fn one_remote_worker_alone_fails_no_job(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, liar).await.unwrap(), Kind::Permanent).await;

    assert!(!world.state(job).await.is_final());
    let why = world.store.why(job).await.unwrap().reasons.join(" ");
    assert!(
        why.contains("reports a permanent failure of task") && why.contains("another worker or"),
        "{why}"
    );
    let log = world.rows::<(String,)>("SELECT message FROM job_log ORDER BY id").await;
    assert!(
        log.iter().any(|(line,)| line.contains("another worker or the server has to confirm")),
        "{log:?}"
    );
    assert!(try_claim(world, liar).await.is_none(), "it is left to the other");
    let task = try_claim(world, honest).await.unwrap();
    assert_eq!(world.commit(&task).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
    assert_eq!(world.count("SELECT max(rejections) FROM worker").await, 1, "the lie is counted");
}

async fn a_second_worker_confirms_a_permanent_failure(world: &World) {
    let (first, second) = (remote_noop(world).await, remote_noop(world).await);
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, first).await.unwrap(), Kind::Permanent).await;
    world.store.heartbeat(&heartbeat(second)).await.unwrap();
    fails(world, &try_claim(world, second).await.unwrap(), Kind::Permanent).await;

    assert!(world.is(job, State::Failed).await);
    assert_eq!(failures(world, job).await, ["unconfirmed", "permanent"]);
    assert_eq!(world.count("SELECT max(rejections) FROM worker").await, 0);
}

async fn the_servers_own_worker_confirms_a_permanent_failure(world: &World) {
    let (first, local) = (remote_noop(world).await, world.worker("noop").await);
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, first).await.unwrap(), Kind::Permanent).await;
    fails(world, &try_claim(world, local).await.unwrap(), Kind::Permanent).await;

    assert!(world.is(job, State::Failed).await);
}

/// An honest worker gives the task back in between, so that the liar gets it again.
async fn a_worker_cannot_confirm_itself(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, liar).await.unwrap(), Kind::Permanent).await;
    fails(world, &try_claim(world, honest).await.unwrap(), Kind::Drained).await;
    fails(world, &try_claim(world, liar).await.unwrap(), Kind::Permanent).await;

    assert!(!world.state(job).await.is_final());
    assert_eq!(failures(world, job).await, ["unconfirmed", "drained", "transient"]);
    world.turn(600_000);
    world.orchestrate().await;
    let task = try_claim(world, honest).await.unwrap();
    assert_eq!(task.attempt, 2, "the repeated report uses up an attempt");
    world.commit(&task).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn the_only_worker_uses_up_the_attempts_so_that_the_job_ends(world: &World) {
    let only = remote_noop(world).await;
    let two_tries = spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "max_attempts": 2 }));
    let job = world.submit(two_tries).await;

    for is_final in [false, false, true] {
        fails(world, &try_claim(world, only).await.unwrap(), Kind::Permanent).await;
        assert_eq!(world.state(job).await.is_final(), is_final);
        world.turn(600_000);
        world.orchestrate().await;
    }

    assert!(world.is(job, State::Failed).await);
    assert_eq!(failures(world, job).await, ["unconfirmed", "transient", "transient"]);
}

async fn it_is_confirmed_by_another_however_often_one_has_repeated_it(world: &World) {
    let first = remote_noop(world).await;
    let job = world.submit(simple()).await;
    for _ in 0..2 {
        fails(world, &try_claim(world, first).await.unwrap(), Kind::Permanent).await;
        world.turn(600_000);
        world.orchestrate().await;
    }

    let second = remote_noop(world).await;
    fails(world, &try_claim(world, second).await.unwrap(), Kind::Permanent).await;

    assert!(world.is(job, State::Failed).await);
    assert_eq!(failures(world, job).await, ["unconfirmed", "transient", "permanent"]);
}

async fn the_word_of_a_local_worker_is_final(world: &World) {
    let local = world.worker("noop").await;
    remote_noop(world).await;
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, local).await.unwrap(), Kind::Permanent).await;

    assert!(world.is(job, State::Failed).await);
    assert_eq!(failures(world, job).await, ["permanent"]);
}

async fn a_rejected_result_uses_up_no_attempt_and_goes_to_another(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let job = world.submit(simple()).await;

    fails(world, &try_claim(world, liar).await.unwrap(), Kind::Rejected).await;

    assert!(try_claim(world, liar).await.is_none(), "it is left to the other");
    let task = try_claim(world, honest).await.unwrap();
    assert_eq!(task.attempt, 1);
    assert_eq!(world.commit(&task).await, Answer::Accepted);
    assert_eq!(failures(world, job).await, ["rejected"]);
}

async fn a_result_that_is_always_rejected_fails_the_job_in_the_end(world: &World) {
    let worker = remote_noop(world).await;
    let job = world.submit(simple()).await;
    let (mut tries, most) = (0, rules::failure::MOST_REJECTED + 10);

    while !world.state(job).await.is_final() {
        if let Some(task) = try_claim(world, worker).await {
            fails(world, &task, Kind::Rejected).await;
            tries += 1;
            assert!(tries < most);
        }
        world.turn(600_000);
        world.orchestrate().await;
    }

    assert_eq!(world.state(job).await, State::Failed);
    assert!(tries > rules::failure::MOST_REJECTED);
}

async fn an_unconfirmed_failure_uses_up_no_attempt(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let only_try = spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "max_attempts": 1 }));
    let job = world.submit(only_try).await;

    fails(world, &try_claim(world, liar).await.unwrap(), Kind::Permanent).await;
    let task = try_claim(world, honest).await.unwrap();

    assert_eq!((task.attempt, task.max_attempts), (1, 1));
    world.commit(&task).await;
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

/// However it failed: one that gives everything back at once must not keep a task from the others.
async fn a_task_that_a_remote_worker_failed_goes_to_another(world: &World) {
    let (first, second) = (remote_noop(world).await, remote_noop(world).await);
    for kind in [Kind::Transient, Kind::Drained, Kind::StorageAway, Kind::DiskFull] {
        let job = world.submit(simple()).await;
        fails(world, &try_claim(world, first).await.unwrap(), kind).await;
        world.turn(60_000);
        world.store.heartbeat(&heartbeat(second)).await.unwrap();
        world.orchestrate().await;

        assert!(try_claim(world, first).await.is_none(), "{kind}");
        let task = try_claim(world, second).await.unwrap();
        world.commit(&task).await;
        world.orchestrate().await;
        assert!(world.is(job, State::Completed).await, "{kind}");
    }
}

async fn a_task_goes_back_to_its_worker_when_no_other_is_left(world: &World) {
    let (first, second) = (remote_noop(world).await, remote_noop(world).await);
    remote(world, "other", Grant::default()).await;
    world.submit(simple()).await;
    fails(world, &try_claim(world, first).await.unwrap(), Kind::Drained).await;
    assert!(try_claim(world, first).await.is_none());

    world.store.manage_worker(second, rules::worker::Command::Disable).await.unwrap();

    assert!(try_claim(world, first).await.is_some());
}

async fn a_plan_that_cannot_be_used_is_made_again_by_another(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let stages = json!([
        { "name": "make", "kind": "noop" },
        { "name": "work", "kind": "noop", "needs": ["make"], "expand": "make" },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;

    let task = try_claim(world, liar).await.unwrap();
    assert_ne!(world.commit_with(&task, json!("nonsense")).await, Answer::Accepted);
    world.orchestrate().await;

    assert!(!world.state(job).await.is_final());
    let task = try_claim(world, honest).await.unwrap();
    assert_eq!(world.commit_with(&task, json!({ "segments": [] })).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn a_plan_beyond_the_jobs_limit_is_refused_with_the_limits_name(world: &World) {
    let (liar, honest) = (remote_noop(world).await, remote_noop(world).await);
    let stages = json!([
        { "name": "make", "kind": "noop" },
        { "name": "work", "kind": "noop", "needs": ["make"], "expand": "make" },
    ]);
    let limited = |most| spec(stages.clone(), json!({ "max_tasks": most }));
    let job = world.submit(limited(4)).await;
    let plan = |segments: usize| json!({ "segments": vec![0; segments] });

    let task = try_claim(world, liar).await.unwrap();
    assert_ne!(world.commit_with(&task, plan(4)).await, Answer::Accepted);
    world.orchestrate().await;

    let why = world.store.why(job).await.unwrap().reasons.join(" ");
    assert!(why.contains("the job has 5 tasks, and it may have 4") && why.contains("max_job_tasks"), "{why}");
    let task = try_claim(world, honest).await.unwrap();
    assert_eq!(world.commit_with(&task, plan(3)).await, Answer::Accepted);
    world.orchestrate().await;
    assert_eq!(world.count("SELECT count(*) FROM task").await, 4);
    // The same job under another limit is the same job.
    let keyed = |most| NewJob { spec: limited(most), video: None, idempotency_key: Some("key".into()) };
    let first = world.store.submit(&keyed(10)).await.unwrap().id();
    assert_eq!(world.store.submit(&keyed(20)).await.unwrap(), Submitted::Existing(first));
}
