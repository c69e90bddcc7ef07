//! A platform: three servers behind one address, workers, PostgreSQL, Redis and a bucket. Whatever is struck, the database
//! too, every video is published once.

use super::line::{Line, Mood};
use super::site::{Server, Site, good};
use crate::support::{World, until};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::Value;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many; `make chaos-platform` takes more.
fn many(variable: &str, few: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(few)
}

#[test]
fn a_platform_whose_parts_are_struck_publishes_every_video_once() {
    let seed = std::env::var("VODMILL_PLATFORM_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(rand::random);
    println!("VODMILL_PLATFORM_SEED={seed}");
    let mut dice = StdRng::seed_from_u64(seed);
    let (videos, hands) = (many("VODMILL_PLATFORM_VIDEOS", 6), many("VODMILL_PLATFORM_WORKERS", 3));
    let mut site = Site::of(World::with_server());
    let storage = Line::to(&site.endpoint, seed);
    site.endpoint = storage.url();
    let redis = Line::to(&std::env::var("VODMILL_TEST_REDIS_URL").unwrap(), seed);
    let redis_url = redis.url().replace("http://", "redis://");
    let settings = [
        ("VODMILL_REDIS_URL", redis_url.as_str()),
        ("VODMILL_REDIS_PREFIX", &format!("platform-{seed}:")),
        ("VODMILL_JOB_QUEUE_MODE", "hybrid"),
    ];
    let mut servers: Vec<Server<'_>> = ["a", "b", "c"].map(|name| site.server(name, &settings)).into();
    let front = Front::before(&servers);
    let mut workers: Vec<_> =
        (0..hands).map(|n| site.worker_called(&format!("w{n}"), &servers[n % 3], &front.url())).collect();
    let file = std::fs::read(site.sample("talk.mkv", 2)).unwrap();
    for n in 0..videos {
        let path = format!("/api/videos?name=talk.mkv&slug=video-{n}");
        good(servers[n % 3].admin("POST", &path).body(file.clone()).send().unwrap());
    }
    let ready = |server: &Server<'_>| {
        let all = patiently(server, "/api/videos?limit=1000")["items"].as_array().unwrap().clone();
        let failed: Vec<_> = all.iter().filter(|it| it["state"] == "failed").collect();
        assert!(failed.is_empty(), "{failed:?}");
        all.iter().filter(|it| it["state"] == "ready").count()
    };

    let database = site.world.server.as_ref().unwrap();
    for blow in 0..2 * videos {
        if ready(&servers[0]) == videos {
            break;
        }
        let (server, worker) = (dice.random_range(0..3), dice.random_range(0..hands));
        match blow % 7 {
            0 => database.restart("fast"),
            1 => {
                servers[server].kill();
                rest(&mut dice, 600);
                servers[server].start();
            }
            2 => workers[worker].restart(&site, &front.url()),
            3 => database.restart("immediate"),
            4 => {
                workers[worker].pause();
                rest(&mut dice, 9000);
                workers[worker].resume();
            }
            5 => strike(&redis, Mood::Down, &mut dice),
            _ => strike(&storage, Mood::Moody, &mut dice),
        }
        rest(&mut dice, 500);
    }

    until("all videos are ready", || ready(&servers[0]) == videos);
    for video in 1..=videos as i64 {
        site.is_published_once(video);
        assert_eq!(
            patiently(&servers[1], &format!("/api/videos/{video}"))["generations"].as_array().unwrap().len(),
            1
        );
    }
    drop(workers);
    site.is_tidy();
    site.world.is_healthy();
}

/// What a server answers when it has its database again.
fn patiently(server: &Server<'_>, path: &str) -> Value {
    let mut answer = None;
    until("the server has its database", || {
        let response = server.admin("GET", path).send().unwrap();
        if response.status() != 503 {
            answer = Some(good(response));
        }
        answer.is_some()
    });
    answer.unwrap()
}

fn strike(line: &Line, mood: Mood, dice: &mut StdRng) {
    line.set(mood);
    rest(dice, 2000);
    line.set(Mood::Good);
}

/// The chaos itself, and not something that is waited for.
fn rest(dice: &mut StdRng, most_ms: u64) {
    std::thread::sleep(Duration::from_millis(dice.random_range(most_ms / 2..=most_ms)));
}

/// One address for all servers: each connection goes to the next that takes it.
pub struct Front(u16);

impl Front {
    pub fn before(servers: &[Server<'_>]) -> Self {
        let ports: Vec<u16> = servers.iter().map(Server::port).collect();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let front = Front(listener.local_addr().unwrap().port());
        let next = Arc::new(AtomicUsize::new(0));
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let order = (0..ports.len()).map(|n| ports[(turn + n) % ports.len()]);
                let Some(far) =
                    order.into_iter().find_map(|port| TcpStream::connect(("127.0.0.1", port)).ok())
                else {
                    continue;
                };
                for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
                {
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
            }
        });
        front
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.0)
    }
}
