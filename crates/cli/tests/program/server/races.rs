//! The edge cases of document 001 that are races: each is brought about, by stopping a process inside its transaction, by
//! killing it there, or by taking it away for longer than a lease; not only looked at afterwards.

use super::protocol::{ends, executions, is_online, sleeper};
use crate::on_both_engines;
use crate::support::house::{House, good, problem};
use crate::support::{Engine, Process, Program, World, psql, until};
use serde_json::{Value, json};
use std::path::Path;

on_both_engines![
    double_claim_while_another_is_stopped_in_the_middle_of_its_claim,
    crash_in_mid_job_another_worker_does_only_what_was_lost,
    heartbeat_in_the_offline_check_is_seen_by_it,
    heartbeat_in_the_offline_check_brings_a_worker_back,
    api_restart_while_jobs_run_for_longer_than_their_lease_loses_no_work,
    api_restart_while_jobs_run_keeps_what_was_done_meanwhile,
    transactional_release_of_an_expired_lease_is_seen_whole_or_not_at_all,
    transactional_release_by_a_worker_happens_once_though_the_server_dies,
];

/// Stands still at this moment, with its transaction open; then it may go on.
fn stopped_at(moment: &str, program: Program, log: &Path) -> Process {
    let process =
        program.env("VODMILL_FAILPOINT", moment).env("VODMILL_FAILPOINT_ACTION", "stop").start_logged(log);
    until(&format!("it stands still at {moment}"), || process.is_stopped());
    process
}

/// On PostgreSQL one can see that somebody waits for a lock; on SQLite all wait for the same.
fn somebody_waits(world: &World) {
    if world.engine == Engine::Postgres {
        let waiting =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype IN ('transactionid', 'tuple')
                       AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = current_database())";
        until("it waits", || psql(&world.url, waiting).trim() != "0");
    }
}

fn double_claim_while_another_is_stopped_in_the_middle_of_its_claim(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let jobs = [sleeper(&house), sleeper(&house)];
    let log = house.world.folder.path().join("claimer.log");
    let worker = ["worker", "--slots", "1", "--no-orchestrator"];

    let mut claimer = stopped_at("claim.before", house.world.vodmill(&worker), &log);
    let claim = || hand.claim(1, 20_000);
    let held = match engine {
        // What another is about to claim is passed over, though it has not said so yet.
        Engine::Postgres => {
            let held = claim();
            claimer.signal(libc::SIGCONT);
            held
        }
        Engine::Sqlite => std::thread::scope(|scope| {
            let held = scope.spawn(claim);
            claimer.signal(libc::SIGCONT);
            held.join().unwrap()
        }),
    };

    for claimed in &held {
        good(hand.complete(claimed, Value::Null));
    }
    for job in jobs {
        ends(&house, job, "completed");
        assert_eq!(executions(&house, job).len(), 1, "claimed once");
    }
    claimer.signal(libc::SIGTERM);
    assert_eq!(claimer.ends(), Some(0));
}

/// A job whose last segment waits until `go` is there.
fn waiting(house: &House, segments: u32) -> (i64, std::path::PathBuf) {
    let folder = house.world.folder.path();
    let (go, begun) = (folder.join("go"), folder.join("begun"));
    let script = format!(
        "test $VODMILL_SEGMENT -lt {} || {{ echo $$ >>{}; until test -e {}; do sleep 0.05; done; }}",
        segments - 1,
        begun.display(),
        go.display()
    );
    let stage = json!({ "name": "only", "segments": segments, "run": ["sh", "-c", script] });
    let job = house.post("/api/jobs", json!({ "name": "x", "backoff_initial_ms": 10, "stage": [stage] }));
    (job["id"].as_i64().unwrap(), go)
}

fn has_begun(house: &House) -> bool {
    std::fs::read_to_string(house.world.folder.path().join("begun")).is_ok_and(|text| text.ends_with('\n'))
}

const COMMANDS: (&str, &str) = ("VODMILL_WORKER_ALLOW_COMMANDS", "true");

fn crash_in_mid_job_another_worker_does_only_what_was_lost(engine: Engine) {
    let house = House::new(engine);
    let mut dead = house.remote_worker("dead", &[COMMANDS]);
    let (job, go) = waiting(&house, 3);
    let done = || executions(&house, job).iter().filter(|it| it["status"] == "DONE").count();
    until("two of three are done, and it is at the third", || has_begun(&house) && done() == 2);

    dead.process.kill();
    std::fs::write(&go, "").unwrap();
    let alive = house.remote_worker("alive", &[COMMANDS]);

    ends(&house, job, "completed");
    let all = executions(&house, job);
    let failures: Vec<&Value> = all.iter().map(|it| &it["failure"]).filter(|it| !it.is_null()).collect();
    assert_eq!((all.len(), failures), (4, vec![&json!("lease_expired")]), "{all:?}");
    let by_alive: Vec<&Value> = all.iter().filter(|it| it["worker"] == alive.id.as_str()).collect();
    assert_eq!(by_alive.len(), 1, "what was done stays done: {all:?}");
}

/// The server finds nobody silent; the orchestrators of these tests do.
fn house_that_minds_no_silence(engine: Engine) -> House {
    House::with(engine, &[("VODMILL_WORKER_OFFLINE_THRESHOLD_MINUTES", "1000000")])
}

fn orchestrate(house: &House) -> Program {
    house.world.vodmill(&["orchestrate"]).env("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.05")
}

/// All were heard of last an hour ago.
fn all_are_silent(house: &House) {
    house.world.execute("UPDATE worker SET last_heartbeat = last_heartbeat - 3600000 WHERE kind = 'remote'");
}

fn heartbeat_in_the_offline_check_is_seen_by_it(engine: Engine) {
    let house = house_that_minds_no_silence(engine);
    let (heard, silent) = (house.worker("heard", &["sleep"]), house.worker("silent", &["sleep"]));
    all_are_silent(&house);
    let folder = house.world.folder.path();
    let (log, gate) = (folder.join("check.log"), folder.join("gate"));
    let _check = orchestrate(&house)
        .env("VODMILL_FAILPOINT", "offline.found")
        .env("VODMILL_FAILPOINT_ACTION", gate.to_str().unwrap())
        .start_logged(&log);
    until("the check has found both silent", || gate.exists());

    good(heard.heartbeat(0));
    std::fs::remove_file(&gate).unwrap();

    let said = || std::fs::read_to_string(&log).unwrap_or_default();
    until("the check is over", || said().contains(&silent.id));
    assert!(!is_online(&house, &silent));
    assert!(is_online(&house, &heard), "its heartbeat came before the check decided: {}", said());
    assert!(!said().contains(&heard.id), "{}", said());
}

fn heartbeat_in_the_offline_check_brings_a_worker_back(engine: Engine) {
    let house = house_that_minds_no_silence(engine);
    let hand = house.worker("w", &["sleep"]);
    all_are_silent(&house);
    let log = house.world.folder.path().join("check.log");
    let check = stopped_at("offline.before", orchestrate(&house), &log);
    assert!(is_online(&house, &hand), "decided, and not yet so");

    let answer = std::thread::scope(|scope| {
        let heartbeat = scope.spawn(|| good(hand.heartbeat(0)));
        somebody_waits(&house.world);
        check.signal(libc::SIGCONT);
        heartbeat.join().unwrap()
    });

    assert_eq!(answer["status"], "idle");
    until("the check is over", || std::fs::read_to_string(&log).unwrap_or_default().contains(&hand.id));
    // On SQLite the heartbeat may have been first; then it is offline no longer than until the next one.
    assert_eq!(good(hand.heartbeat(0))["status"], "idle");
    assert!(is_online(&house, &hand));
    house.is_healthy();
}

fn api_restart_while_jobs_run_for_longer_than_their_lease_loses_no_work(engine: Engine) {
    let mut house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "0.1")]);
    let job = sleeper(&house);
    let hand = house.worker("w", &["sleep"]);
    let held = hand.claim_one();
    hand.progress(&held, 1);
    let badge = hand.badge.clone();
    let lease_ends = executions(&house, job)[0]["lease_expires_at"].as_i64().unwrap();

    house.kill();
    until("the lease has run out", || now() > lease_ends);
    house.start();

    let (hand, other) = (house.again(&badge), house.worker("other", &["sleep"]));
    assert_eq!(other.claim(1, 0).len(), 0, "whoever could not renew is waited for");
    good(hand.heartbeat(1));
    assert_eq!(hand.progress(&held, 2)["answer"], "accepted");
    good(hand.complete(&held, Value::Null));
    ends(&house, job, "completed");
    assert_eq!(executions(&house, job).len(), 1);
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

fn api_restart_while_jobs_run_keeps_what_was_done_meanwhile(engine: Engine) {
    let mut house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "1")]);
    let mut worker = house.remote_worker("far", &[COMMANDS]);
    let (job, go) = waiting(&house, 1);
    until("it works", || has_begun(&house));
    let begun = std::fs::read_to_string(house.world.folder.path().join("begun")).unwrap();
    let command = Path::new("/proc").join(begun.trim());

    house.kill();
    assert!(command.exists(), "it goes on without the server");
    std::fs::write(&go, "").unwrap();
    until("it is done, and there is nobody to tell", || !command.exists());
    house.start();

    ends(&house, job, "completed");
    assert_eq!(executions(&house, job).len(), 1);
    assert!(!worker.process.has_ended(), "the same worker");
}

/// What anybody sees of a job: the state of its task, of its executions, and what was written of it.
fn seen(world: &World, job: i64) -> Value {
    let of = |what: &str| world.vodmill(&["job", what, &job.to_string(), "--json"]).json();
    world.is_healthy();
    let executions: Vec<Value> =
        of("executions").as_array().unwrap().iter().map(|it| json!([it["status"], it["failure"]])).collect();
    let is_recovery = |it: &&Value| it["command"] == "recover";
    let audited = of("audit").as_array().unwrap().iter().filter(is_recovery).count();
    let is_told = |it: &&Value| it["message"].as_str().is_some_and(|text| text.contains("was given up"));
    let logged = of("logs").as_array().unwrap().iter().filter(is_told).count();
    json!({ "task": of("tasks")[0]["state"], "executions": executions, "audited": audited > 0, "logged": logged > 0 })
}

fn transactional_release_of_an_expired_lease_is_seen_whole_or_not_at_all(engine: Engine) {
    let mut house = House::new(engine);
    let job = sleeper(&house);
    let hand = house.worker("crashed", &["sleep"]);
    let held = hand.claim_one();
    hand.progress(&held, 1);
    house.kill();
    let log = house.world.folder.path().join("recovery.log");
    let held = json!({ "task": "RUNNING", "executions": [["IN_PROGRESS", null]], "audited": false, "logged": false });
    let free = json!({ "task": "READY", "executions": [["ABORTED", "lease_expired"]], "audited": true, "logged": true });

    let mut recovery = stopped_at("recover.before", orchestrate(&house), &log);
    assert_eq!(seen(&house.world, job), held, "nothing is seen of a release that is not over");
    recovery.kill();
    assert_eq!(seen(&house.world, job), held, "nor is anything left of it");
    orchestrate(&house).env("VODMILL_FAILPOINT", "recover.after").start_logged(&log).ends();
    assert_eq!(seen(&house.world, job), free, "all of it at once");

    house.start();
    let other = house.worker("other", &["sleep"]);
    let again = other.claim_one();
    assert_eq!(again["attempt"], 2, "released once");
    good(other.complete(&again, Value::Null));
    ends(&house, job, "completed");
}

fn transactional_release_by_a_worker_happens_once_though_the_server_dies(engine: Engine) {
    let mut house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let job = sleeper(&house);
    let hand = house.worker("first", &["sleep"]);
    let (given, badge) = (hand.claim_one(), hand.badge.clone());

    for moment in ["fail.before", "fail.after"] {
        house.kill();
        house.set("VODMILL_FAILPOINT", moment);
        house.start();
        assert!(house.again(&badge).release(&given).is_err(), "the server dies at {moment}");
        house.dies();
        house.set("VODMILL_FAILPOINT", "never.before");
        house.start();
        let is_held = moment == "fail.before";
        assert_eq!(executions(&house, job)[0]["failure"].is_null(), is_held, "{moment}");
    }

    // It had no answer, and says it again.
    problem(house.again(&badge).release(&given).unwrap(), 409, "refused");
    let second = house.worker("second", &["sleep"]);
    let taken = second.claim_one();
    assert_eq!(
        (&taken["proof"]["task"], &taken["attempt"]),
        (&given["proof"]["task"], &json!(1)),
        "free of charge"
    );
    good(second.complete(&taken, Value::Null));
    ends(&house, job, "completed");
    assert_eq!(executions(&house, job).len(), 2);
}
