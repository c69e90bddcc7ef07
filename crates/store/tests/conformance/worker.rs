//! Workers: hello, heartbeats, silence, and a person's word.

use crate::shop::{heartbeat, hello, simple};
use crate::world::{OFFLINE, World};
use rules::worker::{Command, Refusal, Status};
use rules::{Millis, WorkerId, phase::Phase};
use store::{Error, Result};
use uuid::Uuid;
use wire::Heartbeat;

on_both_engines![
    a_worker_says_hello_and_is_seen,
    saying_hello_twice_changes_nothing,
    a_heartbeat_says_what_the_worker_is_doing,
    a_worker_that_falls_silent_is_offline,
    a_worker_that_never_sent_a_heartbeat_is_found_by_its_registration,
    a_heartbeat_and_the_check_at_once_leave_the_worker_online,
    a_worker_that_dies_while_draining_is_noticed,
    a_disabled_worker_stays_disabled_until_a_person_enables_it,
    a_worker_is_back_from_offline_by_its_heartbeat,
    a_worker_that_leaves_is_offline_at_once,
    a_worker_that_nobody_knows_cannot_send_heartbeats,
    workers_that_left_long_ago_are_forgotten,
    changes_of_status_are_audited_and_heartbeats_are_not,
];

async fn status(world: &World, worker: WorkerId) -> String {
    let workers = world.store.workers(true).await.unwrap();
    workers.into_iter().find(|view| view.id == worker.to_string()).unwrap().status
}

async fn manage(world: &World, worker: WorkerId, command: Command) -> Result<Status> {
    world.store.manage_worker(worker, command).await
}

async fn a_worker_says_hello_and_is_seen(world: &World) {
    let hello = hello("noop,gpu");

    world.store.register_worker(&hello).await.unwrap();

    let seen = world.store.workers(false).await.unwrap().remove(0);
    assert_eq!(seen.id, hello.worker.to_string());
    assert_eq!((seen.status.as_str(), seen.phase.as_str()), ("active", "Startup"));
    assert_eq!((seen.name.as_str(), seen.kind.as_str()), ("worker-noop,gpu", "local"));
    assert_eq!((seen.capabilities.as_str(), seen.slots), ("gpu,noop", 4));
    assert_eq!((seen.registered_at, seen.last_heartbeat), (world.now().0, None));
}

async fn saying_hello_twice_changes_nothing(world: &World) {
    let hello = hello("noop");
    world.store.register_worker(&hello).await.unwrap();
    manage(world, hello.worker, Command::Disable).await.unwrap();

    world.store.register_worker(&hello).await.unwrap();

    assert_eq!(world.store.workers(true).await.unwrap().len(), 1);
    assert_eq!(status(world, hello.worker).await, "disabled", "it cannot enable itself");
}

async fn a_heartbeat_says_what_the_worker_is_doing(world: &World) {
    let worker = world.worker("noop").await;
    world.turn(7);

    let said = Heartbeat { phase: Phase::Processing, running: 2, done: 5, failed: 1, ..heartbeat(worker) };
    let answer = world.store.heartbeat(&said).await.unwrap();

    assert_eq!(answer, Status::Busy);
    let seen = world.store.workers(false).await.unwrap().remove(0);
    assert_eq!((seen.status.as_str(), seen.phase.as_str()), ("busy", "Processing"));
    assert_eq!((seen.running, seen.done, seen.failed), (2, 5, 1));
    assert_eq!(seen.last_heartbeat, Some(world.now().0));
    assert_eq!(world.store.heartbeat(&heartbeat(worker)).await.unwrap(), Status::Idle);
}

async fn a_worker_that_falls_silent_is_offline(world: &World) {
    let worker = world.worker("noop").await;

    world.turn(OFFLINE - 1);
    assert!(world.store.mark_offline(10).await.unwrap().is_empty());
    world.turn(1);
    assert_eq!(world.store.mark_offline(10).await.unwrap(), [worker]);

    assert_eq!(status(world, worker).await, "offline");
    assert!(world.store.workers(false).await.unwrap().is_empty());
    assert!(world.store.mark_offline(10).await.unwrap().is_empty(), "once is enough");
}

async fn a_worker_that_never_sent_a_heartbeat_is_found_by_its_registration(world: &World) {
    let hello = hello("noop");
    world.store.register_worker(&hello).await.unwrap();

    world.turn(OFFLINE);

    assert_eq!(world.store.mark_offline(10).await.unwrap(), [hello.worker]);
}

async fn a_heartbeat_and_the_check_at_once_leave_the_worker_online(world: &World) {
    let another = world.elsewhere().await;
    let worker = world.worker("noop").await;
    for _ in 0..20 {
        world.turn(OFFLINE);

        let said = heartbeat(worker);
        let (answer, marked) = tokio::join!(world.store.heartbeat(&said), another.mark_offline(10));

        assert_eq!(answer.unwrap(), Status::Idle);
        marked.unwrap();
        assert_eq!(status(world, worker).await, "idle", "whoever came first");
    }
}

async fn a_worker_that_dies_while_draining_is_noticed(world: &World) {
    let worker = world.worker("noop").await;
    let draining = Heartbeat { is_draining: true, running: 1, ..heartbeat(worker) };
    assert_eq!(world.store.heartbeat(&draining).await.unwrap(), Status::Draining);

    world.turn(OFFLINE);

    assert_eq!(world.store.mark_offline(10).await.unwrap(), [worker]);
}

async fn a_disabled_worker_stays_disabled_until_a_person_enables_it(world: &World) {
    let worker = world.worker("noop").await;
    manage(world, worker, Command::Disable).await.unwrap();

    world.turn(2 * OFFLINE);
    assert!(world.store.mark_offline(10).await.unwrap().is_empty());
    assert_eq!(world.store.heartbeat(&heartbeat(worker)).await.unwrap(), Status::Disabled);
    let leaving = Heartbeat { is_leaving: true, ..heartbeat(worker) };
    assert_eq!(world.store.heartbeat(&leaving).await.unwrap(), Status::Disabled);

    assert_eq!(manage(world, worker, Command::Enable).await.unwrap(), Status::Active);
    let refused = manage(world, worker, Command::Enable).await;
    assert!(matches!(refused, Err(Error::Refused(store::Refusal::Worker(Refusal::NothingToEnable)))));
}

async fn a_worker_is_back_from_offline_by_its_heartbeat(world: &World) {
    let worker = world.worker("noop").await;
    world.submit(simple()).await;
    world.turn(OFFLINE);
    world.store.mark_offline(10).await.unwrap();

    world.claim(worker).await;
    let busy = Heartbeat { running: 1, ..heartbeat(worker) };
    assert_eq!(world.store.heartbeat(&busy).await.unwrap(), Status::Busy);
    assert!(world.store.mark_offline(10).await.unwrap().is_empty());
}

async fn a_worker_that_leaves_is_offline_at_once(world: &World) {
    let worker = world.worker("noop").await;

    let leaving = Heartbeat { is_draining: true, is_leaving: true, ..heartbeat(worker) };
    assert_eq!(world.store.heartbeat(&leaving).await.unwrap(), Status::Offline);

    assert_eq!(status(world, worker).await, "offline");
}

async fn a_worker_that_nobody_knows_cannot_send_heartbeats(world: &World) {
    let nobody = WorkerId(Uuid::new_v4());

    assert!(matches!(world.store.heartbeat(&heartbeat(nobody)).await, Err(Error::NotFound("worker"))));
    assert!(matches!(manage(world, nobody, Command::Drain).await, Err(Error::NotFound("worker"))));
}

async fn workers_that_left_long_ago_are_forgotten(world: &World) {
    let (left, stays) = (world.worker("noop").await, world.worker("noop").await);
    let remote = wire::Hello { kind: wire::Kind::Remote, ..hello("noop") };
    world.store.register_worker(&remote).await.unwrap();
    world.store.issue_key(left).await.unwrap();
    world.submit(simple()).await;
    let task = world.claim(left).await;
    world.turn(OFFLINE);
    world.store.heartbeat(&heartbeat(stays)).await.unwrap();
    world.store.mark_offline(10).await.unwrap();

    assert_eq!(world.store.prune_workers(world.now() - Millis(OFFLINE), 10).await.unwrap(), 0);
    assert_eq!(world.store.prune_workers(world.now(), 10).await.unwrap(), 1);

    let mut kept: Vec<String> =
        world.store.workers(true).await.unwrap().into_iter().map(|one| one.id).collect();
    let mut expected = [stays, remote.worker].map(|id| id.to_string());
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected, "one that may come back with its key is kept");
    world.orchestrate().await;
    assert_eq!(world.statuses(task.proof.task).await, ["ABORTED"], "and what it had is recovered");
}

async fn changes_of_status_are_audited_and_heartbeats_are_not(world: &World) {
    let worker = world.worker("noop").await;
    world.store.heartbeat(&Heartbeat { running: 1, ..heartbeat(worker) }).await.unwrap();
    world.turn(OFFLINE);
    world.store.mark_offline(10).await.unwrap();
    world.store.heartbeat(&heartbeat(worker)).await.unwrap();
    manage(world, worker, Command::Drain).await.unwrap();

    let audit: Vec<(String, String, String, String)> =
        world.rows("SELECT role, command, coalesce(from_state, ''), to_state FROM audit ORDER BY id").await;

    let expected = [
        ("worker", "register", "", "active"),
        ("orchestrator", "check", "busy", "offline"),
        ("worker", "heartbeat", "offline", "idle"),
        ("user", "drain", "idle", "draining"),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned()));
    assert_eq!(audit, expected);
}
