use std::time::Duration;

use rules::failure::Kind;
use rules::task::{Command, Refusal};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::Answer;
use worker::Summary;

use crate::desk::{LEASE, Said};
use crate::scene::{Scene, turn_the_clock};

#[tokio::test(start_paused = true)]
async fn all_leases_are_renewed_in_one_request_for_as_long_as_it_takes() {
    let scene = Scene::with_slots(3);
    let tasks: Vec<_> = (0..3).map(|_| scene.submit_play()).collect();
    let _worker = scene.start();
    scene.play.until_begun(tasks[2]).await;

    turn_the_clock(600).await;
    tasks.iter().for_each(|task| scene.play.open(*task));
    for task in &tasks {
        scene.desk.until_done(*task).await;
    }

    let renewals: Vec<_> =
        scene.desk.said().into_iter().filter(|said| matches!(said, Said::Renew(_))).collect();
    assert!(renewals.iter().all(|said| *said == Said::Renew(3)), "{renewals:?}");
    assert!((58..=62).contains(&renewals.len()), "every third of a lease: {}", renewals.len());
    assert!(tasks.iter().all(|task| scene.desk.with(|desk| desk.tasks[task].task.fence.0) == 1));
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_ends_the_work_and_nothing_is_reported() {
    let scene = Scene::with_slots(2);
    let (cancelled, other) = (scene.submit_play(), scene.submit_play());
    let worker = scene.start();
    scene.play.until_begun(other).await;

    let withdrawn = Instant::now();
    scene.desk.orchestrate(cancelled, &Command::Withdraw);
    scene.play.until_stopped(cancelled).await;
    let heard_after = withdrawn.elapsed();
    scene.play.open(other);
    scene.desk.until_done(other).await;
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert!(heard_after.as_millis() as i64 <= LEASE.0 / 3, "{heard_after:?}");
    assert_eq!(summary, Summary { done: 1, lost: 1, ..Summary::default() });
    let reports = scene
        .desk
        .count(|said| matches!(said, Said::Commit(task, _) | Said::Fail(task, ..) if *task == cancelled));
    assert_eq!(reports, 0);
}

#[tokio::test(start_paused = true)]
async fn work_that_stands_still_is_ended_and_reported_and_work_that_moves_is_not() {
    let scene = Scene::with_slots(2);
    let moving = scene.desk.submit_limited("play", json!("beat"), Some(20_000), None);
    let still = scene.desk.submit_limited("play", Value::Null, Some(20_000), None);

    let _worker = scene.start();
    scene.play.until_begun(still).await;
    let began = Instant::now();
    scene.play.until_stopped(still).await;
    let ended_after = began.elapsed();
    turn_the_clock(600).await;
    scene.play.open(moving);
    scene.desk.until_done(moving).await;

    assert!((20..22).contains(&ended_after.as_secs()), "{ended_after:?}");
    let report = Said::Fail(still, Kind::Transient, "no progress for 20s".into(), Answer::Accepted);
    assert!(scene.desk.said().contains(&report), "{:#?}", scene.desk.said());
}

#[tokio::test(start_paused = true)]
async fn work_that_may_not_stand_still_for_long_is_renewed_often_enough() {
    let scene = Scene::with_slots(1);
    let task = scene.desk.submit_limited("play", json!("beat"), Some(5_000), None);
    let _worker = scene.start();
    scene.play.until_begun(task).await;

    for _ in 0..600 {
        turn_the_clock(1).await;

        assert!(scene.desk.is_lease_live(task), "{:#?}", scene.desk.said());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_finished_cannot_stand_still() {
    let scene = Scene::with_slots(1);
    let task = scene.desk.submit_limited("play", Value::Null, Some(20_000), None);
    let _worker = scene.start();
    scene.play.until_begun(task).await;

    scene.desk.with(|desk| desk.commits_in_vain = true);
    scene.play.open(task);
    turn_the_clock(600).await;
    let is_live = scene.desk.is_lease_live(task);
    scene.desk.with(|desk| desk.commits_in_vain = false);
    scene.desk.until_done(task).await;

    assert!(is_live);
}

#[tokio::test(start_paused = true)]
async fn work_that_takes_too_long_is_ended_and_reported_whatever_its_progress() {
    let scene = Scene::with_slots(1);
    let task = scene.desk.submit_limited("play", json!("beat"), None, Some(60_000));

    let _worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Fail(..))).await;

    let message = "still running after 60s, its time limit".into();
    let report = Said::Fail(task, Kind::Transient, message, Answer::Accepted);
    assert!(scene.desk.said().contains(&report), "{:#?}", scene.desk.said());
}

#[tokio::test(start_paused = true)]
async fn work_that_the_desk_says_stands_still_is_reported_if_the_lease_still_lives() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    scene.desk.with(|desk| desk.refuses_renewals = Some(Refusal::Stalled));

    let worker = scene.start();
    scene.play.until_stopped(task).await;
    scene.desk.until_said(|said| matches!(said, Said::Fail(..))).await;
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert_eq!(summary, Summary { failed: 1, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_end_when_asked_is_dropped() {
    let scene = Scene::with_slots(1);
    let deaf = scene.submit("deaf");
    let _worker = scene.start();
    scene.play.until_begun(deaf).await;

    scene.desk.orchestrate(deaf, &Command::Withdraw);
    let next = scene.submit_play();
    let withdrawn = Instant::now();
    scene.play.until_begun(next).await;

    assert!(withdrawn.elapsed() < Duration::from_secs(20), "{:?}", withdrawn.elapsed());
}
