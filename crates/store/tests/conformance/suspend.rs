//! A remote worker whose reports are rejected again and again is suspended.

use crate::bounds::remote;
use crate::shop::{heartbeat, wide};
use crate::world::World;
use rules::placement::Grant;
use rules::worker::{Command, Status};
use rules::{Millis, WorkerId};
use std::collections::HashMap;
use store::alert::Kind;
use store::suspension::Rejection;
use store::worker::View;

on_both_engines![
    a_worker_is_suspended_when_too_many_reports_are_rejected,
    rejections_long_ago_do_not_count,
    a_person_lets_a_suspended_worker_go_on,
    a_local_worker_is_never_suspended,
    a_suspension_is_told_once,
    output_that_the_gate_refuses_counts_against_its_maker,
];

/// As many as the default allows.
const LIMIT: usize = 5;

async fn reject(world: &World, worker: WorkerId) -> bool {
    world.store.reject_report(worker, Rejection::BadResult, "a \u{1b}[31mred\u{1b}[0m lie").await.unwrap()
}

async fn view(world: &World, worker: WorkerId) -> View {
    let workers = world.store.workers(true).await.unwrap();
    workers.into_iter().find(|view| view.id == worker.to_string()).unwrap()
}

async fn suspended(world: &World) -> WorkerId {
    let worker = remote(world, "noop", Grant::default()).await;
    for nth in 1..=LIMIT {
        assert_eq!(reject(world, worker).await, nth == LIMIT);
    }
    worker
}

async fn a_worker_is_suspended_when_too_many_reports_are_rejected(world: &World) {
    let worker = remote(world, "noop", Grant::default()).await;
    let job = world.submit(wide(3)).await;
    let held = world.store.claim(worker, 2).await.unwrap();
    for _ in 1..LIMIT {
        assert!(!reject(world, worker).await);
        assert!(view(world, worker).await.suspended.is_none());
    }

    assert!(reject(world, worker).await);

    let seen = view(world, worker).await;
    assert_eq!(seen.status, "disabled");
    let why = seen.suspended.unwrap();
    assert_eq!(why, "5 reports were rejected, the last for a bad result: a [31mred[0m lie");
    assert!(world.store.claim(worker, 1).await.is_err(), "it gets nothing new");
    assert_eq!(world.store.heartbeat(&heartbeat(worker)).await.unwrap(), Status::Disabled);
    assert_ne!(world.commit(&held[0]).await, wire::Answer::Accepted, "its leases are gone");
    world.orchestrate().await;
    assert_eq!(world.task_states(job).await, ["READY"; 3]);
    let other = world.worker("noop").await;
    let attempts: Vec<u32> =
        world.store.claim(other, 3).await.unwrap().iter().map(|task| task.attempt).collect();
    assert_eq!(attempts, [1, 1, 1], "and used up no attempt");
    assert!(!reject(world, worker).await, "once");
}

async fn rejections_long_ago_do_not_count(world: &World) {
    let worker = remote(world, "noop", Grant::default()).await;
    for _ in 1..LIMIT {
        reject(world, worker).await;
    }
    world.turn(3_600_001);

    assert!(!reject(world, worker).await);
}

async fn a_person_lets_a_suspended_worker_go_on(world: &World) {
    let worker = suspended(world).await;
    world.submit(wide(1)).await;

    world.store.manage_worker(worker, Command::Enable).await.unwrap();

    assert!(view(world, worker).await.suspended.is_none());
    assert_eq!(world.store.claim(worker, 1).await.unwrap().len(), 1);
    assert!(!reject(world, worker).await, "it begins with a fresh count");
}

async fn a_local_worker_is_never_suspended(world: &World) {
    let worker = world.worker("noop").await;

    for _ in 0..LIMIT * 2 {
        assert!(!reject(world, worker).await);
    }

    assert_ne!(view(world, worker).await.status, "disabled");
}

async fn output_that_the_gate_refuses_counts_against_its_maker(world: &World) {
    let (maker, local) = (remote(world, "noop", Grant::default()).await, world.worker("noop").await);
    world.submit(wide(LIMIT as u32 + 1)).await;
    let mut made = world.store.claim(maker, LIMIT as u32).await.unwrap();
    made.extend(world.store.claim(local, 1).await.unwrap());
    for task in &made {
        assert_eq!(world.commit(task).await, wire::Answer::Accepted);
    }

    for (nth, task) in made.iter().enumerate() {
        let mut other = task.proof.execution();
        other.token = rules::Token(other.token.0 ^ 1);
        assert!(!world.store.reject_output(other.into(), "another token").await.unwrap());
        let is_last = nth + 1 == LIMIT;
        assert_eq!(world.store.reject_output(task.proof.execution().into(), "a gap").await.unwrap(), is_last);
    }

    let why = view(world, maker).await.suspended.unwrap();
    assert_eq!(why, "5 reports were rejected, the last for output that the gate refused: a gap");
    assert_ne!(view(world, local).await.status, "disabled");
}

async fn a_suspension_is_told_once(world: &World) {
    world.store.ask_for_alerts(&HashMap::from([(Kind::WorkerSuspended, Millis(0))])).await.unwrap();

    let worker = suspended(world).await;
    reject(world, worker).await;

    let told = world.store.take_alerts(10).await.unwrap();
    assert_eq!(told.len(), 1);
    let payload = &told[0].payload;
    assert_eq!(
        (&payload["type"], &payload["data"]["name"]),
        (&"worker_suspended".into(), &"worker-noop".into())
    );
    assert_eq!(payload["data"]["worker"], worker.to_string());
}
