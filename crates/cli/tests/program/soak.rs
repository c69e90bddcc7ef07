//! A server and a remote worker under every kind of load at once: their memory, open files and threads stay as many as they are.
//!
//! The first quarter of the time is a warm-up: caches fill, pools open their connections, the allocator takes what it needs at
//! the busiest moment. After it the median of the second quarter is compared with that of the last: medians, because each load
//! comes in waves. [`ROOM`] says how much larger the second may be. Memory that leaks grows with the number of operations, which
//! the report shows; `make soak` runs for MINUTES=30 and keeps the report. On SQLite the page cache of each connection grows with
//! the database, to 16 MB at most, so that some growth remains in half an hour.

use crate::support::house::{House, SECRET, good};
use crate::support::seat::Seat;
use crate::support::{Engine, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_secs(24);

/// What one process has at a moment.
#[derive(Clone, Copy)]
struct Sample {
    memory: u64,
    /// Without the pages of the program file, which come in as they are first used.
    anonymous: u64,
    files: u64,
    threads: u64,
}

type Number = fn(&Sample) -> u64;

/// Each number of a sample, and by how much it may grow besides a tenth.
const ROOM: [(&str, Number, u64); 4] = [
    ("resident memory, kB", |sample| sample.memory, 8192),
    ("of it its own, kB", |sample| sample.anonymous, 8192),
    ("open files", |sample| sample.files, 8),
    ("threads", |sample| sample.threads, 8),
];

/// What the last quarter may have when the second has so much.
fn allowed(before: u64, more: u64) -> u64 {
    before + before / 10 + more
}

/// One operation of a load, and how many milliseconds its thread waits before the next.
type Load = (&'static str, u64, fn(&Site, u64));

const LOADS: [Load; 8] = [
    ("videos made, played and deleted", 200, makes_and_plays_a_video),
    ("jobs of a remote worker", 100, runs_a_job),
    ("listeners", 50, listens),
    ("uploads of what is no video", 500, uploads_rubbish),
    ("uploads that break off", 200, breaks_off),
    ("resumable uploads that are given up", 200, gives_an_upload_up),
    ("sign-ins, right and wrong", 100, signs_in_and_out),
    ("pages and lists", 50, looks_around),
];

#[test]
fn under_all_loads_memory_files_and_threads_stay_as_they_are() {
    let minutes = std::env::var("VODMILL_SOAK_MINUTES").ok().and_then(|text| text.parse::<f64>().ok());
    let length = minutes.map_or(SHORT, |minutes| Duration::from_secs_f64(minutes * 60.0));
    let engine = match std::env::var("VODMILL_SOAK_ENGINE").as_deref() {
        Ok("postgres") => Engine::Postgres,
        _ => Engine::Sqlite,
    };
    let site = Site::new(engine);
    let worker = site.house.remote_worker("soak", &[("VODMILL_WORKER_ALLOW_COMMANDS", "true")]);

    let (samples, done) = site.bear(length, [site.house.pid(), worker.process.0.id()]);

    println!("\n{}", report(length, engine, &samples, &done));
    for ((name, _, _), count) in LOADS.iter().zip(&done) {
        assert!(*count > 1, "{name}: {count}");
    }
    for (process, samples) in ["the server", "the worker"].iter().zip(&samples) {
        for (name, of, more) in ROOM {
            let (before, after) = (median(quarter(samples, 1), of), median(quarter(samples, 3), of));
            assert!(after <= allowed(before, more), "{process}: {name} grew from {before} to {after}");
        }
    }
    site.house.is_healthy();
}

/// A server with its clip.
struct Site {
    house: House,
    clip: PathBuf,
}

impl Site {
    /// What has ended is archived and removed soon, so that the passes that do it run too.
    fn new(engine: Engine) -> Self {
        let settings = [
            ("VODMILL_SERVER_SLOTS", "2"),
            ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1"),
            ("VODMILL_WORKER_HEARTBEAT_INTERVAL", "5"),
            ("VODMILL_RETENTION_DAYS", "0.00005"),
            ("VODMILL_ARCHIVE_AFTER_DAYS", "0.001"),
            ("VODMILL_HISTORY_AFTER_DAYS", "0.001"),
            ("VODMILL_AUTH_FAILURES_PER_MINUTE", "1000000"),
        ];
        let house = House::seated(Seat::take(4), engine, &settings);
        let clip = house.sample_of("clip.mp4", "64x36", 1);
        Site { house, clip }
    }

    /// Lets all loads go on for so long; the samples of each process meanwhile, and how often each operation was done.
    fn bear(&self, length: Duration, processes: [u32; 2]) -> ([Vec<Sample>; 2], [u64; LOADS.len()]) {
        let is_over = AtomicBool::new(false);
        let done = [const { AtomicU64::new(0) }; LOADS.len()];
        let mut samples = [Vec::new(), Vec::new()];
        std::thread::scope(|scope| {
            let loads: Vec<_> = LOADS
                .iter()
                .zip(&done)
                .map(|((_, pause, load), done)| {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            load(self, done.fetch_add(1, Ordering::Relaxed));
                            std::thread::sleep(Duration::from_millis(*pause));
                        }
                    })
                })
                .collect();
            let begun = Instant::now();
            // One that has ended has failed.
            while begun.elapsed() < length && !loads.iter().any(|load| load.is_finished()) {
                for (samples, process) in samples.iter_mut().zip(processes) {
                    samples.push(sample(process));
                }
                std::thread::sleep((length / 500).clamp(Duration::from_millis(100), Duration::from_secs(5)));
            }
            is_over.store(true, Ordering::Relaxed);
        });
        (samples, done.map(AtomicU64::into_inner))
    }
}

fn sample(process: u32) -> Sample {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let fields: BTreeMap<&str, &str> = status.lines().filter_map(|line| line.split_once(':')).collect();
    let number = |name: &str| fields[name].split_whitespace().next().unwrap().parse().unwrap();
    Sample {
        memory: number("VmRSS"),
        anonymous: number("RssAnon"),
        files: std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64,
        threads: number("Threads"),
    }
}

fn quarter(samples: &[Sample], at: usize) -> &[Sample] {
    &samples[samples.len() * at / 4..samples.len() * (at + 1) / 4]
}

fn median(samples: &[Sample], of: Number) -> u64 {
    let mut numbers: Vec<u64> = samples.iter().map(of).collect();
    numbers.sort_unstable();
    numbers[numbers.len() / 2]
}

fn report(length: Duration, engine: Engine, samples: &[Vec<Sample>; 2], done: &[u64; LOADS.len()]) -> String {
    let mut text =
        format!("| Load, for {:.1} minutes on {engine:?} | Times |\n", length.as_secs_f64() / 60.0);
    text += "| --- | ---: |\n";
    for ((name, _, _), count) in LOADS.iter().zip(done) {
        text += &format!("| {name} | {count} |\n");
    }
    text += "\n| Process | What | Median, 1st quarter | 2nd | 3rd | 4th | Allowed | Largest |\n";
    text += "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for (process, samples) in ["server", "worker"].iter().zip(samples) {
        for (name, of, more) in ROOM {
            let [first, second, third, fourth] = [0, 1, 2, 3].map(|at| median(quarter(samples, at), of));
            let most = samples.iter().map(of).max().unwrap();
            let allowed = allowed(second, more);
            text += &format!(
                "| {process} | {name} | {first} | {second} | {third} | {fourth} | {allowed} | {most} |\n"
            );
        }
    }
    text
}

fn makes_and_plays_a_video(site: &Site, n: u64) {
    let video = site.house.upload(&site.clip, &format!("name=clip.mp4&slug=clip-{n}"));
    site.house.video_is(video["id"].as_i64().unwrap(), "ready");
    let mut lists = vec![site.house.url(&format!("/videos/clip-{n}/master.m3u8"))];
    while let Some(list) = lists.pop() {
        let answer = site.house.client.get(&list).send().unwrap();
        assert_eq!(answer.status(), 200, "{list}");
        let base = answer.url().clone();
        if list.ends_with(".m3u8") {
            let text = answer.text().unwrap();
            let names = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            lists.extend(names.map(|name| base.join(name).unwrap().to_string()));
        } else {
            assert!(!answer.bytes().unwrap().is_empty(), "{list}");
        }
    }
    delete(site, &video);
}

fn delete(site: &Site, video: &Value) {
    good(site.house.admin("DELETE", &format!("/api/videos/{}", video["id"])).send().unwrap());
}

fn runs_a_job(site: &Site, n: u64) {
    let stages = json!([
        { "name": "first", "kind": "noop", "segments": 4 },
        { "name": "then", "needs": ["first"], "sleep_ms": 10, "segments": 4 },
    ]);
    let job = site.house.post("/api/jobs", json!({ "name": format!("job {n}"), "stage": stages }));
    until("the job has ended", || {
        let job = site.house.get(&format!("/api/jobs/{}", job["id"]));
        assert_ne!(job["state"], "failed", "{job}");
        job["state"] == "completed"
    });
}

/// Hears a little, and goes without a word.
fn listens(site: &Site, _: u64) {
    let stream = site.house.admin("GET", "/api/events").send().unwrap();
    assert_eq!(stream.status(), 200);
    let heard = BufReader::new(stream).lines().map(Result::unwrap).find(|line| line.starts_with("event: "));
    assert!(heard.is_some());
}

fn uploads_rubbish(site: &Site, n: u64) {
    let upload = site.house.admin("POST", &format!("/api/videos?name=x.mp4&slug=rubbish-{n}"));
    let video = good(upload.body("this is no video".repeat(1000)).send().unwrap());
    site.house.video_is(video["id"].as_i64().unwrap(), "failed");
    delete(site, &video);
}

fn breaks_off(site: &Site, _: u64) {
    let mut stream = TcpStream::connect(site.house.url("").trim_start_matches("http://")).unwrap();
    let head = format!(
        "POST /api/videos?name=x.mp4 HTTP/1.1\r\nHost: x\r\nX-Admin-Secret: {SECRET}\r\nContent-Length: 1000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![7; 64 << 10]).unwrap();
}

fn gives_an_upload_up(site: &Site, n: u64) {
    let ask = |method: &str, path: &str| site.house.admin(method, path).header("tus-resumable", "1.0.0");
    let created = ask("POST", "/api/uploads").header("upload-length", "1000000").send().unwrap();
    assert_eq!(created.status(), 201);
    let place = created.headers()["location"].to_str().unwrap();
    let place = &place[place.find("/api/").unwrap()..];
    let part = ask("PATCH", place).header("upload-offset", "0").body(vec![7; 10_000]);
    let part = part.header("content-type", "application/offset+octet-stream").send().unwrap();
    assert_eq!(part.status(), 204);
    if n.is_multiple_of(2) {
        assert_eq!(ask("DELETE", place).send().unwrap().status(), 204);
    }
}

fn signs_in_and_out(site: &Site, n: u64) {
    let sign_in = |secret: &str| {
        let body = json!({ "secret": secret });
        site.house.anyone("POST", "/api/session").json(&body).send().unwrap()
    };
    assert_eq!(sign_in(&format!("a wrong secret, number {n}")).status(), 401);
    let answer = sign_in(SECRET);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let with_cookie = |method: &str, path: &str| {
        site.house.anyone(method, path).header("cookie", &cookie).send().unwrap().status().as_u16()
    };
    assert_eq!(with_cookie("GET", "/api/videos"), 200);
    assert_eq!(with_cookie("DELETE", "/api/session"), 204);
    assert_eq!(with_cookie("GET", "/api/videos"), 401);
}

fn looks_around(site: &Site, n: u64) {
    let paths =
        ["/", "/health", "/metrics", "/api/docs", "/api/videos", "/api/jobs", "/api/workers", "/nowhere"];
    let path = paths[n as usize % paths.len()];
    let answer = site.house.admin("GET", path).send().unwrap();
    assert!(
        answer.status().is_success() || path == "/nowhere" || path == "/metrics",
        "{path}: {}",
        answer.status()
    );
    answer.bytes().unwrap();
}
