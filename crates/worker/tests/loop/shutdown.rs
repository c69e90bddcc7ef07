use std::time::Duration;

use rules::execution::Status as Execution;
use rules::failure::Kind;
use rules::task::State;
use rules::worker::Status;
use tokio::time::Instant;
use worker::{Shutdown, Summary};

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

#[tokio::test(start_paused = true)]
async fn a_draining_worker_finishes_its_work_takes_nothing_new_and_says_goodbye() {
    let scene = Scene::with_slots(2);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    scene.shutdown.drain();
    let late = scene.submit_play();
    scene.desk.until_said(|said| matches!(said, Said::Heartbeat { is_draining: true, running: 1, .. })).await;
    turn_the_clock(60).await;
    scene.play.open(task);
    let summary = worker.ended().await.unwrap();

    assert_eq!(summary, Summary { done: 1, ..Summary::default() });
    assert!(!scene.play.has_begun(late));
    let last = scene.desk.said().pop().unwrap();
    assert!(matches!(last, Said::Heartbeat { is_leaving: true, running: 0, .. }), "{last:?}");
    assert_eq!(std::fs::read_dir(scene.folder()).unwrap().count(), 1, "only the shared lock is left");
}

#[tokio::test(start_paused = true)]
async fn what_is_unfinished_at_the_deadline_is_given_back_and_uses_up_no_attempt() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    let asked = Instant::now();
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert_eq!(asked.elapsed().as_secs(), scene.options.drain_deadline.as_secs());
    assert_eq!(summary, Summary { given_back: 1, ..Summary::default() });
    let (attempts, fence) = scene.desk.with(|desk| {
        let task = &desk.tasks[&task].task;
        (task.attempts, task.fence.0)
    });
    assert_eq!((attempts, fence), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn asked_twice_it_gives_back_at_once() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    scene.shutdown.drain();
    turn_the_clock(10).await;
    let asked = Instant::now();
    scene.shutdown.give_back();
    let summary = worker.ended().await.unwrap();

    assert!(asked.elapsed() <= Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(summary, Summary { given_back: 1, ..Summary::default() });
    assert!(scene.desk.said().iter().any(|said| matches!(said, Said::Fail(_, Kind::Drained, ..))));
}

#[tokio::test(start_paused = true)]
async fn what_was_leased_and_not_begun_is_given_back() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.holds_claims = true);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Claim { .. })).await;
    let leased = scene.desk.with(|desk| desk.tasks[&task].task.state.execution());

    scene.shutdown.drain();
    scene.desk.with(|desk| desk.holds_claims = false);
    let summary = worker.ended().await.unwrap();

    assert_eq!(leased, Some(Execution::Leased));
    assert!(!scene.play.has_begun(task));
    assert_eq!(summary, Summary { given_back: 1, ..Summary::default() });
    assert!(scene.desk.with(|desk| matches!(desk.tasks[&task].task.state, State::Error { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_worker_drains_when_the_desk_says_so_and_others_do_not() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    scene.desk.with(|desk| desk.status = Some(Status::Draining));
    turn_the_clock(31).await;
    scene.play.open(task);
    let summary = worker.ended().await.unwrap();

    assert_eq!(summary, Summary { done: 1, ..Summary::default() });
    assert!(!scene.shutdown.is_draining(), "what it was started with is others' too");
}

#[tokio::test(start_paused = true)]
async fn an_absent_desk_does_not_keep_it_from_ending() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    scene.desk.with(|desk| desk.is_away = true);
    let asked = Instant::now();
    scene.shutdown.give_back();
    let summary = worker.ended().await.unwrap();

    assert!(asked.elapsed() < Duration::from_secs(30), "{:?}", asked.elapsed());
    assert_eq!(summary, Summary { lost: 1, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_never_found_its_desk_ends_when_asked() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.is_away = true);
    let worker = scene.start();
    turn_the_clock(60).await;

    let asked = Instant::now();
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert_eq!(asked.elapsed(), Duration::ZERO);
    assert_eq!(summary, Summary::default());
}

#[tokio::test]
async fn the_first_signal_drains_and_the_second_gives_back() {
    let shutdown = Shutdown::on_signals().unwrap();
    let patience = Duration::from_secs(20);

    // SAFETY: takes no pointers; the signal's handler is tokio's, installed above.
    unsafe { libc::raise(libc::SIGTERM) };
    tokio::time::timeout(patience, shutdown.draining()).await.unwrap();
    let gives_back = tokio::time::timeout(Duration::ZERO, shutdown.giving_back()).await.is_ok();
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGINT) };

    tokio::time::timeout(patience, shutdown.giving_back()).await.unwrap();
    assert!(!gives_back, "not by the first");
}
