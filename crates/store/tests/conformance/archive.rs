//! Ended jobs leave the hot tables.

use crate::shop::{new_job, planned, simple, wide};
use crate::world::World;
use rules::failure::Kind;
use rules::job::State;
use rules::{JobId, Millis};
use serde_json::json;
use store::submit::{NewJob, Submitted};
use store::{Error, Store};

on_both_engines![
    an_archived_job_leaves_whole_and_stays_readable,
    an_archived_job_cannot_be_changed,
    only_jobs_that_ended_long_enough_ago_are_archived,
    a_job_with_an_unsettled_commit_is_not_archived,
    archiving_goes_in_batches_and_oldest_first,
    archiving_twice_at_once_archives_once,
    ids_are_never_used_again,
    the_key_of_an_archived_job_still_means_that_job,
    archiving_and_submitting_at_once_never_makes_a_second_job,
];

async fn completed(world: &World, spec: rules::spec::Spec) -> JobId {
    let worker = world.worker("noop").await;
    let job = world.submit(spec).await;
    world.work_off(worker).await;
    assert!(world.is(job, State::Completed).await);
    job
}

async fn archive(store: &Store, before: Millis) -> usize {
    store.archive(before, 100).await.unwrap()
}

async fn an_archived_job_leaves_whole_and_stays_readable(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(planned()).await;
    let plan = world.claim(worker).await;
    world.commit_with(&plan, json!({ "segments": [1, 2, 3] })).await;
    world.work_off(worker).await;
    let before = world.store.job(job).await.unwrap();

    assert_eq!(archive(&world.store, world.now()).await, 1);

    for table in ["job", "stage", "task", "task_input", "execution"] {
        let count: &'static str = format!("SELECT count(*) FROM {table}").leak();
        assert_eq!(world.count(count).await, 0, "{table}");
    }
    let after = world.store.job(job).await.unwrap();
    assert_eq!((after.state, after.tasks, after.done), (State::Completed, 5, 5));
    assert_eq!((after.created_at, after.ended_at), (before.created_at, before.ended_at));
    assert_eq!(world.store.why(job).await.unwrap().state, State::Completed);
    assert!(!world.store.audit_of_job(job).await.unwrap().is_empty());
    let record: Vec<(String,)> = world.rows("SELECT record FROM job_archive").await;
    let record: serde_json::Value = serde_json::from_str(&record[0].0).unwrap();
    assert_eq!(record["executions"].as_array().unwrap().len(), 5);
    assert_eq!(record["plan"]["segments"], json!([1, 2, 3]));
    assert_eq!(record["spec"]["stage"].as_array().unwrap().len(), 3);
}

async fn an_archived_job_cannot_be_changed(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.fail(&task, Kind::Permanent).await;
    world.orchestrate().await;
    archive(&world.store, world.now()).await;

    let retried = world.store.retry_job(job, None).await;
    let cancelled = world.store.cancel(job, None).await;

    for refused in [retried.unwrap_err(), cancelled.unwrap_err()] {
        assert!(matches!(refused, Error::Archived(id) if id == job), "{refused}");
    }
    assert!(matches!(world.commit(&task).await, wire::Answer::Refused(_)));
    assert!(world.is(job, State::Failed).await);
}

async fn only_jobs_that_ended_long_enough_ago_are_archived(world: &World) {
    let old = completed(world, simple()).await;
    world.turn(1000);
    let young = completed(world, simple()).await;
    let open = world.submit(simple()).await;

    assert_eq!(archive(&world.store, world.now() - Millis(1)).await, 1);

    let archived: Vec<(i64,)> = world.rows("SELECT job_id FROM job_archive").await;
    assert_eq!(archived, [(old.0,)]);
    let listed = world.store.jobs(&Default::default()).await.unwrap();
    assert_eq!(listed.iter().map(|job| job.id).collect::<Vec<_>>(), [open, young]);
}

async fn a_job_with_an_unsettled_commit_is_not_archived(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(wide(2)).await;
    let (done, broken) = (world.claim(worker).await, world.claim(worker).await);
    world.commit(&done).await;
    world.fail(&broken, Kind::Permanent).await;
    world.store.judge(&[broken.proof.task]).await.unwrap();
    assert!(world.is(job, State::Failed).await);

    assert_eq!(archive(&world.store, world.now()).await, 0);

    world.orchestrate().await;
    assert_eq!(archive(&world.store, world.now()).await, 1);
}

async fn archiving_goes_in_batches_and_oldest_first(world: &World) {
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(completed(world, simple()).await.0);
        world.turn(10);
    }

    assert_eq!(world.store.archive(world.now(), 2).await.unwrap(), 2);
    let archived: Vec<(i64,)> = world.rows("SELECT job_id FROM job_archive ORDER BY job_id").await;
    assert_eq!(archived, [(jobs[0],), (jobs[1],)]);
    assert_eq!(world.store.archive(world.now(), 2).await.unwrap(), 2);
    assert_eq!(world.store.archive(world.now(), 2).await.unwrap(), 1);
    assert_eq!(world.store.archive(world.now(), 2).await.unwrap(), 0);
}

async fn archiving_twice_at_once_archives_once(world: &World) {
    for _ in 0..10 {
        completed(world, simple()).await;
    }
    let another = world.elsewhere().await;

    let (here, there) = tokio::join!(archive(&world.store, world.now()), archive(&another, world.now()));

    assert_eq!(here + there, 10);
    assert_eq!(world.count("SELECT count(*) FROM job_archive").await, 10);
}

async fn ids_are_never_used_again(world: &World) {
    let last = completed(world, simple()).await;
    archive(&world.store, world.now()).await;
    assert_eq!(world.count("SELECT count(*) FROM job").await, 0);

    let next = world.elsewhere().await.submit(&new_job(simple())).await.unwrap().id();

    assert!(next > last, "{next} after {last}");
}

/// A job with a key, ended and old enough.
async fn ended_with_key(world: &World) -> (NewJob, JobId) {
    let worker = world.worker("noop").await;
    let keyed = NewJob { idempotency_key: Some("k".into()), ..new_job(simple()) };
    let job = world.store.submit(&keyed).await.unwrap().id();
    world.work_off(worker).await;
    (keyed, job)
}

async fn the_key_of_an_archived_job_still_means_that_job(world: &World) {
    let (keyed, job) = ended_with_key(world).await;
    archive(&world.store, world.now()).await;

    let again = world.store.submit(&keyed).await.unwrap();
    let other = world.store.submit(&NewJob { spec: wide(2), ..keyed }).await;

    assert_eq!(again, Submitted::Existing(job));
    assert!(matches!(other, Err(Error::KeyReused(_))));
    assert_eq!(world.open_jobs().await, 0);
}

async fn archiving_and_submitting_at_once_never_makes_a_second_job(world: &World) {
    let another = world.elsewhere().await;
    let (keyed, job) = ended_with_key(world).await;
    for _ in 0..10 {
        let (archived, again) = tokio::join!(archive(&world.store, world.now()), another.submit(&keyed));

        assert_eq!(again.unwrap(), Submitted::Existing(job));
        if archived == 1 {
            return;
        }
    }
    panic!("nothing was archived");
}
