//! A remote worker whose disk fills up while it works: its tasks go to others, and it waits for room.

use crate::support::house::{House, Remote, encoder_in};
use crate::support::seat::Seat;
use crate::support::{Engine, kill, until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::path::PathBuf;

/// What a task may need by itself, and a little.
const MEGABYTES: u32 = 264;

#[test]
fn a_worker_whose_disk_fills_up_gives_its_work_to_others_and_waits_for_room() {
    let house = House::seated(Seat::take(2), Engine::Sqlite, &[("VODMILL_MAX_RETRY_ATTEMPTS", "1")]);
    let worker = worker(&house);
    let disk = Disk::of(&house, &worker);

    // At an upload, which needs no room.
    house.upload(&house.sample("short.mp4", 2), "slug=short");
    until("it begins to upload", || worker.process.is_stopped());
    disk.fill();
    worker.process.signal(libc::SIGCONT);
    until("what it made is committed", || executions(&house, 1, &worker)[0]["status"] == "DONE");

    // Before an encode.
    house.upload(&house.sample("talk.mp4", 12), "slug=talk");
    until("it is said why nobody takes it", || {
        why(&house, 2).contains("every worker that could do it takes nothing new for now: small: ")
    });
    is_shown(&house);
    disk.empty();

    // In the middle of one.
    let mut encoder = None;
    until("it encodes", || {
        encoder = encoder_in(&disk.folder);
        encoder.is_some()
    });
    kill(encoder.unwrap(), libc::SIGSTOP);
    disk.fill();
    kill(encoder.unwrap(), libc::SIGCONT);
    until("it gives its work back", || {
        let why = why(&house, 2);
        assert!(!why.contains("has failed"), "{why}");
        why.contains("The disk of worker small was full when it worked on task")
            && why.contains("that uses up none of its 1 attempts: ")
            && why.contains("no space is left on the disk; make some")
    });
    until("it takes nothing new", || !refusing(&house).is_empty());
    is_shown(&house);
    let other = house.remote_worker("other", &[]);
    let video = house.video_is(2, "ready");
    house.video_is(1, "ready");

    let given_back = executions(&house, 2, &worker).into_iter().filter(|it| !it["failure"].is_null());
    let failures: Vec<Value> = given_back.map(|it| it["failure"].clone()).collect();
    assert_eq!(failures, ["disk_full"]);
    assert_eq!(video["generations"].as_array().unwrap().len(), 1);

    drop(other);
    disk.empty();
    until("it has room again", || refusing(&house).is_empty());
    house.upload(&house.sample("again.mp4", 2), "slug=again");
    house.video_is(3, "ready");
    assert!(executions(&house, 3, &worker).iter().any(|it| it["status"] == "DONE"));
    house.is_healthy();
}

/// On a disk of its own, none of which is reserved. It stands still at its first upload.
fn worker(house: &House) -> Remote {
    let settings = [
        ("VODMILL_WORKER_DISK_RESERVE_MB", "0"),
        ("VODMILL_FAILPOINT", "upload.before"),
        ("VODMILL_FAILPOINT_ACTION", "stop"),
    ];
    house.remote_worker_with(json!({ "name": "small" }), &settings, |program, folder| {
        program.on_own_disk(folder, MEGABYTES)
    })
}

struct Disk {
    /// As the worker sees it.
    folder: PathBuf,
    ballast: PathBuf,
}

impl Disk {
    fn of(house: &House, worker: &Remote) -> Disk {
        let folder = house.world.folder.path().join("work-small");
        let as_seen = PathBuf::from(format!("/proc/{}/root", worker.process.0.id()));
        let ballast = as_seen.join(folder.strip_prefix("/").unwrap()).join("ballast");
        Disk { folder, ballast }
    }

    fn fill(&self) {
        let mut file = std::fs::File::create(&self.ballast).unwrap();
        let filled = std::io::copy(&mut std::io::repeat(0).take(u64::from(MEGABYTES) << 21), &mut file);
        assert_eq!(filled.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        let _ = file.flush();
    }

    fn empty(&self) {
        std::fs::remove_file(&self.ballast).unwrap();
    }
}

fn executions(house: &House, job: i64, worker: &Remote) -> Vec<Value> {
    let all = house.get(&format!("/api/jobs/{job}/executions"));
    let is_own = |it: &&Value| it["worker"] == worker.id.as_str();
    all.as_array().unwrap().iter().filter(is_own).cloned().collect()
}

fn why(house: &House, job: i64) -> String {
    house.get(&format!("/api/jobs/{job}/why"))["reasons"].to_string()
}

fn refusing(house: &House) -> Vec<Value> {
    house.get("/api/health")["refusing_workers"].as_array().unwrap().clone()
}

/// Where people look.
fn is_shown(house: &House) {
    let refusing = refusing(house);
    assert_eq!(refusing[0]["worker"], "small", "{refusing:?}");
    let reason = refusing[0]["reason"].as_str().unwrap();
    assert!(reason.contains("are free on the disk of the work folder, and "), "{reason}");
    let workers = house.world.vodmill(&["workers"]).succeeds();
    assert!(workers.contains("worker small takes nothing new for now: "), "{workers}");
}
