//! Clocks that are set, processes that stand still, machines that are full.

use crate::on_both_engines;
use crate::support::house::{House, encoder_in, problem};
use crate::support::{Engine, Process, Program, World, psql, until};
use serde_json::{Value, json};
use std::time::Duration;

const DAY: i64 = 86_400_000;

on_both_engines![
    a_clock_that_is_set_back_a_day_leaves_no_task_of_a_dead_worker_running,
    a_clock_that_is_set_forward_a_day_takes_nothing_from_living_workers,
];

/// A database on a machine whose clock can be set: on SQLite the machine is the worker's too.
struct Machine(World);

impl Machine {
    fn new(engine: Engine) -> Machine {
        let world = World::new(engine);
        if engine == Engine::Postgres {
            let name = world.url.rsplit('/').next().unwrap();
            psql(
                &world.url,
                &format!(
                    "CREATE TABLE late (by INTERVAL); INSERT INTO late VALUES ('0');
                     CREATE FUNCTION public.clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE
                     AS 'SELECT pg_catalog.clock_timestamp() + (SELECT by FROM public.late)';
                     ALTER DATABASE {name} SET search_path = public, pg_catalog"
                ),
            );
        }
        Machine(world)
    }

    fn set_clock(&self, by: i64) {
        match self.0.engine {
            Engine::Sqlite => drop(self.0.write("clock", &by.to_string())),
            Engine::Postgres => {
                drop(psql(&self.0.url, &format!("UPDATE late SET by = '{by} milliseconds'")));
            }
        }
    }

    fn vodmill(&self, args: &[&str]) -> Program {
        let clock = self.0.folder.path().join("clock");
        self.0
            .vodmill(args)
            .env("VODMILL_CLOCK_FILE", clock.to_str().unwrap())
            .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.05")
            .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
    }

    fn worker(&self) -> Process {
        self.vodmill(&["worker", "--exit-when-idle"]).start_logged(&self.0.folder.path().join("worker.log"))
    }

    fn executions(&self, job: u64) -> Vec<Value> {
        let all = self.vodmill(&["job", "executions", &job.to_string(), "--json"]).json();
        all.as_array().unwrap().clone()
    }

    /// A job whose command makes a file when it begins, and then goes on like this.
    fn begun(&self, command: &str) -> (u64, Process) {
        let begun = self.0.folder.path().join("begun");
        let spec = format!(
            "name = 'x'\nmax_attempts = 3\nbackoff_initial_ms = 20\n[[stage]]\nname = 'a'\n\
             run = ['sh', '-c', 'touch {}; {command}']",
            begun.display()
        );
        let job = self.0.submit(&spec);
        let worker = self.worker();
        until("the command has begun", || begun.exists());
        (job, worker)
    }
}

fn a_clock_that_is_set_back_a_day_leaves_no_task_of_a_dead_worker_running(engine: Engine) {
    let machine = Machine::new(engine);
    let (job, mut dead) = machine.begun("test $VODMILL_ATTEMPT -gt 1 || exec sleep 600");
    until("it is known to run", || machine.executions(job)[0]["status"] == "IN_PROGRESS");

    dead.kill();
    machine.set_clock(-DAY);
    let why = machine.vodmill(&["job", "why", &job.to_string()]).succeeds();
    assert_eq!(machine.worker().ends(), Some(0));

    assert!(!why.contains(" h"), "spans are of seconds: {why}");
    let executions = machine.executions(job);
    assert_eq!((executions[0]["failure"].as_str(), executions.len()), (Some("lease_expired"), 2));
    let back = "SELECT count(*) FROM audit a JOIN audit b ON b.id = a.id + 1 WHERE b.at < a.at";
    assert_eq!(machine.0.count(back), 0, "nothing happens before what was before it");
    machine.vodmill(&["doctor"]).succeeds();
}

fn a_clock_that_is_set_forward_a_day_takes_nothing_from_living_workers(engine: Engine) {
    let machine = Machine::new(engine);
    let end = machine.0.folder.path().join("end");
    let (job, mut worker) = machine.begun(&format!("until test -e {}; do sleep 0.1; done", end.display()));
    let renewed = "SELECT count(*) FROM task WHERE state = 'RUNNING' AND lease_expires_at > 0";
    until("it is known to run", || machine.0.count(renewed) == 1);

    machine.set_clock(DAY);
    let log = machine.0.folder.path().join("worker.log");
    until("the jump is noticed", || {
        std::fs::read_to_string(&log).unwrap_or_default().contains("was set forward")
    });
    // Two leases: whatever would be taken has been taken by then.
    std::thread::sleep(Duration::from_secs(6));
    std::fs::write(&end, "").unwrap();

    assert_eq!(worker.ends(), Some(0));
    let executions = machine.executions(job);
    assert_eq!((executions[0]["status"].as_str(), executions.len()), (Some("DONE"), 1), "{executions:?}");
}

/// On SQLite a worker in a process of its own shares the machine with the server, and outlives it.
#[test]
fn a_server_that_starts_again_takes_nothing_from_a_living_worker() {
    let mut house = House::with(Engine::Sqlite, &[]);
    let (begun, end) = (house.world.folder.path().join("begun"), house.world.folder.path().join("end"));
    let job = house.world.submit(&format!(
        "name = 'x'\nmax_attempts = 2\n[[stage]]\nname = 'a'\n\
         run = ['sh', '-c', 'touch {}; until test -e {}; do sleep 0.1; done']",
        begun.display(),
        end.display()
    ));
    let worker = house.world.vodmill(&["worker", "--slots", "1", "--no-orchestrator"]);
    let _worker = worker.env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.05").start();
    until("the command has begun", || begun.exists());

    for _ in 0..3 {
        house.kill();
        house.start();
    }
    std::fs::write(&end, "").unwrap();

    until("the job is done", || house.world.job_state(job) == "completed");
    let executions = house.get(&format!("/api/jobs/{job}/executions"));
    assert_eq!(executions.as_array().unwrap().len(), 1, "{executions}");
    house.is_healthy();
}

/// A lease of twelve seconds.
#[test]
fn a_server_that_stood_still_for_longer_than_a_lease_takes_nothing_from_its_workers() {
    let mut house = House::with(Engine::Sqlite, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.2")]);
    // For one lease after its start it does not look for expired ones, and a pause within that time is not noticed.
    std::thread::sleep(Duration::from_secs(14));
    let hand = house.worker("w", &["sleep"]);
    let spec = json!({ "name": "x", "stage": [{ "name": "a", "sleep_ms": 1 }] });
    let job = house.post("/api/jobs", spec)["id"].clone();
    let held = hand.claim_one();
    hand.progress(&held, 1);
    let badge = hand.badge.clone();

    house.signal(libc::SIGSTOP);
    std::thread::sleep(Duration::from_secs(15));
    house.signal(libc::SIGCONT);
    // Its recovery has had every chance when it has answered others.
    for _ in 0..2 {
        house.get("/api/health");
    }

    let hand = house.again(&badge);
    let answer = hand.progress(&held, 2);
    assert!(answer.to_string().contains("accepted"), "{answer}");
    let executions = house.get(&format!("/api/jobs/{job}/executions"));
    assert_eq!(executions.as_array().unwrap().len(), 1, "{executions}");
    assert_eq!(executions[0]["failure"], Value::Null);
    house.stop();
}

#[test]
fn a_full_disk_is_told_wherever_people_look() {
    let mut house = House::new(Engine::Sqlite);
    let video = house.upload(&house.sample("talk.mp4", 1), "slug=talk");
    let job = video["job"].clone();
    house.stop();
    house.set("VODMILL_SERVER_DISK_RESERVE_MB", "1000000000");
    house.set("VODMILL_SERVER_SLOTS", "1");
    house.start();

    let refused = house.admin("POST", "/api/videos?slug=film").body("film").send().unwrap();
    problem(refused, 507, "disk_full");
    let health = house.anyone("GET", "/health").send().unwrap();
    assert_eq!(health.status(), 503);
    let health: Value = health.json().unwrap();
    assert_eq!((&health["status"], &health["database"]), (&json!("unhealthy"), &json!("ok")));
    let reason = health["reason"].as_str().unwrap();
    assert!(reason.contains("MiB are free on the disk of the data folder"), "{reason}");
    until("the job says why it waits", || {
        let why = house.get(&format!("/api/jobs/{job}/why")).to_string();
        why.contains("takes nothing new for now: server: ") && why.contains("on the disk of the work folder")
    });
    let workers = house.world.vodmill(&["workers"]).succeeds();
    assert!(workers.contains("worker server takes nothing new for now: "), "{workers}");
}

#[test]
fn a_server_works_in_the_folder_it_is_given() {
    let house = House::encoding(Engine::Sqlite);
    let folder = house.world.folder.path().join("work");
    house.upload(&house.sample_of("long.mp4", "640x360", 16), "slug=talk");

    until("it encodes there", || encoder_in(&folder).is_some());

    house.video_is(1, "ready");
    let left = std::fs::read_dir(house.data().join("work")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "and nowhere else");
}

#[test]
fn a_job_of_too_many_tasks_is_refused_over_http() {
    let house = House::with(Engine::Sqlite, &[("VODMILL_MAX_JOB_TASKS", "50")]);
    let submit = |tasks: u32| {
        let stages =
            json!([{ "name": "a", "kind": "noop" }, { "name": "b", "kind": "noop", "segments": tasks }]);
        house.admin("POST", "/api/jobs").json(&json!({ "name": "x", "stage": stages })).send().unwrap()
    };

    let refused = problem(submit(50), 422, "too_many_tasks");
    assert!(refused["detail"].as_str().unwrap().contains("51 tasks"), "{refused}");
    assert_eq!(submit(49).status(), 201);
}

/// Frozen before a commit is durable, and after it is: the transaction is open, or its answer was not heard.
#[test]
fn a_worker_frozen_in_a_commit_takes_effect_once() {
    for moment in ["progress.before", "progress.after", "commit.before", "commit.after"] {
        let world = World::new(Engine::Postgres);
        let job = world.submit(
            "name = 'x'\nbackoff_initial_ms = 20\n[[stage]]\nname = 'a'\nrun = ['sleep', '0.3']\n\
             effect = { append = 'effects' }",
        );
        let worker = || {
            world
                .vodmill(&["worker", "--exit-when-idle", "--slots", "1"])
                .env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.03")
                .env("VODMILL_WORKER_HEARTBEAT_INTERVAL", "0.5")
        };
        let log = world.folder.path().join("frozen.log");
        let frozen = worker().env("VODMILL_FAILPOINT", moment).env("VODMILL_FAILPOINT_ACTION", "stop");
        let mut frozen = frozen.start_logged(&log);
        until("it is frozen", || frozen.is_stopped());

        worker().succeeds();

        assert_eq!(world.job_state(job), "completed", "{moment}");
        frozen.signal(libc::SIGCONT);
        assert_eq!(frozen.ends(), Some(0), "{moment}");
        assert_eq!(world.effect_lines().len(), 1, "{moment}");
        world.is_healthy();
    }
}
