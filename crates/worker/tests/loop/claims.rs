use std::time::Duration;

use rules::worker::Status;
use serde_json::Value;
use tokio::time::Instant;
use worker::{IsOver, Summary};

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

fn is_claim(said: &Said) -> bool {
    matches!(said, Said::Claim { .. })
}

fn is_look(said: &Said) -> bool {
    matches!(said, Said::HasWork)
}

#[tokio::test(start_paused = true)]
async fn free_slots_are_filled_by_one_claim_and_full_ones_claim_nothing() {
    let scene = Scene::with_slots(3);
    let tasks: Vec<_> = (0..5).map(|_| scene.submit_play()).collect();

    let _worker = scene.start();
    scene.play.until_begun(tasks[2]).await;
    turn_the_clock(60).await;
    let while_full: Vec<_> = scene.desk.said().into_iter().filter(is_claim).collect();
    scene.play.open(tasks[1]);
    scene.play.until_begun(tasks[3]).await;

    assert_eq!(while_full, [Said::Claim { max: 3, got: 3 }]);
    let claims: Vec<_> = scene.desk.said().into_iter().filter(is_claim).collect();
    assert_eq!(claims[1..], [Said::Claim { max: 1, got: 1 }], "as many as there are free slots");
    assert!(!scene.play.has_begun(tasks[4]));
}

#[tokio::test(start_paused = true)]
async fn a_worker_says_what_it_can_do() {
    let mut scene = Scene::with_slots(1);
    scene.options.capabilities = "codec:av1".parse().unwrap();

    let _worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Register(_))).await;

    assert_eq!(scene.desk.said()[0], Said::Register("codec:av1,command,noop,play,sleep".into()));
}

#[tokio::test(start_paused = true)]
async fn a_hint_ends_idleness_at_once() {
    let mut scene = Scene::with_slots(1);
    scene.options.idle_max = Duration::from_secs(3600);
    let _worker = scene.start();
    turn_the_clock(600).await;

    let submitted = Instant::now();
    let task = scene.desk.submit("noop", Value::Null);
    scene.desk.until_done(task).await;

    assert_eq!(submitted.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn work_is_found_without_hints_and_idleness_is_cheap() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.never_hints = true);
    let _worker = scene.start();
    turn_the_clock(100).await;
    let looks = scene.desk.count(is_look);

    let submitted = Instant::now();
    let task = scene.desk.submit("noop", Value::Null);
    scene.desk.until_done(task).await;

    assert!((90..150).contains(&looks), "looked {looks} times in 100 s");
    assert!(submitted.elapsed() <= scene.options.idle_max, "{:?}", submitted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn claims_and_hints_that_come_to_nothing_do_not_make_it_spin() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| (desk.always_hints, desk.always_has_work) = (true, true));
    let _worker = scene.start();
    turn_the_clock(100).await;
    let claims = scene.desk.count(is_claim);

    scene.desk.with(|desk| desk.always_has_work = false);
    turn_the_clock(100).await;

    assert!((90..150).contains(&claims), "claimed {claims} times in 100 s");
    let looks = scene.desk.count(is_look) - claims;
    assert!(looks < 2500, "looked {looks} times in 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_disabled_worker_finishes_what_it_has_and_takes_nothing_until_it_is_enabled() {
    let scene = Scene::with_slots(2);
    let first = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(first).await;
    scene.desk.with(|desk| desk.status = Some(Status::Disabled));
    turn_the_clock(31).await;

    let second = scene.submit_play();
    scene.play.open(first);
    turn_the_clock(300).await;

    assert!(scene.desk.with(|desk| desk.is_done(first)));
    assert!(!scene.play.has_begun(second));
    assert!(worker.is_running());
    scene.desk.with(|desk| desk.status = None);
    scene.play.until_begun(second).await;
}

#[tokio::test(start_paused = true)]
async fn it_ends_when_there_is_nothing_left_to_do_and_not_before() {
    let mut scene = Scene::with_slots(2);
    let desk = scene.desk.clone();
    let all_done = move || desk.with(|desk| desk.tasks.keys().all(|id| desk.is_done(*id)));
    scene.options.exit_when_idle = Some(IsOver::new(move || std::future::ready(all_done())));
    let tasks: Vec<_> = (0..3).map(|_| scene.submit_play()).collect();
    let elsewhere = tasks[2];
    let worker = scene.start();
    scene.play.until_begun(tasks[1]).await;

    scene.play.open(tasks[0]);
    scene.play.until_begun(elsewhere).await;
    scene.play.open(tasks[1]);
    turn_the_clock(60).await;
    assert!(worker.is_running());
    scene.play.open(elsewhere);

    let summary = worker.ended().await.unwrap();
    assert_eq!(summary, Summary { done: 3, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn it_does_not_end_while_it_is_at_work_itself() {
    let mut scene = Scene::with_slots(2);
    scene.options.exit_when_idle = Some(IsOver::new(|| std::future::ready(true)));
    let task = scene.submit_play();
    let worker = scene.start();

    turn_the_clock(2 * scene.options.drain_deadline.as_secs()).await;
    let is_draining = scene.desk.count(|said| matches!(said, Said::Heartbeat { is_draining: true, .. })) > 0;
    scene.play.open(task);

    assert!(!is_draining);
    assert_eq!(worker.ended().await.unwrap().done, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_short_tasks_on_several_threads_are_each_done_once() {
    let mut scene = Scene::with_slots(8);
    let desk = scene.desk.clone();
    let all_done = move || desk.with(|desk| desk.tasks.keys().all(|id| desk.is_done(*id)));
    scene.options.exit_when_idle = Some(IsOver::new(move || std::future::ready(all_done())));
    for _ in 0..2000 {
        scene.desk.submit("noop", Value::Null);
    }

    let ended = tokio::time::timeout(Duration::from_secs(60), scene.start().ended()).await;

    let summary = ended.expect("not all are done").unwrap();
    assert_eq!(summary, Summary { done: 2000, ..Summary::default() });
    assert_eq!(scene.desk.count(|said| matches!(said, Said::Commit(..))), 2000);
    let last = scene.desk.said().pop().unwrap();
    assert!(matches!(last, Said::Heartbeat { is_leaving: true, running: 0, .. }), "{last:?}");
}
