use crate::scene::{Scene, Server, job, until, within};
use dispatch::{Error, Mode, Redis};
use store::wake::Topic;

#[tokio::test]
async fn a_redis_that_is_not_there_is_an_error_only_where_hints_rest_on_it() {
    let url = "redis://:secret@127.0.0.1:1";

    let refused = Redis::open(url, "x:", Mode::Redis).await.err().unwrap();
    let hybrid = Redis::open(url, "x:", Mode::Hybrid).await.unwrap();

    assert!(matches!(refused, Error::Away { .. }));
    assert!(
        refused.to_string().contains("127.0.0.1:1") && !refused.to_string().contains("secret"),
        "{refused}"
    );
    assert!(!hybrid.is_up());
    let bad = Redis::open("http://:secret@x", "x:", Mode::Hybrid).await.err().unwrap().to_string();
    assert!(bad.contains("redis://") && !bad.contains("secret"), "{bad}");
}

#[tokio::test]
async fn a_redis_that_goes_and_comes_back_is_noticed_and_hints_flow_again() {
    let server = Server::start(&[]);
    let scene = Scene::at(server.url());
    let elsewhere = scene.process("none", Mode::Hybrid).await;
    let process = scene.process("noop", Mode::Hybrid).await;
    let mut got = process.works(usize::MAX);
    process.waits().await;
    elsewhere.store.submit(&job(1, 5)).await.unwrap();
    within("it has it", got.recv()).await.unwrap();

    server.run("stop", &["KILL"]);
    until("it is missed", async || !process.redis.is_up() && !elsewhere.redis.is_up()).await;
    server.run("start", &[]);
    until("it is back", async || process.redis.is_up() && elsewhere.redis.is_up()).await;

    // Emptied by the restart, it has no streams and no groups any more.
    let looks = process.looks();
    until("it takes hints again", async || {
        elsewhere.store.submit(&job(1, 5)).await.unwrap();
        tokio::time::timeout(std::time::Duration::from_secs(1), got.recv()).await.is_ok()
    })
    .await;
    assert!(process.looks() > looks);
}

#[tokio::test]
async fn an_emptied_redis_is_filled_again() {
    let server = Server::start(&[]);
    let scene = Scene::at(server.url());
    let elsewhere = scene.process("none", Mode::Redis).await;
    let process = scene.process("noop", Mode::Redis).await;
    let mut got = process.works(usize::MAX);
    process.waits().await;

    for _ in 0..3 {
        scene.ask::<()>(&["FLUSHALL"]).await;
        elsewhere.store.submit(&job(1, 5)).await.unwrap();
        within("it is told all the same", got.recv()).await.unwrap();
    }
}

#[tokio::test]
async fn a_full_redis_counts_as_away_until_there_is_room() {
    let server = Server::start(&["maxmemory-policy noeviction"]);
    let scene = Scene::at(server.url());
    let process = scene.process("none", Mode::Hybrid).await;

    scene.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    until("it counts as away", async || {
        process.store.submit(&job(1, 5)).await.unwrap();
        !process.redis.is_up()
    })
    .await;
    scene.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;

    until("hints are told again", async || {
        process.store.submit(&job(1, 5)).await.unwrap();
        scene.hints().await > 0
    })
    .await;
}

#[tokio::test]
async fn what_redis_does_not_take_the_database_carries_in_mode_hybrid_and_only_that() {
    let server = Server::start(&["maxmemory-policy noeviction"]);
    let scene = Scene::at(server.url()).on_postgres().await;
    let (here, there) = (scene.process("none", Mode::Hybrid).await, scene.store().await);
    let mut hints = there.wake().subscribe(Topic::Ready);
    for store in [here.store.clone(), there.clone()] {
        tokio::spawn(async move { store.wake().run().await });
    }
    within("it listens", hints.changed()).await.unwrap();
    let before = *hints.borrow_and_update();

    here.store.submit(&job(1, 5)).await.unwrap();
    until("Redis has it", async || scene.hints().await == 1).await;
    scene.ask::<()>(&["CONFIG", "SET", "maxmemory", "1"]).await;
    here.store.submit(&job(1, 5)).await.unwrap();
    within("the database carries it", hints.changed()).await.unwrap();

    assert_eq!(*hints.borrow(), before + 1, "the first was Redis's");
}
