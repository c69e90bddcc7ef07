//! A line between a worker and its server that stands still, or loses connections without telling anybody.

use crate::support::house::{Hand, House};
use crate::support::seat::Seat;
use crate::support::silent_line::{SilentLine, Way};
use crate::support::{Engine, Process, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// A lease of nine seconds, and one attempt at each task: none may be lost.
const SETTINGS: [(&str, &str); 3] = [
    ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.15"),
    ("VODMILL_MAX_RETRY_ATTEMPTS", "1"),
    ("VODMILL_ENCODER_STALL_SECONDS", "8"),
];

const LEASE: Duration = Duration::from_secs(9);

/// Well within a lease, and longer than from one renewal to the next.
const STALL: Duration = Duration::from_secs(4);

struct Site {
    house: House,
    far: Vec<Far>,
}

/// A worker, and the line by which it reaches its server.
struct Far {
    line: SilentLine,
    _worker: Process,
}

impl Site {
    fn new(seats: u32, workers: usize) -> Site {
        let house = House::seated(Seat::take(seats), Engine::Sqlite, &SETTINGS);
        let far = (0..workers).map(|number| far(&house, &format!("far-{number}"))).collect();
        Site { house, far }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.house.world.folder.path().join(name)
    }

    /// A job whose command says that it runs, and ends when it may.
    fn submit(&self, name: &str) -> u64 {
        let [ran, go] = ["ran", "go"].map(|it| self.file(&format!("{name}.{it}")).display().to_string());
        self.house.world.submit(&format!(
            "name = '{name}'\nmax_attempts = 1\n[[stage]]\nname = 'a'\n\
             run = ['sh', '-c', 'echo ran >> {ran}; until test -e {go}; do sleep 0.05; done']\n\
             effect = {{ append = 'effects' }}\n"
        ))
    }

    fn runs(&self, name: &str) {
        until(&format!("{name} runs"), || self.file(&format!("{name}.ran")).exists());
    }

    fn may_end(&self, name: &str) {
        std::fs::write(self.file(&format!("{name}.go")), "").unwrap();
    }

    fn executions(&self, job: u64) -> Vec<Value> {
        self.house.get(&format!("/api/jobs/{job}/executions")).as_array().unwrap().clone()
    }

    fn completes(&self, job: u64) {
        until(&format!("job {job} has ended"), || {
            let job = self.house.get(&format!("/api/jobs/{job}"));
            assert_ne!(job["state"], "failed", "{job}");
            job["state"] == "completed"
        });
    }

    fn has_effects(&self, count: usize) {
        until("every effect is delivered", || self.house.world.effect_lines().len() == count);
        self.house.is_healthy();
    }
}

fn far(house: &House, name: &str) -> Far {
    let line = SilentLine::to(&house.url("").replace("http://", ""));
    let key = house.post("/api/worker/register", json!({ "name": name }))["api_key"].clone();
    let worker = house
        .world
        .vodmill(&["worker", "--slots", "1", "--server", &format!("http://{}", line.address())])
        .env("VODMILL_WORKER_KEY", key.as_str().unwrap())
        .env("VODMILL_WORKER_ALLOW_COMMANDS", "true")
        .env("VODMILL_WORK_FOLDER", house.world.folder.path().join(name).to_str().unwrap())
        .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db");
    let worker = worker.start_logged(&house.world.folder.path().join(format!("{name}.log")));
    Far { line, _worker: worker }
}

#[test]
fn a_line_that_stands_still_for_less_than_a_lease_costs_none() {
    let site = Site::new(2, 3);
    let names = ["a", "b", "c"];
    let jobs = names.map(|name| site.submit(name));
    names.iter().for_each(|name| site.runs(name));

    // One way, the other, and both: of three workers that have one each. The connections of before are lost.
    for (far, ways) in site.far.iter().zip([&[Way::There][..], &[Way::Back], &[Way::There, Way::Back]]) {
        far.line.lose_connections();
        ways.iter().for_each(|way| far.line.stand_still(*way));
    }
    std::thread::sleep(STALL);
    site.far.iter().for_each(|far| far.line.go_on());
    // By now whatever was not renewed has been taken back.
    std::thread::sleep(LEASE - STALL + Duration::from_secs(2));
    let executions = jobs.map(|job| site.executions(job));
    names.iter().for_each(|name| site.may_end(name));

    for (job, held) in jobs.into_iter().zip(executions) {
        assert_eq!((held.len(), &held[0]["status"]), (1, &json!("IN_PROGRESS")), "{held:?}");
        site.completes(job);
        assert_eq!(site.executions(job).len(), 1);
    }
    site.has_effects(3);
}

#[test]
fn connections_that_are_lost_without_a_word_cost_no_lease() {
    let site = Site::new(1, 1);
    let job = site.submit("held");
    site.runs("held");

    // Again and again, so that those are met that are in use, and those that are kept for later.
    for _ in 0..4 {
        site.far[0].line.lose_connections();
        std::thread::sleep(STALL);
    }
    let held = site.executions(job);
    site.far[0].line.lose_connections();
    site.may_end("held");

    assert_eq!((held.len(), &held[0]["status"]), (1, &json!("IN_PROGRESS")), "{held:?}");
    site.completes(job);
    assert_eq!(site.executions(job).len(), 1);
    site.has_effects(1);
}

/// Work is found by a worker that waits for it, whatever became of the question; and what was given to it, and never came,
/// is given again. No attempt is used up.
#[test]
fn a_worker_that_waits_at_a_dead_line_finds_work_and_does_it_once() {
    let site = Site::new(1, 1);
    let line = &site.far[0].line;
    for (name, way) in [("a", Way::There), ("b", Way::Back)] {
        let first = format!("before-{name}");
        let before = site.submit(&first);
        site.runs(&first);
        site.may_end(&first);
        site.completes(before);
        line.stand_still(way);
        let job = site.submit(name);
        std::thread::sleep(STALL);
        line.lose_connections();
        line.go_on();
        site.may_end(name);

        site.completes(job);
        assert_eq!(std::fs::read_to_string(site.file(&format!("{name}.ran"))).unwrap(), "ran\n");
        let executions = site.executions(job);
        let lost = || executions.iter().filter(|it| it["status"] != "DONE");
        assert_eq!(lost().count() + 1, executions.len(), "{executions:?}");
        assert!(lost().all(|it| it["failure"] == "unconfirmed"), "{executions:?}");
    }
    site.has_effects(4);
}

#[test]
fn uploads_that_fall_silent_halfway_are_gone_on_with() {
    let site = Site::new(3, 1);
    let line = &site.far[0].line;
    line.lose_uploads(4);

    site.house.upload(&site.house.sample("talk.mp4", 4), "slug=talk");
    let video = site.house.video_is(1, "ready");

    assert_eq!(line.uploads_to_lose(), 0, "some were lost");
    let executions = site.executions(video["job"].as_u64().unwrap());
    assert!(executions.iter().all(|it| it["failure"].is_null()), "{executions:?}");
    until("nothing is left behind", || {
        ["incoming", "parts"]
            .iter()
            .all(|name| std::fs::read_dir(site.house.data().join(name)).map_or(true, |it| it.count() == 0))
    });
    site.house.is_healthy();
}

/// It was held back on the way, and its worker has begun anew meanwhile.
#[test]
fn an_upload_that_arrives_late_spoils_nothing_and_is_held_against_nobody() {
    let house = House::new(Engine::Sqlite);
    let hand = house.worker("hand", &["sleep"]);
    house.post("/api/jobs", json!({ "name": "x", "stage": [{ "name": "a", "sleep_ms": 1 }] }));
    let task = hand.claim_one();
    let content: Vec<u8> = (0..100_000_u32).map(|byte| (byte % 251) as u8).collect();
    let head = head_of_upload(&hand, &task, &content);
    let there = || {
        let request = hand.request("HEAD", "/api/worker/outputs/a.bin");
        let answer = request.header("x-vodmill-proof", hand.proof_header(&task)).send().unwrap();
        answer.headers().get("upload-offset").and_then(|it| it.to_str().unwrap().parse::<usize>().ok())
    };
    let address = house.url("").replace("http://", "");
    let begin = |bytes: usize| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&content[..bytes]).unwrap();
        until("it has come", || there() == Some(bytes));
        stream
    };

    let mut second = begin(50_000);
    let first = begin(20_000);
    drop(first);
    second.write_all(&content[50_000..]).unwrap();

    let mut answer = String::new();
    second.read_to_string(&mut answer).unwrap_or_default();
    assert!(answer.starts_with("HTTP/1.1 409 ") && answer.contains("superseded"), "{answer}");
    let again = hand.put(&task, "a.bin", &content).send().unwrap();
    assert_eq!(again.status(), 201, "{again:?}");
    assert_eq!(house.world.count("SELECT count(*) FROM worker WHERE rejections > 0"), 0);
}

fn head_of_upload(hand: &Hand<'_>, task: &Value, content: &[u8]) -> String {
    format!(
        "PUT /api/worker/outputs/a.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         X-Vodmill-Proof: {}\r\nX-Vodmill-Sha256: {}\r\nContent-Length: {}\r\n\r\n",
        hand.key,
        hand.proof_header(task),
        hex::encode(Sha256::digest(content)),
        content.len()
    )
}
