//! Users take turns: one's backlog does not starve the others, and nobody has more running than may.

use crate::shop::{new_job, spec};
use crate::world::World;
use rules::JobId;
use rules::spec::Spec;
use serde_json::json;
use store::{Options, Store};
use wire::Assignment;

on_both_engines![
    a_backlog_of_one_user_does_not_starve_another,
    a_higher_priority_is_served_first_whoever_asks,
    turns_are_taken_over_all_kinds_of_work,
    nobody_has_more_running_than_may,
    two_who_claim_at_once_keep_to_the_limit,
];

fn of(user: &str, segments: u32, more: serde_json::Value) -> Spec {
    let mut all = json!({ "user": user });
    all.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    spec(json!([{ "name": "work", "kind": "noop", "segments": segments }]), all)
}

fn jobs(claimed: &[Assignment]) -> Vec<JobId> {
    claimed.iter().map(|one| one.job).collect()
}

async fn a_backlog_of_one_user_does_not_starve_another(world: &World) {
    let worker = world.worker("noop").await;
    let many = world.submit(of("ann", 100, json!({}))).await;
    world.turn(10);
    let first = world.store.claim(worker, 3).await.unwrap();
    let few = world.submit(of("bob", 2, json!({}))).await;

    let second = world.store.claim(worker, 3).await.unwrap();
    let third = world.store.claim(worker, 3).await.unwrap();

    assert_eq!(jobs(&first), [many; 3]);
    assert_eq!(jobs(&second), [few, few, many], "who has least running is served first");
    assert_eq!(jobs(&third), [many; 3]);
}

async fn a_higher_priority_is_served_first_whoever_asks(world: &World) {
    let worker = world.worker("noop").await;
    let urgent = world.submit(of("ann", 3, json!({ "priority": 9 }))).await;
    let other = world.submit(of("bob", 3, json!({}))).await;

    let claimed = world.store.claim(worker, 4).await.unwrap();

    assert_eq!(jobs(&claimed), [urgent, urgent, urgent, other]);
}

async fn turns_are_taken_over_all_kinds_of_work(world: &World) {
    let worker = world.worker("noop,encode").await;
    let many = world.submit(of("ann", 50, json!({}))).await;
    let stages = json!([{ "name": "work", "kind": "encode", "segments": 50 }]);
    let more = world.submit(spec(stages, json!({ "user": "ann" }))).await;
    world.turn(10);
    let few = world.submit(of("bob", 2, json!({}))).await;

    let claimed = jobs(&world.store.claim(worker, 4).await.unwrap());

    assert_eq!(claimed.iter().filter(|job| **job == few).count(), 2, "{claimed:?} of {many:?}, {more:?}");
}

/// The same database, with a limit.
async fn limited(world: &World, most: u32) -> Store {
    let options = Options { max_running_per_user: Some(most), ..world.options() };
    Store::open(&world.database.location, options).await.unwrap()
}

async fn nobody_has_more_running_than_may(world: &World) {
    let worker = world.worker("noop").await;
    let many = world.submit(of("ann", 10, json!({}))).await;
    world.submit(of("bob", 1, json!({}))).await;
    let store = limited(world, 2).await;

    let claimed = store.claim(worker, 10).await.unwrap();
    let none = store.claim(worker, 10).await.unwrap();
    let why = store.why(many).await.unwrap().reasons.join(" ");

    assert_eq!((claimed.len(), none.len()), (3, 0));
    assert!(!store.has_work(worker).await.unwrap());
    assert!(why.contains("its user has 2 running, as many as may"), "{why}");
    world.commit(&claimed[0]).await;
    assert!(store.has_work(worker).await.unwrap());
    assert_eq!(store.claim(worker, 10).await.unwrap().len(), 1);
    store.close().await;
}

async fn two_who_claim_at_once_keep_to_the_limit(world: &World) {
    let workers = [world.worker("noop").await, world.worker("noop").await, world.worker("noop").await];
    world.store.submit(&new_job(of("ann", 30, json!({})))).await.unwrap();
    let store = limited(world, 4).await;

    let claims = workers.map(|worker| {
        let store = store.clone();
        tokio::spawn(async move { store.claim(worker, 3).await.unwrap().len() })
    });
    let mut taken = 0;
    for claim in claims {
        taken += claim.await.unwrap();
    }

    assert_eq!(taken, 4);
    store.close().await;
}
