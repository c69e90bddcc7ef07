//! Webhooks, from the decision to a receiver on a real socket.

#![allow(clippy::unwrap_used)]

mod receiver;
mod scene;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use receiver::Receiver;
use scene::{SECRET, Scene, in_time};
use sha2::Sha256;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[tokio::test]
async fn an_alert_is_signed_as_the_standard_says_and_delivered_once() {
    let mut receiver = Receiver::start([]).await;
    let scene = Scene::new(&receiver.url(), |_| {}).await;
    let worker = scene.start_worker().await;

    let got = receiver.next().await;

    let (id, at) = (got.header("webhook-id"), got.header("webhook-timestamp"));
    let mut mac =
        Hmac::<Sha256>::new_from_slice(&STANDARD.decode(&SECRET["whsec_".len()..]).unwrap()).unwrap();
    mac.update(format!("{id}.{at}.{}", got.body).as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(got.header("webhook-signature"), expected);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(now.abs_diff(at.parse().unwrap()) < 60);
    let body: serde_json::Value = serde_json::from_str(&got.body).unwrap();
    assert_eq!((&body["type"], &body["data"]["worker"]), (&"worker_startup".into(), &worker.as_str().into()));
    scene.until_delivered().await;
    assert!(receiver.heard_nothing_more());
}

#[tokio::test]
async fn a_receiver_that_fails_is_tried_again_under_the_same_id() {
    let mut receiver = Receiver::start([500, 503, 404]).await;
    let scene = Scene::new(&receiver.url(), |_| {}).await;
    scene.start_worker().await;

    let mut attempts = Vec::new();
    for _ in 0..4 {
        attempts.push(receiver.next().await);
    }

    let first = &attempts[0];
    assert!(attempts.iter().all(|got| got.header("webhook-id") == first.header("webhook-id")));
    assert!(attempts.iter().all(|got| got.body == first.body));
    scene.until_delivered().await;
    assert!(receiver.heard_nothing_more());
}

#[tokio::test]
async fn a_receiver_that_was_away_is_told_when_it_is_back() {
    let away = Receiver::start([]).await;
    let (url, address) = (away.url(), away.address);
    away.stop().await;
    let scene = Scene::new(&url, |_| {}).await;
    scene.start_worker().await;
    scene.until("the alert was tried twice", "SELECT id FROM outbox WHERE attempts >= 2").await;

    let mut back = Receiver::start_at(address, []).await;

    assert!(back.next().await.header("webhook-id").starts_with("worker_startup_"));
    scene.until_delivered().await;
}

#[tokio::test]
async fn nothing_is_sent_to_this_machine_unless_that_is_allowed() {
    let mut receiver = Receiver::start([]).await;
    let port = receiver.address.port();
    for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"] {
        let scene =
            Scene::new(&format!("http://{host}:{port}/"), |options| options.allow_private = false).await;
        scene.start_worker().await;

        scene.until("it was refused", "SELECT id FROM outbox WHERE error LIKE '%not allowed%'").await;
    }

    assert!(receiver.heard_nothing_more());
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let mut receiver = Receiver::start([302, 302]).await;
    let scene = Scene::new(&receiver.url(), |_| {}).await;
    scene.start_worker().await;

    scene
        .until("it was refused", "SELECT id FROM outbox WHERE error LIKE '%redirects are not followed'")
        .await;

    assert_eq!(receiver.next().await.path, "/hook", "and the other address was not asked");
    scene.until_delivered().await;
    while let Some(got) = receiver.heard() {
        assert_eq!(got.path, "/hook");
    }
}

#[tokio::test]
async fn an_alert_that_is_too_old_is_given_up() {
    let mut receiver = Receiver::start([500]).await;
    let scene = Scene::new(&receiver.url(), |options| options.patience = Duration::ZERO).await;
    scene.start_worker().await;

    let given_up = "SELECT id FROM outbox WHERE delivered_at IS NOT NULL AND error = 'it answered 500'";
    scene.until("it was given up", given_up).await;

    receiver.next().await;
    assert!(receiver.heard_nothing_more());
}

#[tokio::test]
async fn a_receiver_that_never_answers_delays_no_other_effect() {
    let mut receiver = Receiver::start([receiver::NEVER]).await;
    let scene = Scene::new(&receiver.url(), |_| {}).await;
    scene.start_worker().await;
    receiver.next().await;

    let file = scene.commit_with_effect().await;

    in_time("the line is there", async || std::fs::read_to_string(&file).is_ok_and(|text| !text.is_empty()))
        .await;
    let open: Vec<(i64,)> =
        scene.rows("SELECT id FROM outbox WHERE topic = 'alert' AND delivered_at IS NULL").await;
    assert_eq!(open.len(), 1, "the receiver still has not answered");
}

#[tokio::test]
async fn a_receiver_that_takes_too_long_is_tried_again() {
    let mut receiver = Receiver::start([receiver::NEVER]).await;
    let scene = Scene::new(&receiver.url(), |options| options.timeout = Duration::from_millis(100)).await;
    scene.start_worker().await;

    let (first, second) = (receiver.next().await, receiver.next().await);

    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    scene.until_delivered().await;
}
