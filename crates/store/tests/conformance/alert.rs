//! Alerts to the outside.

use crate::shop::{commit_of, heartbeat, hello, simple, spec};
use crate::world::{LEASE, OFFLINE, World};
use rules::backoff::Backoff;
use rules::{Millis, VideoId, failure};
use serde_json::{Value, json};
use std::collections::HashMap;
use store::alert::Kind;
use store::outbox::Delivery;
use uuid::Uuid;
use wire::{Commit, Heartbeat, Publication};

on_both_engines![
    nothing_is_written_that_nobody_asked_for,
    a_recovered_lease_is_told,
    a_job_without_attempts_left_is_told,
    a_hopeless_job_is_not_said_to_have_used_up_its_attempts,
    a_video_that_fails_again_is_told,
    a_success_breaks_the_pattern,
    a_video_that_is_ready_is_told_with_its_commit,
    workers_that_come_and_go_are_told,
    a_new_process_of_a_remote_worker_is_told_once,
    of_each_kind_one_is_told_in_its_cooldown,
    a_clock_set_back_silences_nobody,
    alerts_and_messages_are_taken_apart,
    alerts_do_not_keep_a_store_from_being_idle,
    a_message_is_given_up_when_it_is_too_old,
    who_asks_no_more_is_told_no_more,
];

async fn ask(world: &World, kinds: &[(Kind, i64)]) {
    let wanted: HashMap<Kind, Millis> = kinds.iter().map(|&(kind, ms)| (kind, Millis(ms))).collect();
    world.store.ask_for_alerts(&wanted).await.unwrap();
}

async fn ask_for_all(world: &World) {
    ask(world, &Kind::ALL.map(|kind| (kind, 0))).await;
}

async fn take(world: &World) -> Vec<Delivery> {
    world.store.take_alerts(100).await.unwrap()
}

/// The type and data of the only alert there is.
async fn only(world: &World) -> (String, Value) {
    let mut taken = take(world).await;
    assert_eq!(taken.len(), 1, "{taken:?}");
    world.store.messages_delivered(&[taken[0].id]).await.unwrap();
    let payload = taken.remove(0).payload;
    (payload["type"].as_str().unwrap().to_owned(), payload["data"].clone())
}

fn hasty(attempts: u32) -> rules::spec::Spec {
    let stages = json!([{ "name": "work", "kind": "noop" }]);
    spec(stages, json!({ "max_attempts": attempts, "backoff_initial_ms": 1, "backoff_max_ms": 1 }))
}

/// Lets a job of that video fail for good.
async fn fail_one(world: &World, video: VideoId, kind: failure::Kind) {
    let worker = world.worker("noop").await;
    world.submit_for(video, hasty(1)).await;
    let task = world.claim(worker).await;
    world.fail(&task, kind).await;
    world.orchestrate().await;
}

async fn publish(world: &World, video: VideoId) {
    let worker = world.worker("noop").await;
    world.submit_for(video, simple()).await;
    let task = world.claim(worker).await;
    let publication = Publication { video, manifest: json!({}), renditions: Vec::new() };
    world.say(Commit { publication: Some(publication), ..commit_of(task.proof) }).await;
    world.orchestrate().await;
}

async fn nothing_is_written_that_nobody_asked_for(world: &World) {
    let video = world.video("talk").await;
    publish(world, video).await;
    fail_one(world, video, failure::Kind::Transient).await;

    assert_eq!(world.count("SELECT count(*) FROM outbox WHERE topic = 'alert'").await, 0);
}

async fn a_recovered_lease_is_told(world: &World) {
    let worker = world.worker("noop").await;
    ask_for_all(world).await;
    let job = world.submit(simple()).await;
    let execution = world.claim(worker).await.proof.execution();
    world.turn(LEASE);
    world.store.recover(10).await.unwrap();

    let (kind, data) = only(world).await;

    assert_eq!(kind, "stale_job_recovered");
    let expected = json!({ "job": job, "task": format!("{job}-0"), "attempt": 1, "execution": execution,
                           "worker": worker.to_string(), "state": "READY" });
    assert_eq!(data, expected);
}

async fn a_job_without_attempts_left_is_told(world: &World) {
    let worker = world.worker("noop").await;
    ask_for_all(world).await;
    let job = world.submit(hasty(2)).await;
    for _ in 0..2 {
        let task = world.claim(worker).await;
        world.fail(&task, failure::Kind::Transient).await;
        world.turn(10);
        world.orchestrate().await;
    }

    let (kind, data) = only(world).await;

    assert_eq!((kind.as_str(), &data["job"]), ("job_max_retries_exceeded", &json!(job)));
    assert!(data["error"].as_str().unwrap().contains("the disk is full"), "{data}");
}

async fn a_hopeless_job_is_not_said_to_have_used_up_its_attempts(world: &World) {
    let worker = world.worker("noop").await;
    ask_for_all(world).await;
    world.submit(simple()).await;
    let task = world.claim(worker).await;
    world.fail(&task, failure::Kind::Permanent).await;
    world.orchestrate().await;

    assert!(take(world).await.is_empty());
}

async fn a_video_that_fails_again_is_told(world: &World) {
    let video = world.video("talk").await;
    ask(world, &[(Kind::JobFailedPattern, 0)]).await;
    fail_one(world, video, failure::Kind::Permanent).await;
    assert!(take(world).await.is_empty(), "once is no pattern");
    let job = world.store.jobs(&Default::default()).await.unwrap()[0].id;

    world.store.retry_job(job, None).await.unwrap();
    let worker = world.worker("noop").await;
    let task = world.claim(worker).await;
    world.fail(&task, failure::Kind::Permanent).await;
    world.orchestrate().await;

    let (kind, data) = only(world).await;
    assert_eq!((kind.as_str(), &data["failures"]), ("job_failed_pattern", &json!(2)));
    assert_eq!((&data["video"], &data["job"]), (&json!(video), &json!(job)));
}

async fn a_success_breaks_the_pattern(world: &World) {
    let video = world.video("talk").await;
    ask(world, &[(Kind::JobFailedPattern, 0)]).await;
    fail_one(world, video, failure::Kind::Permanent).await;
    publish(world, video).await;
    fail_one(world, video, failure::Kind::Permanent).await;

    assert!(take(world).await.is_empty());
}

async fn a_video_that_is_ready_is_told_with_its_commit(world: &World) {
    let video = world.video("talk").await;
    ask(world, &[(Kind::VideoReady, 0)]).await;
    publish(world, video).await;
    publish(world, video).await;

    let taken = take(world).await;

    let keys: Vec<_> = taken.iter().map(|one| one.key.as_str()).collect();
    let timeline = world.store.timeline().await.unwrap();
    assert_eq!(keys, [format!("video_ready_1_1_{timeline}"), format!("video_ready_1_2_{timeline}")]);
    assert_eq!(taken[0].payload["data"]["slug"], "talk");
    assert_eq!(taken[0].payload["timestamp"], "2025-11-15T09:46:40.000Z");
}

async fn workers_that_come_and_go_are_told(world: &World) {
    ask_for_all(world).await;
    let leaving = world.worker("noop").await;
    let silent = world.worker("noop").await;
    world.store.heartbeat(&Heartbeat { is_leaving: true, ..heartbeat(leaving) }).await.unwrap();
    world.turn(OFFLINE);
    world.store.mark_offline(10).await.unwrap();

    let taken = take(world).await;

    let told = taken.iter().map(|one| (one.payload["type"].clone(), one.payload["data"]["worker"].clone()));
    let [leaving, silent] = [leaving, silent].map(|id| json!(id.to_string()));
    let expected = [
        (json!("worker_startup"), leaving.clone()),
        (json!("worker_startup"), silent.clone()),
        (json!("worker_shutdown"), leaving),
        (json!("worker_shutdown"), silent),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

async fn a_new_process_of_a_remote_worker_is_told_once(world: &World) {
    ask_for_all(world).await;
    let hello = wire::Hello { kind: wire::Kind::Remote, ..hello("noop") };
    world.store.register_worker(&hello).await.unwrap();
    assert!(take(world).await.is_empty(), "nobody works yet");
    let [first, second] = [Uuid::new_v4(), Uuid::new_v4()];

    for incarnation in [first, first, second] {
        world.store.introduce_worker(&hello, incarnation).await.unwrap();
    }

    assert_eq!(take(world).await.len(), 2);
}

async fn of_each_kind_one_is_told_in_its_cooldown(world: &World) {
    ask(world, &[(Kind::WorkerStartup, 300_000), (Kind::VideoReady, 0)]).await;
    for _ in 0..3 {
        world.worker("noop").await;
    }
    assert_eq!(only(world).await.0, "worker_startup");
    let video = world.video("talk").await;
    publish(world, video).await;
    assert_eq!(only(world).await.0, "video_ready", "another kind waits for nothing");
    world.turn(299_999);
    world.worker("noop").await;
    assert!(take(world).await.is_empty());

    world.turn(1);
    world.worker("noop").await;

    let (_, data) = only(world).await;
    assert_eq!(data["suppressed"], 4, "{data}");
}

async fn a_clock_set_back_silences_nobody(world: &World) {
    ask(world, &[(Kind::WorkerStartup, 300_000)]).await;
    world.worker("noop").await;
    take(world).await;

    world.turn(-1_000_000);
    world.worker("noop").await;

    assert_eq!(world.count("SELECT count(*) FROM outbox").await, 2);
}

async fn alerts_and_messages_are_taken_apart(world: &World) {
    ask_for_all(world).await;
    let worker = world.worker("noop").await;
    let stage = json!([{ "name": "work", "kind": "noop", "effect": { "append": "log" } }]);
    world.submit(spec(stage, json!({}))).await;
    world.work_off(worker).await;

    let messages = world.store.take_messages(100).await.unwrap();
    let alerts = take(world).await;

    assert_eq!(messages.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), ["append"]);
    assert_eq!(alerts.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), ["alert"]);
}

async fn alerts_do_not_keep_a_store_from_being_idle(world: &World) {
    ask_for_all(world).await;
    world.worker("noop").await;

    assert!(world.store.is_idle().await.unwrap());
}

async fn a_message_is_given_up_when_it_is_too_old(world: &World) {
    ask_for_all(world).await;
    world.worker("noop").await;
    let patience = Millis(60_000);
    let mut attempts = 0;
    loop {
        let message = take(world).await.remove(0);
        attempts += 1;
        if world.store.postpone_or_give_up(&message, "503", Backoff::default(), patience).await.unwrap() {
            break;
        }
        world.turn(50_000);
    }

    assert_eq!(attempts, 2);
    world.turn(1_000_000);
    assert!(take(world).await.is_empty());
    let kept: Vec<(String,)> = world.rows("SELECT error FROM outbox WHERE delivered_at IS NOT NULL").await;
    assert_eq!(kept, [("503".into(),)]);
}

async fn who_asks_no_more_is_told_no_more(world: &World) {
    ask_for_all(world).await;
    world.worker("noop").await;

    ask(world, &[]).await;

    world.worker("noop").await;
    assert!(take(world).await.is_empty());
    assert_eq!(world.count("SELECT count(*) FROM outbox WHERE delivered_at IS NULL").await, 0);
}
