//! Work that kills the process which does it: the job fails after its attempts and says so, and other jobs go on.

use crate::on_both_engines;
use crate::resume::room::{Length, Room};
use crate::support::house::House;
use crate::support::{Engine, Program, kill, until};
use serde_json::Value;
use std::os::unix::process::CommandExt;

on_both_engines![
    a_chunk_that_kills_the_server_fails_its_job_and_no_other,
    a_chunk_that_exhausts_the_memory_of_remote_workers_fails_its_job_and_no_other,
];

/// The second chunk of a video that has two; no other video here has a second.
const SECOND_CHUNK: &str = "encode_1.begun";

/// Seconds.
const TWO_CHUNKS: Length = Length(30);

/// Enough address space for the program and its encoders, and little more.
fn with_little_memory(mut program: Program) -> Program {
    let limit = libc::rlimit { rlim_cur: 6 << 30, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: between fork and exec only an async-signal-safe function is called.
    unsafe {
        program.command.pre_exec(move || match libc::setrlimit(libc::RLIMIT_AS, &raw const limit) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    program
}

/// A server that has taken a video of two chunks and another of one, and encodes neither.
fn two_videos(engine: Engine) -> (House, i64, i64) {
    let house = House::with(engine, &[("VODMILL_BACKOFF_SECONDS", "0.3"), ("VODMILL_PARALLEL", "2")]);
    let poison = house.upload(&house.sample("poison.mp4", 30), "slug=poison");
    let other = house.upload(&house.sample("other.mp4", 5), "slug=other");
    (house, id(&poison), id(&other))
}

fn id(video: &Value) -> i64 {
    video["id"].as_i64().unwrap_or_else(|| panic!("{video}"))
}

fn says_who_died(house: &House, video: i64, deaths: [&str; 2]) {
    let video = house.get(&format!("/api/videos/{video}"));
    let job = house.get(&format!("/api/jobs/{}", video["job"]));
    let error = job["error"].as_str().unwrap_or_default();
    assert!(error.contains("chunk 1 of encode ("), "{error}");
    // A worker that takes long to come back has been given up by then: it "died or fell silent".
    assert!(deaths.iter().all(|words| error.contains(words)), "{error}");
    assert!(error.contains("while working on it: "), "{error}");
}

fn a_chunk_that_kills_the_server_fails_its_job_and_no_other(engine: Engine) {
    let (mut house, poison, other) = two_videos(engine);
    house.stop();

    house.set("VODMILL_SERVER_SLOTS", "2");
    house.set("VODMILL_FAILPOINT", SECOND_CHUNK);
    for _ in 0..3 {
        house.starts_and_dies();
    }
    house.start();

    until("the job has failed", || house.get(&format!("/api/videos/{poison}"))["state"] == "failed");
    says_who_died(&house, poison, ["3 workers died", "server ("]);
    house.video_is(other, "ready");
    house.is_healthy();
}

fn a_chunk_that_exhausts_the_memory_of_remote_workers_fails_its_job_and_no_other(engine: Engine) {
    let (house, poison, other) = two_videos(engine);
    let key = house.post("/api/worker/register", serde_json::json!({ "name": "small" }));
    let log = house.world.folder.path().join("small.log");
    let start = || {
        let program = house.world.vodmill(&["worker", "--server", &house.url(""), "--slots", "2"]);
        let program = program
            .env("VODMILL_WORKER_KEY", key["api_key"].as_str().unwrap())
            .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db")
            .env("VODMILL_FAILPOINT", SECOND_CHUNK)
            .env("VODMILL_FAILPOINT_ACTION", "exhaust");
        with_little_memory(program).start_logged(&log)
    };

    let (mut worker, mut deaths) = (start(), 0);
    until("the job has failed", || {
        if worker.has_ended() {
            deaths += 1;
            worker = start();
        }
        house.get(&format!("/api/videos/{poison}"))["state"] == "failed"
    });

    assert_eq!(deaths, 3);
    says_who_died(&house, poison, ["its worker died", "3 times"]);
    house.video_is(other, "ready");
    house.is_healthy();
}

#[test]
fn a_chunk_that_kills_the_process_of_a_transcode_ends_as_a_failure_that_says_so() {
    ends_as_a_failure("die", |program| program);
}

#[test]
fn a_chunk_that_exhausts_the_memory_of_a_transcode_ends_as_a_failure_that_says_so() {
    ends_as_a_failure("exhaust", with_little_memory);
}

fn ends_as_a_failure(action: &str, limited: fn(Program) -> Program) {
    let room = Room::new(TWO_CHUNKS);
    let poison = || {
        let program = room.transcode().env("VODMILL_FAILPOINT", SECOND_CHUNK);
        limited(program.env("VODMILL_FAILPOINT_ACTION", action))
    };

    let told = poison().ends_with(1);
    let processes = room.processes();
    room.transcode().succeeds();

    assert!(told.contains("starting it again"), "{told}");
    assert!(told.contains("chunk 1 of encode (") && told.contains("3 workers died"), "{told}");
    assert_eq!(processes, []);
    // The optional thumbnails may have died with the chunk each time.
    room.executions(1).none_committed_twice();
    room.is_complete();
}

/// Of the two processes of the command, a person may find the one that works.
#[test]
fn a_person_who_kills_the_working_process_of_a_transcode_uses_up_no_attempt() {
    let room = Room::new(TWO_CHUNKS);

    for _ in 0..4 {
        let mut process = room.transcode().start();
        let held = room.hold_an_encoder(&mut process);
        let id = process.0.id();
        let children = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        kill(children.trim().parse().unwrap(), libc::SIGKILL);
        assert_eq!(process.ends(), Some(128 + libc::SIGKILL));
        kill(held, libc::SIGCONT);
        room.is_quiet();
    }
    room.transcode().succeeds();

    let executions = room.executions(1);
    assert!(executions.failures().iter().all(|why| why.contains("was ended")), "{:?}", executions.failures());
    room.is_complete();
}

/// The person ends whichever process they find.
#[test]
fn a_person_who_ends_a_transcode_again_and_again_uses_up_no_attempt() {
    let room = Room::new(TWO_CHUNKS);

    for _ in 0..6 {
        let mut process = room.transcode().start();
        let held = room.hold_an_encoder(&mut process);
        process.kill();
        kill(held, libc::SIGCONT);
        room.is_quiet();
    }
    room.transcode().succeeds();

    let executions = room.executions(1);
    assert!(executions.failures().iter().all(|why| why.contains("was ended")), "{:?}", executions.failures());
    room.is_complete();
}
