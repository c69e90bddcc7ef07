//! The database's clock decides; and it may go wrong.

use crate::shop::{simple, wide};
use crate::world::{LEASE, World};
use rules::failure::Kind;
use rules::job::State;
use store::{Clock, Options, Store};
use wire::Answer;

on_both_engines![
    a_clock_that_is_set_back_stops_nothing,
    a_clock_that_is_set_forward_loses_no_job,
    the_database_says_what_time_it_is,
];

async fn a_clock_that_is_set_back_stops_nothing(world: &World) {
    let worker = world.worker("noop").await;
    let (cancelled, failed) = (world.submit(simple()).await, world.submit(simple()).await);
    let completed = world.submit(wide(2)).await;
    let tasks = world.store.claim(worker, 3).await.unwrap();

    world.turn(-3_600_000);
    world.store.cancel(cancelled, None).await.unwrap();
    assert_eq!(world.fail(&tasks[1], Kind::Permanent).await, Answer::Accepted);
    assert_eq!(world.renew(&tasks[2], 1).await, Answer::Accepted);
    assert_eq!(world.commit(&tasks[2]).await, Answer::Accepted);
    world.work_off(worker).await;
    world.store.mark_offline(10).await.unwrap();

    assert!(world.is(cancelled, State::Cancelled).await);
    assert!(world.is(failed, State::Failed).await);
    assert!(world.is(completed, State::Completed).await);
    let audit = world.store.audit_of_job(completed).await.unwrap();
    assert!(audit.iter().any(|row| row.command == "complete"), "{audit:?}");
}

async fn a_clock_that_is_set_forward_loses_no_job(world: &World) {
    let worker = world.worker("noop").await;
    let job = world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.turn(100 * 365 * 86_400_000);

    assert_eq!(world.commit(&task).await, Answer::Refused(rules::task::Refusal::LeaseExpired));
    assert_eq!(world.renew(&task, 1).await, Answer::Accepted, "unless someone took it back first");

    assert_eq!(world.commit(&task).await, Answer::Accepted);
    world.orchestrate().await;
    assert!(world.is(job, State::Completed).await);
}

async fn the_database_says_what_time_it_is(world: &World) {
    let options = Options { clock: Clock::Database, ..world.options() };
    let store = Store::open(&world.database.location, options).await.unwrap();
    let machine = || std::time::UNIX_EPOCH.elapsed().unwrap().as_millis() as i64;

    let before = machine();
    let read = store.db().read().await.unwrap().now().0;
    let written = store.db().write(store::Step::Manage).await.unwrap().now().0;

    // Engine, server and test share a machine here; a minute would be a unit gone wrong.
    assert!((before - LEASE..=machine() + LEASE).contains(&read), "{read}");
    assert!((before - LEASE..=machine() + LEASE).contains(&written), "{written}");
}
