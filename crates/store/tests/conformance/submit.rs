//! Submitting jobs, and finding them again.

use crate::shop::{new_job, simple, spec, wide};
use crate::world::World;
use rules::JobId;
use rules::job::State;
use serde_json::json;
use std::collections::HashSet;
use store::Error;
use store::job::Filter;
use store::submit::{NewJob, Submitted};
use wire::Answer;

on_both_engines![
    the_first_stages_are_ready_at_once_and_the_rest_is_new,
    the_same_key_means_the_same_job,
    the_same_key_with_another_spec_is_an_error,
    the_same_key_for_another_video_is_an_error,
    a_key_is_kept_after_its_job_has_ended,
    two_users_may_use_the_same_key,
    sixteen_submitters_with_one_key_make_one_job,
    a_key_said_twice_in_one_batch_makes_one_job,
    a_batch_is_submitted_whole_or_not_at_all,
    jobs_submitted_at_once_from_everywhere_are_all_there,
    a_job_without_tasks_is_completed_at_once,
    a_stage_without_tasks_is_passed_over,
    jobs_are_listed_newest_first,
    jobs_are_listed_by_user_and_by_state,
    a_submission_is_audited,
    a_job_of_many_tasks_is_added_and_cancelled_as_a_whole,
];

async fn the_first_stages_are_ready_at_once_and_the_rest_is_new(world: &World) {
    let stages = json!([
        { "name": "left", "kind": "noop" },
        { "name": "right", "kind": "noop", "segments": 2 },
        { "name": "last", "kind": "noop", "needs": ["left", "right"] },
    ]);

    let job = world.submit(spec(stages, json!({}))).await;

    assert_eq!(world.task_states(job).await, ["READY", "READY", "READY", "NEW"]);
    let seen = world.store.job(job).await.unwrap();
    assert_eq!((seen.state, seen.tasks, seen.done, seen.version), (State::Pending, 4, 0, 1));
    assert_eq!(seen.created_at, world.now().0);
}

async fn the_same_key_means_the_same_job(world: &World) {
    let first = world.submit_with_key(simple(), "k").await.unwrap();

    let again = world.submit_with_key(simple(), "k").await.unwrap();

    assert_eq!(first, Submitted::New(first.id()));
    assert_eq!(again, Submitted::Existing(first.id()));
    assert_eq!(world.open_jobs().await, 1);
}

async fn the_same_key_with_another_spec_is_an_error(world: &World) {
    world.submit_with_key(simple(), "k").await.unwrap();

    let other = world.submit_with_key(wide(2), "k").await;

    assert!(matches!(&other, Err(Error::KeyReused(key)) if key == "k"), "{other:?}");
    assert_eq!(world.open_jobs().await, 1);
}

async fn the_same_key_for_another_video_is_an_error(world: &World) {
    let (a, b) = (world.video("a").await, world.video("b").await);
    let job = |video| NewJob { video: Some(video), idempotency_key: Some("k".into()), ..new_job(simple()) };
    world.store.submit(&job(a)).await.unwrap();

    let other = world.store.submit(&job(b)).await;

    assert!(matches!(other, Err(Error::KeyReused(_))), "{other:?}");
}

async fn a_key_is_kept_after_its_job_has_ended(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit_with_key(simple(), "k").await.unwrap().id();
    world.work_off(worker).await;
    assert!(world.is(job, State::Completed).await);

    let again = world.submit_with_key(simple(), "k").await.unwrap();

    assert_eq!(again, Submitted::Existing(job));
    assert!(world.finds_nothing(worker).await, "nothing is done twice");
}

async fn two_users_may_use_the_same_key(world: &World) {
    let of = |user: &str| spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "user": user }));

    let ann = world.submit_with_key(of("ann"), "k").await.unwrap();
    let bob = world.submit_with_key(of("bob"), "k").await.unwrap();

    assert!(matches!((ann, bob), (Submitted::New(_), Submitted::New(_))));
    assert_ne!(ann.id(), bob.id());
}

async fn sixteen_submitters_with_one_key_make_one_job(world: &World) {
    let elsewhere = world.elsewhere().await;
    let submitters = (0..16).map(|n| {
        let store = if n % 2 == 0 { world.store.clone() } else { elsewhere.clone() };
        let job = NewJob { idempotency_key: Some("k".into()), ..new_job(wide(20)) };
        tokio::spawn(async move { store.submit(&job).await.unwrap() })
    });

    let mut submitted = Vec::new();
    for submitter in submitters.collect::<Vec<_>>() {
        submitted.push(submitter.await.unwrap());
    }

    let ids: HashSet<JobId> = submitted.iter().map(|one| one.id()).collect();
    assert_eq!(ids.len(), 1, "{submitted:?}");
    assert_eq!(submitted.iter().filter(|one| matches!(one, Submitted::New(_))).count(), 1);
    assert_eq!(world.count("SELECT count(*) FROM task").await, 20);
}

async fn a_key_said_twice_in_one_batch_makes_one_job(world: &World) {
    let job = NewJob { idempotency_key: Some("k".into()), ..new_job(simple()) };

    let submitted = world.store.submit_all(&[job.clone(), job]).await.unwrap();

    assert_eq!(submitted[1], Submitted::Existing(submitted[0].id()));
    assert_eq!(world.open_jobs().await, 1);
}

async fn a_batch_is_submitted_whole_or_not_at_all(world: &World) {
    world.submit_with_key(simple(), "taken").await.unwrap();
    let clash = NewJob { idempotency_key: Some("taken".into()), ..new_job(wide(2)) };

    let refused = world.store.submit_all(&[new_job(simple()), clash, new_job(simple())]).await;

    assert!(matches!(refused, Err(Error::KeyReused(_))));
    assert_eq!(world.open_jobs().await, 1);
}

async fn jobs_submitted_at_once_from_everywhere_are_all_there(world: &World) {
    let elsewhere = world.elsewhere().await;
    let submitters = (0..40).map(|n| {
        let store = if n % 2 == 0 { world.store.clone() } else { elsewhere.clone() };
        // Each makes two lanes that its neighbours make too, in the other order.
        let kinds = if n % 4 < 2 { ["a", "b"] } else { ["b", "a"] };
        let stages =
            kinds.map(|kind| json!({ "name": kind, "kind": kind, "requires": [format!("x{}", n / 8)] }));
        let job = new_job(spec(json!(stages), json!({})));
        tokio::spawn(async move { store.submit(&job).await.unwrap().id() })
    });

    let mut ids = HashSet::new();
    for submitter in submitters.collect::<Vec<_>>() {
        ids.insert(submitter.await.unwrap());
    }

    assert_eq!(ids.len(), 40);
    assert_eq!(world.count("SELECT count(*) FROM task WHERE state = 'READY'").await, 80);
    assert_eq!(world.count("SELECT count(*) FROM lane").await, 10, "equal demands share a lane");
}

async fn a_job_without_tasks_is_completed_at_once(world: &World) {
    let job = world.submit(wide(0)).await;

    assert!(world.is(job, State::Completed).await);
    assert_eq!(world.open_jobs().await, 0);
}

async fn a_stage_without_tasks_is_passed_over(world: &World) {
    let stages = json!([
        { "name": "none", "kind": "noop", "segments": 0 },
        { "name": "some", "kind": "noop", "needs": ["none"] },
    ]);

    let job = world.submit(spec(stages, json!({}))).await;

    assert_eq!(world.task_states(job).await, ["READY"]);
}

async fn jobs_are_listed_newest_first(world: &World) {
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.insert(0, world.submit(simple()).await);
    }

    let first = world.store.jobs(&Filter { limit: Some(2), ..Filter::default() }).await.unwrap();
    let before = first.last().map(|job| job.id);
    let rest = world.store.jobs(&Filter { before, ..Filter::default() }).await.unwrap();

    let listed: Vec<JobId> = first.iter().chain(&rest).map(|job| job.id).collect();
    assert_eq!(listed, ids);
}

async fn jobs_are_listed_by_user_and_by_state(world: &World) {
    let of = |user: &str| spec(json!([{ "name": "work", "kind": "noop" }]), json!({ "user": user }));
    let ann = world.submit(of("ann")).await;
    let bob = world.submit(of("bob")).await;
    world.store.cancel(bob, None).await.unwrap();

    let of_ann = Filter { user: Some("ann".into()), ..Filter::default() };
    let in_state = |state| Filter { state: Some(state), ..Filter::default() };
    let of_ann = world.store.jobs(&of_ann).await.unwrap();
    let cancelled = world.store.jobs(&in_state(State::Cancelled)).await.unwrap();
    let pending = world.store.jobs(&in_state(State::Pending)).await.unwrap();

    assert_eq!(of_ann.iter().map(|job| job.id).collect::<Vec<_>>(), [ann]);
    assert_eq!(cancelled.iter().map(|job| job.id).collect::<Vec<_>>(), [bob]);
    assert_eq!(pending.iter().map(|job| job.id).collect::<Vec<_>>(), [ann]);
    assert!(world.store.jobs(&in_state(State::Failed)).await.unwrap().is_empty());
}

async fn a_submission_is_audited(world: &World) {
    let job = world.submit(simple()).await;

    let audit = world.store.audit_of_job(job).await.unwrap();

    let said: Vec<_> = audit.iter().map(|row| (row.role.as_str(), row.command.as_str())).collect();
    assert_eq!(said, [("user", "submit"), ("orchestrator", "advance")]);
}

/// More than are saved, and withdrawn, at a time.
async fn a_job_of_many_tasks_is_added_and_cancelled_as_a_whole(world: &World) {
    let stages = json!([
        { "name": "work", "kind": "noop", "segments": 21_001 },
        { "name": "join", "kind": "noop", "segments": 6_000, "needs": ["work"] },
    ]);
    let job = world.submit(spec(stages, json!({}))).await;
    let worker = world.worker("noop").await;
    let held = world.store.claim(worker, 3).await.unwrap();
    assert_eq!(world.commit(&held[0]).await, Answer::Accepted);
    let ready = "SELECT count(*) FROM task WHERE state = 'READY'";
    assert_eq!(world.count(ready).await, 20_998);
    assert_eq!(world.count("SELECT count(*) FROM task WHERE state = 'NEW'").await, 6_000);

    world.store.cancel(job, None).await.unwrap();

    assert!(world.is(job, State::Cancelled).await);
    assert_eq!(world.count("SELECT count(*) FROM task WHERE state = 'NEW'").await, 27_000);
    assert_eq!(
        world.count("SELECT CAST(sum(tasks) AS BIGINT) FROM audit WHERE command = 'advance'").await,
        21_001
    );
    assert_eq!(world.commit(&held[1]).await, Answer::Refused(rules::task::Refusal::NotRunning));
}
