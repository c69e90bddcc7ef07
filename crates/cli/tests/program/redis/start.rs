//! Starting without a Redis, and what is said of it.

use super::room::Room;
use crate::support::{Engine, World, http, until};

#[test]
fn mode_redis_refuses_to_start_without_redis_and_says_what_to_do() {
    let world = World::new(Engine::Sqlite);

    for command in ["orchestrate", "worker", "serve"] {
        let nowhere = world
            .vodmill(&[command])
            .env("VODMILL_REDIS_URL", "redis://:hush@127.0.0.1:1")
            .env("VODMILL_JOB_QUEUE_MODE", "redis");
        let said = nowhere.ends_with(1);
        assert!(said.contains("127.0.0.1:1") && said.contains("hybrid") && !said.contains("hush"), "{said}");

        let unnamed = world.vodmill(&[command]).env("VODMILL_JOB_QUEUE_MODE", "redis").ends_with(2);
        assert!(unnamed.contains("redis_url"), "{unnamed}");
    }
}

#[test]
fn mode_hybrid_starts_without_redis_says_so_once_and_takes_it_when_it_comes() {
    let room = Room::new("hybrid");
    room.redis.run("stop", &[]);
    let _server = room.start(&["serve", "--slots", "1", "--listen", "127.0.0.1:0"], "log");
    let mut address = None;
    until("it listens", || {
        let log = room.log("log");
        address =
            log.split_once("listening on ").and_then(|(_, rest)| Some(rest.split_once('\n')?.0.to_owned()));
        address.is_some()
    });
    let health = |path: &str| -> serde_json::Value {
        http()
            .build()
            .unwrap()
            .get(format!("{}{path}", address.as_deref().unwrap()))
            .send()
            .unwrap()
            .json()
            .unwrap()
    };

    assert_eq!((&health("/health")["redis"], &health("/health")["status"]), (&"away".into(), &"ok".into()));
    room.redis.run("start", &[]);
    until("it is taken", || health("/api/health")["redis"] == "ok");
    room.redis.run("stop", &["KILL"]);
    until("it is missed", || health("/health")["redis"] == "away");
    room.redis.run("start", &[]);
    until("it is taken again", || health("/health")["redis"] == "ok");

    let log = room.log("log");
    let lines = |level: &str, words: &str| {
        log.lines().filter(|line| line.contains(level) && line.contains(words)).count()
    };
    assert_eq!((lines("WARN", "cannot use Redis"), lines("INFO", "Redis at")), (2, 2), "{log}");
}
