use std::time::Duration;

use rules::failure::Kind;
use rules::task::{Command, Refusal};
use serde_json::Value;
use tokio::time::Instant;
use wire::Answer;
use worker::Error;

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

#[tokio::test(start_paused = true)]
async fn an_absent_desk_is_waited_for_with_patience_that_grows() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.is_away = true);
    let task = scene.desk.submit("noop", Value::Null);

    let _worker = scene.start();
    turn_the_clock(600).await;
    let tries: Vec<Instant> = scene.desk.with(|desk| desk.said.iter().map(|(at, _)| *at).collect());
    scene.desk.with(|desk| desk.is_away = false);
    let back = Instant::now();
    scene.desk.until_done(task).await;

    let waits: Vec<u64> = tries.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!((3..=6).contains(&waits[0]), "first about 5 s: {waits:?}");
    assert!(waits.iter().all(|wait| *wait <= 30) && waits.len() >= 600 / 30, "then at most 30 s: {waits:?}");
    assert!(waits[2..].iter().all(|wait| *wait >= 14), "and no stampede: {waits:?}");
    assert!(back.elapsed() <= scene.options.error_wait_max);
}

#[tokio::test(start_paused = true)]
async fn an_absent_storage_is_waited_for_with_patience_that_grows() {
    let scene = Scene::with_slots(1);
    for _ in 0..40 {
        scene.submit("storage away");
    }

    let _worker = scene.start();
    turn_the_clock(300).await;
    let given_back: Vec<Instant> = scene.desk.with(|desk| {
        let is_meant = |said: &Said| matches!(said, Said::Fail(_, Kind::StorageAway, ..));
        desk.said.iter().filter(|(_, said)| is_meant(said)).map(|(at, _)| *at).collect()
    });

    let waits: Vec<u64> = given_back.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert!((3..=6).contains(&waits[0]), "first about 5 s: {waits:?}");
    assert!(waits[2..].iter().all(|wait| (14..=30).contains(wait)), "then longer: {waits:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_in_the_middle_costs_no_work() {
    let scene = Scene::with_slots(2);
    let (kept, later) = (scene.submit_play(), scene.submit_play());
    let _worker = scene.start();
    scene.play.until_begun(later).await;

    scene.desk.with(|desk| desk.is_away = true);
    turn_the_clock(60).await;
    scene.play.open(kept);
    turn_the_clock(3600).await;
    scene.desk.with(|desk| desk.is_away = false);
    scene.desk.until_done(kept).await;
    scene.play.open(later);
    scene.desk.until_done(later).await;

    for task in [kept, later] {
        let executions = scene.desk.with(|desk| desk.tasks[&task].task.fence.0);
        assert_eq!(executions, 1, "the lease ran out, was not taken back, and was renewed");
    }
    assert!(scene.desk.with(|desk| desk.tasks[&kept].result.is_some()), "the result was kept");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_ran_out_is_renewed_for_the_sake_of_the_report() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let _worker = scene.start();
    scene.play.until_begun(task).await;

    scene.desk.with(|desk| desk.renews_in_vain = true);
    turn_the_clock(60).await;
    scene.play.open(task);
    scene.desk.until_done(task).await;

    let commits: Vec<_> =
        scene.desk.said().into_iter().filter(|said| matches!(said, Said::Commit(..))).collect();
    let late = Said::Commit(task, Answer::Refused(Refusal::LeaseExpired));
    assert_eq!(commits, [late, Said::Commit(task, Answer::Accepted)]);
}

#[tokio::test(start_paused = true)]
async fn a_lease_taken_back_during_an_outage_is_lost() {
    let scene = Scene::with_slots(1);
    let task = scene.submit_play();
    let worker = scene.start();
    scene.play.until_begun(task).await;

    scene.desk.with(|desk| desk.is_away = true);
    scene.play.open(task);
    turn_the_clock(60).await;
    scene.desk.orchestrate(task, &Command::Recover);
    scene.desk.with(|desk| desk.is_away = false);
    scene.desk.until_done(task).await;
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert_eq!(
        scene.desk.with(|desk| desk.tasks[&task].task.fence.0),
        2,
        "it was done by a second execution"
    );
    assert_eq!((summary.done, summary.lost), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_got_lost_is_a_success() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.loses_commit = true);
    let task = scene.desk.submit("noop", Value::Null);

    let worker = scene.start();
    scene.desk.until_said(|said| *said == Said::Commit(task, Answer::AlreadyAccepted)).await;
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    assert_eq!((summary.done, summary.failed, summary.lost), (1, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_never_answers_counts_as_absent() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.hangs = true);
    let _worker = scene.start();
    scene.desk.until_said(|said| *said == Said::HasWork).await;

    scene.desk.with(|desk| desk.hangs = false);
    let task = scene.desk.submit("noop", Value::Null);
    let back = Instant::now();
    scene.desk.until_done(task).await;

    assert!(back.elapsed() >= scene.options.answer_timeout);
    assert!(back.elapsed() < scene.options.answer_timeout + Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn a_desk_that_forgot_the_worker_is_told_anew() {
    let scene = Scene::with_slots(1);
    let _worker = scene.start();
    scene.desk.until_said(|said| *said == Said::HasWork).await;

    scene.desk.with(|desk| desk.is_known = false);
    let task = scene.desk.submit("noop", Value::Null);
    scene.desk.until_done(task).await;

    assert_eq!(scene.desk.count(|said| matches!(said, Said::Register(_))), 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_not_accepted_does_not_begin() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.rejects_workers = true);

    let ended = scene.start().ended().await;

    assert!(matches!(ended, Err(Error::Rejected(why)) if why == "no such key"));
    assert_eq!(scene.desk.said().len(), 1, "and says nothing more");
}
