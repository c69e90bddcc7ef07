//! Messages to the outside.

use crate::shop::{commit_of, simple, spec};
use crate::world::World;
use rules::Millis;
use serde_json::json;
use std::collections::HashSet;
use store::outbox::Delivery;

on_both_engines![
    a_message_is_written_with_its_commit,
    a_message_is_taken_once,
    messages_are_taken_oldest_first,
    a_message_comes_back_when_its_deliverer_falls_silent,
    a_delivered_message_never_comes_back,
    a_message_that_could_not_be_delivered_is_postponed,
    deliverers_at_once_share_the_messages,
    delivered_messages_are_forgotten_after_a_while,
    a_store_is_idle_when_jobs_have_ended_and_messages_are_delivered,
];

/// How long a taken message stays with its deliverer.
const VISIBILITY: i64 = 60_000;

/// Leaves one message for each of `count` tasks.
async fn leave(world: &World, count: u32) {
    let worker = world.worker("noop").await;
    let stage = json!({ "name": "w", "kind": "noop", "segments": count, "effect": { "append": "log" } });
    world.submit(spec(json!([stage]), json!({}))).await;
    for task in world.store.claim(worker, count).await.unwrap() {
        world.say(commit_of(task.proof)).await;
        world.turn(1);
    }
}

async fn take(world: &World) -> Vec<Delivery> {
    world.store.take_messages(100).await.unwrap()
}

async fn a_message_is_written_with_its_commit(world: &World) {
    leave(world, 1).await;

    let taken = take(world).await;

    let [message] = taken.as_slice() else { panic!("{taken:?}") };
    let key = format!("{}/append/1-0", world.store.timeline().await.unwrap());
    assert_eq!((message.topic.as_str(), message.key.as_str()), ("append", key.as_str()));
    assert_eq!(message.payload, json!({ "path": "log", "line": "1-0" }));
    assert_eq!(message.attempt, 1);
}

async fn a_message_is_taken_once(world: &World) {
    leave(world, 3).await;

    assert_eq!(take(world).await.len(), 3);

    assert!(take(world).await.is_empty());
}

async fn messages_are_taken_oldest_first(world: &World) {
    leave(world, 30).await;

    let first = world.store.take_messages(10).await.unwrap();
    let rest = take(world).await;

    let taken: Vec<i64> = first.iter().chain(&rest).map(|one| one.id).collect();
    assert_eq!(taken.len(), 30);
    assert!(taken.is_sorted(), "{taken:?}");
}

async fn a_message_comes_back_when_its_deliverer_falls_silent(world: &World) {
    leave(world, 1).await;
    let first = take(world).await.remove(0);

    world.turn(VISIBILITY - 1);
    assert!(take(world).await.is_empty());
    world.turn(1);
    let again = take(world).await.remove(0);

    assert_eq!((again.key, again.attempt), (first.key, 2));
}

async fn a_delivered_message_never_comes_back(world: &World) {
    leave(world, 2).await;
    let ids: Vec<i64> = take(world).await.iter().map(|one| one.id).collect();

    world.store.messages_delivered(&ids).await.unwrap();
    world.store.messages_delivered(&ids).await.unwrap();

    world.turn(1_000_000_000);
    assert!(take(world).await.is_empty());
}

async fn a_message_that_could_not_be_delivered_is_postponed(world: &World) {
    leave(world, 1).await;
    for nominal in [10_000, 20_000, 40_000] {
        let message = take(world).await.remove(0);

        world.store.postpone_message(&message, "connection refused").await.unwrap();

        world.turn(nominal * 3 / 4 - 1);
        assert!(take(world).await.is_empty());
        world.turn(nominal / 2 + 1);
    }
    assert_eq!(take(world).await[0].attempt, 4);
    let error: Vec<(String,)> = world.rows("SELECT error FROM outbox").await;
    assert_eq!(error[0].0, "connection refused");
}

async fn deliverers_at_once_share_the_messages(world: &World) {
    leave(world, 40).await;
    let another = world.elsewhere().await;

    let deliverers = (0..4).map(|n| {
        let store = if n % 2 == 0 { world.store.clone() } else { another.clone() };
        tokio::spawn(async move {
            let mut got = Vec::new();
            for _ in 0..10 {
                got.extend(store.take_messages(5).await.unwrap().into_iter().map(|one| one.id));
            }
            got
        })
    });
    let mut taken = Vec::new();
    for deliverer in deliverers.collect::<Vec<_>>() {
        taken.extend(deliverer.await.unwrap());
    }

    assert_eq!(taken.len(), 40);
    assert_eq!(taken.iter().collect::<HashSet<_>>().len(), 40);
}

async fn delivered_messages_are_forgotten_after_a_while(world: &World) {
    leave(world, 3).await;
    let ids: Vec<i64> = take(world).await.iter().map(|one| one.id).collect();
    world.store.messages_delivered(&ids[..2]).await.unwrap();
    world.submit(simple()).await;

    let early = world.store.prune_messages(world.now(), 100).await.unwrap();
    let one = world.store.prune_messages(world.now() + Millis(1), 1).await.unwrap();
    let rest = world.store.prune_messages(world.now() + Millis(1), 100).await.unwrap();

    assert_eq!((early, one, rest), (0, 1, 1));
    assert_eq!(world.count("SELECT count(*) FROM outbox").await, 1, "what is not delivered stays");
}

async fn a_store_is_idle_when_jobs_have_ended_and_messages_are_delivered(world: &World) {
    assert!(world.store.is_idle().await.unwrap());
    leave(world, 1).await;
    assert!(!world.store.is_idle().await.unwrap());

    world.orchestrate().await;
    assert!(!world.store.is_idle().await.unwrap(), "nobody has been told");

    let ids: Vec<i64> = take(world).await.iter().map(|one| one.id).collect();
    world.store.messages_delivered(&ids).await.unwrap();
    assert!(world.store.is_idle().await.unwrap());
}
