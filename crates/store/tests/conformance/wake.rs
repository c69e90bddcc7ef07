//! Hints that there may be work.

use crate::shop::{commit_all, new_job, simple, spec, wide};
use crate::world::World;
use rules::WorkerId;
use rules::failure::Kind;
use serde_json::json;
use std::time::Duration;
use store::wake::Topic;
use tokio::sync::watch::Receiver;
use wire::Desk;

on_both_engines![
    a_submission_wakes_workers_of_the_same_process,
    a_commit_wakes_the_orchestrator,
    a_batch_that_is_settled_with_its_commit_wakes_listeners_alone,
    a_failure_wakes_who_judges_it,
    only_what_has_effects_wakes_who_delivers_them,
    the_end_of_a_job_wakes_listeners,
    what_comes_between_looking_and_waiting_is_not_slept_through,
    one_leads_until_it_goes,
];

// A schema of one's own hears all of its database.
on_a_whole_database![
    a_submission_wakes_workers_of_another_process,
    a_program_that_ends_at_once_wakes_others_too,
];
on_sqlite_alone![a_file_that_another_process_changed_is_looked_into];

async fn is_woken(hints: &mut Receiver<u64>) -> bool {
    tokio::time::timeout(Duration::from_secs(10), hints.changed()).await.is_ok()
}

async fn a_submission_wakes_workers_of_the_same_process(world: &World) {
    let mut hints = world.store.wake().subscribe(Topic::Ready);

    world.submit(simple()).await;

    assert!(is_woken(&mut hints).await);
}

async fn a_commit_wakes_the_orchestrator(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    let mut hints = world.store.wake().subscribe(Topic::Settle);

    world.commit(&task).await;

    assert!(is_woken(&mut hints).await);
}

async fn a_batch_that_is_settled_with_its_commit_wakes_listeners_alone(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(wide(40)).await;
    let claimed = world.store.claim(worker, 40).await.unwrap();
    let settle = world.store.wake().subscribe(Topic::Settle);
    let mut events = world.store.wake().subscribe(Topic::Event);

    commit_all(&world.store, &claimed[..20]).await;

    assert!(is_woken(&mut events).await);
    assert!(!settle.has_changed().unwrap(), "nothing is left to settle");
    commit_all(&world.store, &claimed[20..]).await;
    assert!(settle.has_changed().unwrap(), "the last moves the job on");
}

async fn a_failure_wakes_who_judges_it(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    let mut hints = world.store.wake().subscribe(Topic::Judge);

    world.fail(&task, Kind::Permanent).await;

    assert!(is_woken(&mut hints).await);
}

async fn only_what_has_effects_wakes_who_delivers_them(world: &World) {
    let worker = world.worker("noop").await;
    let stages = json!([
        { "name": "plain", "kind": "noop" },
        { "name": "told", "kind": "noop", "needs": ["plain"], "effect": { "append": "log" } },
    ]);
    world.submit(spec(stages, json!({}))).await;
    let mut hints = world.store.wake().subscribe(Topic::Deliver);

    let plain = world.claim(worker).await;
    world.commit(&plain).await;
    world.store.settle(10).await.unwrap();
    let by_the_plain_one = hints.has_changed().unwrap();
    let told = world.claim(worker).await;
    world.commit(&told).await;

    assert!(!by_the_plain_one);
    assert!(is_woken(&mut hints).await);
}

async fn the_end_of_a_job_wakes_listeners(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.commit(&task).await;
    let mut events = world.store.wake().subscribe(Topic::Event);

    world.store.settle(10).await.unwrap();

    assert!(is_woken(&mut events).await);
}

async fn what_comes_between_looking_and_waiting_is_not_slept_through(world: &World) {
    let worker: WorkerId = world.worker("noop").await;
    let desk = world.store.desk();
    assert!(!desk.has_work(worker).await.unwrap());

    world.submit(simple()).await;

    tokio::time::timeout(Duration::from_secs(10), desk.wait_for_work()).await.unwrap();
    assert!(desk.has_work(worker).await.unwrap());
    assert_eq!(desk.claim(worker, 1).await.unwrap().len(), 1);
}

async fn a_submission_wakes_workers_of_another_process(world: &World) {
    let another = world.elsewhere().await;
    let carriers = [world.store.clone(), another.clone()]
        .map(|store| tokio::spawn(async move { store.wake().run().await }));
    let mut hints = another.wake().subscribe(Topic::Ready);
    // The first hint says that the other is listening now.
    assert!(is_woken(&mut hints).await);
    hints.mark_unchanged();

    world.store.submit(&new_job(simple())).await.unwrap();

    assert!(is_woken(&mut hints).await);
    for carrier in carriers {
        carrier.abort();
    }
}

async fn a_program_that_ends_at_once_wakes_others_too(world: &World) {
    let another = world.elsewhere().await;
    let carrier = tokio::spawn({
        let another = another.clone();
        async move { another.wake().run().await }
    });
    let mut hints = another.wake().subscribe(Topic::Ready);
    // The first hint says that the other is listening now.
    assert!(is_woken(&mut hints).await);
    hints.mark_unchanged();

    world.store.submit(&new_job(simple())).await.unwrap();
    world.store.wake().send().await;

    assert!(is_woken(&mut hints).await);
    carrier.abort();
}

/// On SQLite there is one server, and it leads.
async fn one_leads_until_it_goes(world: &World) {
    let another = world.elsewhere().await;
    let mut first = world.store.try_lead("duty").await.unwrap().expect("nobody leads yet");

    let second = another.try_lead("duty").await.unwrap();
    assert_eq!(second.is_some(), !world.store.is_postgres());
    assert!(another.try_lead("another duty").await.unwrap().is_some());
    assert!(first.is_kept().await);
    drop((first, second));

    let follows = tokio::time::timeout(Duration::from_secs(10), async {
        while another.try_lead("duty").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    });
    assert!(follows.await.is_ok(), "the place of who went is free");
}

async fn a_file_that_another_process_changed_is_looked_into(world: &World) {
    let another = world.elsewhere().await;
    let hints = another.wake().subscribe(Topic::Ready);
    let carrier = tokio::spawn(async move { another.wake().run().await });

    // It only sees changes since it began to watch, so there is more than one.
    let woken = tokio::time::timeout(Duration::from_secs(10), async {
        while !hints.has_changed().unwrap() {
            world.submit(simple()).await;
        }
    });

    assert!(woken.await.is_ok());
    carrier.abort();
}
