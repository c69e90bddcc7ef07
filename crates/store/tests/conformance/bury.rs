//! Speaking for workers that are known to be dead.

use crate::shop::{simple, wide};
use crate::world::World;
use rules::task::Refusal;
use wire::Answer;

on_both_engines![
    what_the_dead_had_leased_is_free_at_once,
    a_lease_that_ran_out_unnoticed_is_given_back_too,
    a_worker_that_was_buried_alive_is_refused,
    with_nothing_leased_there_is_nothing_to_give_back,
];

async fn what_the_dead_had_leased_is_free_at_once(world: &World) {
    let dead = world.worker("noop").await;
    let job = world.submit(wide(3)).await;
    let held = world.store.claim(dead, 2).await.unwrap();
    world.progress(&held[0], 1).await;

    assert_eq!(world.store.bury_all_workers().await.unwrap(), 2);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY", "READY", "READY"]);
    assert!(world.tasks(job).await.iter().all(|task| task.attempts == 0), "it was not their fault");
}

async fn a_lease_that_ran_out_unnoticed_is_given_back_too(world: &World) {
    let dead = world.worker("noop").await;
    let job = world.submit(simple()).await;
    world.claim(dead).await;
    world.turn(3_600_000);

    assert_eq!(world.store.bury_all_workers().await.unwrap(), 1);
    world.orchestrate().await;

    assert_eq!(world.task_states(job).await, ["READY"]);
    assert_eq!(world.tasks(job).await[0].attempts, 0);
}

async fn a_worker_that_was_buried_alive_is_refused(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.store.bury_all_workers().await.unwrap();

    assert_eq!(world.commit(&task).await, Answer::Refused(Refusal::NotRunning));
}

async fn with_nothing_leased_there_is_nothing_to_give_back(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.commit(&task).await;

    assert_eq!(world.store.bury_all_workers().await.unwrap(), 0);
}
