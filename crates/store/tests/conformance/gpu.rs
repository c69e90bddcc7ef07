//! When a CPU worker leaves a task to a GPU worker.

use crate::shop::{heartbeat, spec};
use crate::world::{HEARTBEAT, World};
use rules::WorkerId;
use rules::worker::Command;
use serde_json::json;
use wire::Heartbeat;

on_both_engines![
    a_cpu_worker_leaves_fresh_tasks_to_an_idle_gpu_worker,
    it_waits_for_two_heartbeat_intervals_at_the_most,
    it_does_not_wait_for_a_gpu_worker_that_is_busy,
    it_does_not_wait_for_a_gpu_worker_that_fell_silent,
    it_does_not_wait_for_a_gpu_worker_that_cannot_do_it,
    it_does_not_wait_for_a_gpu_worker_that_takes_nothing,
    it_waits_only_where_a_gpu_is_preferred,
    deference_in_one_lane_holds_up_no_other,
];

fn encode() -> rules::spec::Spec {
    spec(json!([{ "name": "work", "kind": "encode", "prefer_gpu": true }]), json!({}))
}

async fn beat(world: &World, worker: WorkerId, running: u32) {
    world.store.heartbeat(&Heartbeat { running, ..heartbeat(worker) }).await.unwrap();
}

async fn a_cpu_worker_leaves_fresh_tasks_to_an_idle_gpu_worker(world: &World) {
    let (cpu, gpu) = (world.worker("encode").await, world.worker("encode,gpu").await);
    world.submit(encode()).await;

    assert!(world.finds_nothing(cpu).await);
    assert!(!world.store.has_work(cpu).await.unwrap());

    assert!(world.store.has_work(gpu).await.unwrap());
    world.claim(gpu).await;
}

async fn it_waits_for_two_heartbeat_intervals_at_the_most(world: &World) {
    let (cpu, gpu) = (world.worker("encode").await, world.worker("encode,gpu").await);
    world.submit(encode()).await;

    world.turn(2 * HEARTBEAT - 1);
    beat(world, gpu, 0).await;
    assert!(world.finds_nothing(cpu).await);

    world.turn(1);
    beat(world, gpu, 0).await;
    world.claim(cpu).await;
}

async fn it_does_not_wait_for_a_gpu_worker_that_is_busy(world: &World) {
    let (cpu, gpu) = (world.worker("encode").await, world.worker("encode,gpu").await);
    beat(world, gpu, 1).await;

    world.submit(encode()).await;

    world.claim(cpu).await;
}

async fn it_does_not_wait_for_a_gpu_worker_that_fell_silent(world: &World) {
    let cpu = world.worker("encode").await;
    world.worker("encode,gpu").await;
    world.turn(2 * HEARTBEAT);

    world.submit(encode()).await;

    world.claim(cpu).await;
}

async fn it_does_not_wait_for_a_gpu_worker_that_cannot_do_it(world: &World) {
    let cpu = world.worker("encode,codec:av1").await;
    world.worker("encode,gpu").await;
    let stage = json!({ "name": "work", "kind": "encode", "prefer_gpu": true, "requires": ["codec:av1"] });

    world.submit(spec(json!([stage]), json!({}))).await;

    world.claim(cpu).await;
}

async fn it_does_not_wait_for_a_gpu_worker_that_takes_nothing(world: &World) {
    let cpu = world.worker("encode").await;
    for command in [Command::Drain, Command::Disable] {
        let gpu = world.worker("encode,gpu").await;
        world.store.manage_worker(gpu, command).await.unwrap();
        beat(world, gpu, 0).await;

        world.submit(encode()).await;

        world.claim(cpu).await;
    }
}

async fn it_waits_only_where_a_gpu_is_preferred(world: &World) {
    let cpu = world.worker("encode").await;
    world.worker("encode,gpu").await;

    world.submit(spec(json!([{ "name": "work", "kind": "encode" }]), json!({}))).await;

    world.claim(cpu).await;
}

async fn deference_in_one_lane_holds_up_no_other(world: &World) {
    let cpu = world.worker("encode").await;
    world.worker("encode,gpu").await;
    let left = world.submit(encode()).await;
    let taken = world.submit(spec(json!([{ "name": "work", "kind": "encode" }]), json!({}))).await;

    let claimed = world.store.claim(cpu, 10).await.unwrap();

    assert_eq!(claimed.iter().map(|task| task.job).collect::<Vec<_>>(), [taken]);
    assert_eq!(world.task_states(left).await, ["READY"]);
}
