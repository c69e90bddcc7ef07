use rules::ExecutionId;
use rules::failure::Kind;
use rules::task::Command;
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::Answer;
use worker::Summary;

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_fails_its_task_and_the_worker_goes_on() {
    let scene = Scene::with_slots(1);
    let task = scene.submit("panic");
    let worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Fail(..))).await;

    let next = scene.desk.submit("noop", Value::Null);
    scene.desk.until_done(next).await;
    scene.shutdown.drain();
    let summary = worker.ended().await.unwrap();

    let message = "the worker broke down: a slip of the pen".into();
    assert!(scene.desk.said().contains(&Said::Fail(task, Kind::Transient, message, Answer::Accepted)));
    assert_eq!(summary, Summary { done: 1, failed: 1, ..Summary::default() });
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_as_what_it_is() {
    let scene = Scene::with_slots(3);
    let broken = scene.submit("break");
    let unknown = scene.desk.submit("juggle", Value::Null);
    let nonsense = scene.desk.submit("sleep", json!({ "hours": 8 }));

    let _worker = scene.start();
    scene
        .desk
        .until("three failures", |desk| {
            desk.said.iter().filter(|(_, said)| matches!(said, Said::Fail(..))).count() == 3
        })
        .await;

    let fail = |task, kind, message: &str| Said::Fail(task, kind, message.into(), Answer::Accepted);
    let said = scene.desk.said();
    assert!(said.contains(&fail(broken, Kind::Permanent, "a broken input")));
    assert!(said.contains(&fail(unknown, Kind::Transient, "this worker cannot do `juggle`")));
    assert!(said.contains(&fail(nonsense, Kind::Permanent, "not a payload of `sleep`: missing field `ms`")));
}

#[tokio::test(start_paused = true)]
async fn a_result_the_desk_cannot_take_fails_the_task() {
    let scene = Scene::with_slots(1);
    scene.desk.with(|desk| desk.rejects_results = true);
    let task = scene.desk.submit("noop", Value::Null);

    let _worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Fail(..))).await;

    let message = "the result was not accepted: the result is too long".into();
    assert!(scene.desk.said().contains(&Said::Fail(task, Kind::Transient, message, Answer::Accepted)));
}

#[tokio::test(start_paused = true)]
async fn the_desk_hears_that_work_began_and_how_far_it_is_but_not_too_often() {
    let scene = Scene::with_slots(1);
    let task = scene.desk.submit("sleep", json!({ "ms": 60_000 }));
    let began = Instant::now();

    let _worker = scene.start();
    scene.desk.until_done(task).await;

    let told: Vec<_> =
        scene.desk.said().into_iter().filter(|said| matches!(said, Said::Progress(..))).collect();
    assert_eq!(began.elapsed().as_secs(), 60);
    assert_eq!(told[0], Said::Progress(task, None));
    assert!((25..=31).contains(&told.len()), "every 2 s: {}", told.len());
    assert!(told.is_sorted_by_key(|said| if let Said::Progress(_, permille) = said {
        *permille
    } else {
        None
    }));
}

#[tokio::test(start_paused = true)]
async fn work_that_ends_at_once_is_one_word() {
    let scene = Scene::with_slots(1);
    let task = scene.desk.submit("noop", Value::Null);

    let _worker = scene.start();
    scene.desk.until_done(task).await;

    assert_eq!(scene.desk.count(|said| matches!(said, Said::Progress(..))), 0, "the commit implies the rest");
}

#[tokio::test(start_paused = true)]
async fn a_working_directory_lasts_as_long_as_its_execution_however_that_ends() {
    let scene = Scene::with_slots(1);
    let (done, lost, next) = (scene.submit("write"), scene.submit("write"), scene.submit_play());
    let _worker = scene.start();

    scene.play.until_begun(done).await;
    turn_the_clock(1).await;
    let during = find(scene.folder(), "half.mp4");
    scene.play.open(done);
    scene.play.until_begun(lost).await;
    scene.desk.orchestrate(lost, &Command::Withdraw);
    scene.play.until_begun(next).await;

    let folder = during.unwrap().parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    assert_eq!(folder.parse::<ExecutionId>().unwrap().short().to_string(), "1-0.1");
    assert_eq!(find(scene.folder(), "half.mp4"), None);
    assert_eq!(find(scene.folder(), &folder), None);
}

fn find(folder: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    std::fs::read_dir(folder).ok()?.flatten().find_map(|entry| match entry.file_name() == name {
        true => Some(entry.path()),
        false => find(&entry.path(), name),
    })
}
