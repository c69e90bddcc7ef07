use std::time::Duration;

use rules::phase::Phase;
use serde_json::Value;
use tokio::time::Instant;

use crate::desk::Said;
use crate::scene::{Scene, turn_the_clock};

fn is_heartbeat(said: &Said) -> bool {
    matches!(said, Said::Heartbeat { .. })
}

#[tokio::test(start_paused = true)]
async fn heartbeats_go_on_while_work_does_and_tell_the_most_active_phase() {
    let scene = Scene::with_slots(2);
    let task = scene.submit_play();
    let _worker = scene.start();
    scene.play.until_begun(task).await;
    turn_the_clock(2).await;

    let before = scene.desk.count(is_heartbeat);
    turn_the_clock(300).await;

    let heard: Vec<_> = scene.desk.said().into_iter().filter(is_heartbeat).skip(before).collect();
    let working =
        Said::Heartbeat { phase: Phase::Processing, running: 1, is_draining: false, is_leaving: false };
    assert_eq!(heard, vec![working; 10], "one every 30 s");
}

#[tokio::test(start_paused = true)]
async fn becoming_busy_or_idle_is_told_soon() {
    let scene = Scene::with_slots(1);
    let _worker = scene.start();
    turn_the_clock(100).await;

    let submitted = Instant::now();
    let task = scene.submit_play();
    scene.desk.until_said(|said| matches!(said, Said::Heartbeat { running: 1, .. })).await;
    let busy_after = submitted.elapsed();
    scene.play.open(task);
    scene
        .desk
        .until("idleness", |desk| {
            matches!(
                desk.said.iter().rfind(|(_, said)| is_heartbeat(said)),
                Some((_, Said::Heartbeat { running: 0, .. }))
            )
        })
        .await;

    assert!(busy_after <= Duration::from_secs(1), "{busy_after:?}");
    assert!(submitted.elapsed() <= Duration::from_secs(3), "{:?}", submitted.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_with_short_tasks_does_not_tell_of_each() {
    let scene = Scene::with_slots(1);
    let _worker = scene.start();

    for _ in 0..200 {
        let task = scene.desk.submit("noop", Value::Null);
        scene.desk.until_done(task).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let heard = scene.desk.count(is_heartbeat);
    assert!(heard <= 12, "{heard} heartbeats in 10 s");
}
