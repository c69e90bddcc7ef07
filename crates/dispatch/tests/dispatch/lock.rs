use crate::scene::{Scene, Server, until, within};
use dispatch::lock::Lock;
use dispatch::{Mode, lead};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(600);

#[tokio::test]
async fn a_lock_has_one_holder_at_a_time_and_its_fence_grows() {
    let scene = Scene::new();
    let (one, other) = (scene.redis(Mode::Redis).await, scene.redis(Mode::Redis).await);
    let (one, other) = (Lock::new(&one, "x", LONG), Lock::new(&other, "x", LONG));

    let first = one.try_acquire().await.unwrap().unwrap();
    assert!(first.is_held());
    assert!(other.try_acquire().await.unwrap().is_none());
    let before = first.fence();
    assert!(first.release().await.unwrap());

    let second = other.try_acquire().await.unwrap().unwrap();
    assert!(second.fence() > before);
}

#[tokio::test]
async fn a_lock_is_kept_for_longer_than_its_time_and_ends_with_its_holder() {
    let scene = Scene::new();
    let redis = scene.redis(Mode::Redis).await;
    let lock = Lock::new(&redis, "x", SHORT);
    let held = lock.try_acquire().await.unwrap().unwrap();

    tokio::time::sleep(3 * SHORT).await;
    assert!(held.is_held());
    assert!(lock.try_acquire().await.unwrap().is_none());
    // As in a crash: nobody gives it back.
    drop(held);

    until("its time is over", async || lock.try_acquire().await.unwrap().is_some()).await;
}

#[tokio::test]
async fn who_lost_a_lock_is_told_and_takes_nothing_from_the_next() {
    let scene = Scene::new();
    let redis = scene.redis(Mode::Redis).await;
    let lock = Lock::new(&redis, "x", SHORT);
    let mut first = lock.try_acquire().await.unwrap().unwrap();

    // Redis forgets, by FLUSHALL or a fail-over; and another is quicker.
    scene.ask::<()>(&["DEL", &format!("{}lock:x", scene.prefix), &format!("{}fence:x", scene.prefix)]).await;
    let second = lock.try_acquire().await.unwrap().unwrap();

    within("the first is told", first.lost()).await;
    assert!(!first.is_held());
    assert!(second.fence() > first.fence(), "though the last fence was forgotten, too");
    assert!(!first.release().await.unwrap());
    assert!(second.is_held());
    assert!(lock.try_acquire().await.unwrap().is_none(), "the second's is still there");
}

#[tokio::test]
async fn a_holder_without_redis_is_told_when_its_time_is_over() {
    let server = Server::start(&[]);
    let scene = Scene::at(server.url());
    let redis = scene.redis(Mode::Redis).await;
    let mut held = Lock::new(&redis, "x", SHORT).try_acquire().await.unwrap().unwrap();

    server.run("stop", &["KILL"]);

    within("it is told", held.lost()).await;
}

#[tokio::test]
async fn one_of_two_leads_and_the_other_follows_when_it_goes() {
    let scene = Scene::new();
    let mut candidates = Vec::new();
    for _ in 0..2 {
        let (redis, store) = (scene.redis(Mode::Redis).await, scene.store().await);
        let (leads, is_leader) = watch::channel(false);
        let shutdown = CancellationToken::new();
        tokio::spawn(lead::stand("test", Some(redis), store, leads, shutdown.clone()));
        candidates.push((is_leader, shutdown));
    }
    let leaders = |all: &[(watch::Receiver<bool>, CancellationToken)]| -> Vec<bool> {
        all.iter().map(|(is_leader, _)| *is_leader.borrow()).collect()
    };
    until("one leads", async || leaders(&candidates).contains(&true)).await;
    let first = leaders(&candidates).iter().position(|leads| *leads).unwrap();
    assert!(!leaders(&candidates)[1 - first]);

    candidates[first].1.cancel();

    until("the other leads", async || leaders(&candidates)[1 - first]).await;
    assert!(!leaders(&candidates)[first]);
}
