//! Work that kills the process which does it: the job fails after its attempts and says so, and other jobs go on. Of a server
//! and of remote workers, by a signal and for want of memory, on both engines.

use crate::on_both_engines;
use crate::resume::room::{Length, Room};
use crate::support::house::House;
use crate::support::{Engine, Program, kill, until};
use serde_json::Value;
use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

on_both_engines![
    a_chunk_that_kills_the_server_fails_its_job_and_no_other,
    a_chunk_that_exhausts_the_memory_of_the_server_fails_its_job_and_no_other,
    a_chunk_that_kills_remote_workers_fails_its_job_and_no_other,
    a_chunk_that_exhausts_the_memory_of_remote_workers_fails_its_job_and_no_other,
];

/// The second chunk of a video that has two; no other video here has a second.
const SECOND_CHUNK: &str = "encode_1.begun";

/// Seconds.
const TWO_CHUNKS: Length = Length(30);

/// How work ends the process that does it.
enum Death {
    /// By a signal out of the blue.
    Killed,
    /// By the kernel's OOM killer, in a cgroup with little memory.
    OutOfMemory(Cgroup),
    /// At a limit of address space, where no cgroup can be made: the allocation fails, and the program aborts itself.
    OutOfAddresses,
}

impl Death {
    fn of_memory() -> Self {
        Cgroup::with_memory(512 << 20).map_or(Death::OutOfAddresses, Death::OutOfMemory)
    }

    fn action(&self) -> &'static str {
        match self {
            Death::Killed => "die",
            Death::OutOfMemory(_) => "fill",
            Death::OutOfAddresses => "exhaust",
        }
    }

    /// The program where it may die this way.
    fn prepared(&self, program: Program) -> Program {
        match self {
            Death::Killed => program,
            Death::OutOfMemory(cgroup) => cgroup.around(program),
            Death::OutOfAddresses => with_few_addresses(program),
        }
    }

    /// How many processes the kernel has killed for want of memory, where it counts them.
    fn is_by_the_kernel(&self, times: u64) {
        if let Death::OutOfMemory(cgroup) = self {
            let killed = cgroup.killed();
            assert!(killed >= times, "the kernel has killed {killed} processes for want of memory");
        }
    }
}

/// Enough address space for the program and its encoders, and little more.
fn with_few_addresses(mut program: Program) -> Program {
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

/// A control group of this test's own, of either version; removed when dropped.
struct Cgroup(PathBuf);

impl Cgroup {
    /// None where this user may make none.
    fn with_memory(bytes: u64) -> Option<Self> {
        let name = format!("vodmill-test-{:016x}", rand::random::<u64>());
        [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")]
            .into_iter()
            .find_map(|(root, limit)| {
                let cgroup = Cgroup(Path::new(root).join(&name));
                std::fs::create_dir(&cgroup.0).ok()?;
                // Only there where the kernel keeps account of memory.
                let file = OpenOptions::new().write(true).open(cgroup.0.join(limit));
                file.and_then(|mut file| file.write_all(bytes.to_string().as_bytes())).ok()?;
                Some(cgroup)
            })
    }

    /// The program and all that it starts are in it.
    fn around(&self, mut program: Program) -> Program {
        let members = CString::new(self.0.join("cgroup.procs").as_os_str().as_bytes()).unwrap();
        let enter = move || {
            // SAFETY: system calls alone, on a text that ends with a zero byte.
            let entered = unsafe {
                let file = libc::open(members.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                libc::write(file, c"0".as_ptr().cast(), 1) == 1
            };
            if entered { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        };
        // SAFETY: between fork and exec only async-signal-safe functions are called.
        unsafe { program.command.pre_exec(enter) };
        program
    }

    fn killed(&self) -> u64 {
        let texts = ["memory.events", "memory.oom_control"]
            .map(|name| std::fs::read_to_string(self.0.join(name)).unwrap_or_default());
        let mut lines = texts.iter().flat_map(|text| text.lines());
        lines.find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok()).unwrap_or_default()
    }
}

impl Drop for Cgroup {
    /// It can be removed as soon as nothing is in it.
    fn drop(&mut self) {
        until("the control group is empty", || std::fs::remove_dir(&self.0).is_ok() || !self.0.exists());
    }
}

/// A server that has taken a video of two chunks and another of one, and encodes neither.
fn two_videos(engine: Engine) -> (House, i64, i64) {
    let settings = [
        ("VODMILL_BACKOFF_SECONDS", "0.3"),
        ("VODMILL_PARALLEL", "2"),
        // A busy machine takes nobody for dead.
        ("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.5"),
    ];
    let house = House::with(engine, &settings);
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
    fails_at_a_server(engine, &Death::Killed);
}

fn a_chunk_that_exhausts_the_memory_of_the_server_fails_its_job_and_no_other(engine: Engine) {
    fails_at_a_server(engine, &Death::of_memory());
}

fn a_chunk_that_kills_remote_workers_fails_its_job_and_no_other(engine: Engine) {
    fails_at_remote_workers(engine, &Death::Killed);
}

fn a_chunk_that_exhausts_the_memory_of_remote_workers_fails_its_job_and_no_other(engine: Engine) {
    fails_at_remote_workers(engine, &Death::of_memory());
}

fn fails_at_a_server(engine: Engine, death: &Death) {
    let (mut house, poison, other) = two_videos(engine);
    house.stop();

    house.set("VODMILL_SERVER_SLOTS", "2");
    house.set("VODMILL_FAILPOINT", SECOND_CHUNK);
    house.set("VODMILL_FAILPOINT_ACTION", death.action());
    for _ in 0..3 {
        house.starts_and_dies_as(|program| death.prepared(program));
    }
    death.is_by_the_kernel(3);
    house.start();

    until("the job has failed", || house.get(&format!("/api/videos/{poison}"))["state"] == "failed");
    says_who_died(&house, poison, ["3 workers died", "server ("]);
    house.video_is(other, "ready");
    house.is_healthy();
}

fn fails_at_remote_workers(engine: Engine, death: &Death) {
    let (house, poison, other) = two_videos(engine);
    let key = house.post("/api/worker/register", serde_json::json!({ "name": "small" }));
    let log = house.world.folder.path().join("small.log");
    let start = || {
        let program = house.world.vodmill(&["worker", "--server", &house.url(""), "--slots", "2"]);
        let program = program
            .env("VODMILL_WORKER_KEY", key["api_key"].as_str().unwrap())
            .env("VODMILL_DATABASE_URL", "sqlite:/nowhere/at/all.db")
            .env("VODMILL_FAILPOINT", SECOND_CHUNK)
            .env("VODMILL_FAILPOINT_ACTION", death.action());
        death.prepared(program).start_logged(&log)
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
    death.is_by_the_kernel(3);
    says_who_died(&house, poison, ["its worker died", "3 times"]);
    house.video_is(other, "ready");
    house.is_healthy();
    drop(worker);
}

#[test]
fn a_chunk_that_kills_the_process_of_a_transcode_ends_as_a_failure_that_says_so() {
    ends_as_a_failure("die", |program| program);
}

#[test]
fn a_chunk_that_exhausts_the_memory_of_a_transcode_ends_as_a_failure_that_says_so() {
    ends_as_a_failure("exhaust", with_few_addresses);
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
