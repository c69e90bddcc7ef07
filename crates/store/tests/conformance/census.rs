//! How much waits, runs and works.

use crate::shop::{heartbeat, simple, spec};
use crate::world::{LEASE, World};
use rules::failure;
use serde_json::json;
use store::census::{Tasks, Workers};
use wire::Heartbeat;

on_both_engines![
    a_census_counts_tasks_by_state_and_priority,
    a_census_tells_how_busy_workers_are,
    a_census_of_nothing_is_empty,
];

fn urgent(segments: u32) -> rules::spec::Spec {
    let stages = json!([{ "name": "work", "kind": "noop", "segments": segments }]);
    spec(stages, json!({ "priority": 9 }))
}

async fn a_census_counts_tasks_by_state_and_priority(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(urgent(3)).await;
    world.submit(simple()).await;
    let began = world.now().0;
    let (running, failing) = (world.claim(worker).await, world.claim(worker).await);
    world.fail(&failing, failure::Kind::Transient).await;
    world.turn(LEASE);

    let census = world.store.census().await.unwrap();

    let mut tasks = census.tasks.clone();
    tasks.sort_by(|a, b| (&a.state, a.priority).cmp(&(&b.state, b.priority)));
    let due = world.tasks(running.job).await.iter().find_map(|task| task.due_at).unwrap();
    let of = |state: &str, priority, since| Tasks { state: state.into(), priority, count: 1, since };
    assert_eq!(
        tasks,
        [of("ERROR", 9, due), of("READY", 5, began), of("READY", 9, began), of("RUNNING", 9, began)]
    );
    assert_eq!((census.jobs.open, census.jobs.in_progress), (2, 1));
    assert_eq!((census.overdue_leases, census.at), (1, world.now()));
    world.orchestrate().await;
    assert_eq!(world.store.census().await.unwrap().overdue_leases, 0);
}

async fn a_census_tells_how_busy_workers_are(world: &World) {
    let (busy, _idle) = (world.worker("noop").await, world.worker("noop").await);
    world.store.heartbeat(&Heartbeat { running: 3, ..heartbeat(busy) }).await.unwrap();

    let census = world.store.census().await.unwrap();

    let mut workers = census.workers.clone();
    workers.sort_by(|a, b| a.status.cmp(&b.status));
    let of = |status: &str, running| Workers { status: status.into(), count: 1, slots: 4, running };
    assert_eq!(workers, [of("busy", 3), of("idle", 0)]);
    let load = census.loads.iter().find(|load| load.id == busy.to_string()).unwrap();
    assert_eq!((load.name.as_str(), load.running, load.slots), ("worker-noop", 3, 4));
}

async fn a_census_of_nothing_is_empty(world: &World) {
    let census = world.store.census().await.unwrap();

    assert!(census.tasks.is_empty() && census.workers.is_empty() && census.loads.is_empty());
    assert_eq!((census.jobs.open, census.outbox.count, census.outbox.since), (0, 0, None));
}
