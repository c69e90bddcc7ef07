use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rules::failure::Kind;
use tokio::time::Instant;
use worker::admission::{Admission, Gauge, Room};

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

const GIB: u64 = 1 << 30;

/// A scene of four slots, and what is free on its disk.
fn scene() -> (Scene, Arc<AtomicU64>) {
    let (mut scene, free) = (Scene::with_slots(4), Arc::new(AtomicU64::new(0)));
    let seen = free.clone();
    scene.options.admission = Admission {
        disk_reserve: GIB,
        disk_per_task: GIB,
        gauge: Gauge::new(move |_| Room { disk: Some(seen.load(Ordering::Relaxed)), memory: None }),
        ..Admission::default()
    };
    (scene, free)
}

fn claims(scene: &Scene) -> Vec<Said> {
    scene.desk.said().into_iter().filter(|said| matches!(said, Said::Claim { .. })).collect()
}

#[tokio::test(start_paused = true)]
async fn without_room_nothing_is_taken_and_with_room_it_goes_on() {
    let (scene, free) = scene();
    let task = scene.submit_play();
    let worker = scene.start();

    turn_the_clock(600).await;
    let without_room = claims(&scene);
    free.store(2 * GIB, Ordering::Relaxed);
    scene.play.until_begun(task).await;

    assert_eq!(without_room, []);
    assert!(worker.is_running());
}

#[tokio::test(start_paused = true)]
async fn no_more_is_claimed_than_there_is_room_for() {
    let (scene, free) = scene();
    free.store(3 * GIB, Ordering::Relaxed);
    let tasks: Vec<_> = (0..4).map(|_| scene.submit_play()).collect();

    let _worker = scene.start();
    scene.play.until_begun(tasks[1]).await;
    turn_the_clock(60).await;
    let with_little_room = claims(&scene);
    scene.play.open(tasks[0]);
    scene.play.until_begun(tasks[2]).await;

    assert_eq!(with_little_room, [Said::Claim { max: 2, got: 2 }]);
    assert!(!scene.play.has_begun(tasks[3]), "two are at work, and there is room for two");
}

/// Less room is reserved than a task turns out to need.
#[tokio::test(start_paused = true)]
async fn after_a_full_disk_nothing_is_taken_until_there_is_more_room() {
    let (mut scene, free) = scene();
    (scene.options.admission.disk_reserve, scene.options.admission.disk_per_task) = (0, 0);
    free.store(GIB, Ordering::Relaxed);
    scene.submit("disk full");
    let _worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Fail(_, Kind::DiskFull, ..))).await;

    let later = scene.submit_play();
    turn_the_clock(300).await;
    let without_room = scene.play.has_begun(later);
    free.store(GIB + GIB / 2, Ordering::Relaxed);
    let freed = Instant::now();
    scene.play.until_begun(later).await;

    assert!(!without_room);
    assert!(freed.elapsed().as_secs() < 60, "long before it would have tried anyway");
}

#[tokio::test(start_paused = true)]
async fn where_somebody_waits_a_full_disk_is_a_failure() {
    let (mut scene, free) = scene();
    scene.options.fails_on_full_disk = true;
    free.store(2 * GIB, Ordering::Relaxed);
    scene.submit("disk full");

    let _worker = scene.start();
    scene.desk.until_said(|said| matches!(said, Said::Fail(..))).await;

    assert_eq!(scene.desk.count(|said| matches!(said, Said::Fail(_, Kind::Transient, ..))), 1);
    scene.play.until_begun(scene.submit_play()).await;
}

#[tokio::test(start_paused = true)]
async fn tasks_that_encode_on_a_gpu_are_no_more_than_its_sessions() {
    let mut scene = Scene::with_slots(4);
    scene.options.capabilities = "gpu".parse().unwrap();
    scene.options.admission.encoder_sessions = Some(1);
    scene.play.kind = "encode";
    let tasks: Vec<_> = (0..2).map(|_| scene.desk.submit("encode", serde_json::Value::Null)).collect();

    let _worker = scene.start();
    scene.play.until_begun(tasks[0]).await;
    turn_the_clock(60).await;
    let has_begun = scene.play.has_begun(tasks[1]);
    scene.play.open(tasks[0]);
    scene.play.until_begun(tasks[1]).await;

    assert!(!has_begun);
}
