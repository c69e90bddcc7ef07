//! The log: whatever is said of an execution names its job, task, execution and worker. And a job's own log, followed.

use crate::on_both_engines;
use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::{Engine, World, until};
use serde_json::{Value, json};
use std::path::Path;

on_both_engines![a_jobs_log_is_chosen_by_level_and_stage_and_followed];

const JSON: (&str, &str) = ("VODMILL_LOG_FORMAT", "json");

#[test]
fn every_line_about_an_execution_names_its_job_task_execution_and_worker() {
    let house = House::seated(Seat::take(3), Engine::Postgres, &[JSON]);
    let worker = house.remote_worker("far", &[JSON]);
    let dead = house.worker("dead", &["sleep"]);
    let short = json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1 }] });
    let lost = house.post("/api/jobs", short);
    let task = dead.claim_one();
    let video = house.upload(&house.sample("a.mp4", 4), "title=a");

    house.video_is(video["id"].as_i64().unwrap(), "ready");
    until("the lost lease is taken back", || !about(&house.log(), "took back task").is_empty());

    for log in [about(&worker.log, ""), about(&house.log(), "")] {
        let executions: Vec<&Value> = log.iter().filter(|line| names_an_execution(line)).collect();
        assert!(!executions.is_empty(), "{log:?}");
        for line in executions {
            for id in ["job.id", "task.id", "execution.id", "worker.id"] {
                assert!(line[id].is_string(), "{id} is missing: {line}");
            }
            assert!(line["execution.id"].as_str().unwrap().starts_with(line["task.id"].as_str().unwrap()));
        }
    }
    for line in about(&worker.log, "done: ") {
        assert_eq!(line["worker.id"], worker.id, "it goes by the name that the server knows: {line}");
    }
    let recovered = &about(&house.log(), "took back task")[0];
    assert_eq!(recovered["job.id"], lost["id"].to_string());
    assert_eq!(recovered["task.id"], task["proof"]["task"]);
    assert_eq!(recovered["worker.id"], dead.id);
}

/// From its first line on, with a secret that it makes itself.
#[test]
fn in_json_every_line_is_an_object_and_the_secret_is_in_none() {
    let world = World::new(Engine::Sqlite);
    let log = world.folder.path().join("serve.log");
    let mut serve = world
        .vodmill(&["serve", "--slots", "0"])
        .env(JSON.0, JSON.1)
        .env("VODMILL_LISTEN", "127.0.0.1:0")
        .env("VODMILL_DATA_FOLDER", world.folder.path().join("data").to_str().unwrap());
    serve.command.env_remove("VODMILL_ADMIN_SECRET");

    let (mut process, address) = serve.start_serving(&log);
    process.signal(libc::SIGTERM);
    assert_eq!(process.ends(), Some(0));

    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["address"] == format!("http://{address}")), "{text}");
    let shown = std::fs::read_to_string(log.with_extension("out")).unwrap();
    let secret = shown.split_once("shown this once: ").unwrap().1.lines().next().unwrap();
    assert!(!text.contains(secret), "{text}");
}

fn a_jobs_log_is_chosen_by_level_and_stage_and_followed(engine: Engine) {
    let house = House::new(engine);
    let worker = house.worker("w", &["sleep"]);
    let other = house.worker("other", &["sleep"]);
    let spec = json!({ "name": "x", "max_attempts": 2, "backoff_initial_ms": 1, "stage": [
        { "name": "first", "sleep_ms": 1 }, { "name": "second", "sleep_ms": 1, "needs": ["first"] },
    ] });
    let job = house.post("/api/jobs", spec)["id"].to_string();
    let follow = house
        .world
        .vodmill(&["job", "logs", &job, "--follow", "--json", "--level", "warn", "--stage", "second"]);
    let follow = std::thread::scope(|scope| {
        let followed = scope.spawn(|| follow.output());
        worker.fail(&worker.claim_one(), "transient", "it slipped");
        worker.complete(&worker.claim_one(), Value::Null);
        // Another remote worker has to confirm what one reports.
        worker.fail(&worker.claim_one(), "permanent", "it broke");
        other.fail(&other.claim_one(), "permanent", "it broke");
        followed.join().unwrap()
    });

    let lines = |query: &str| house.get(&format!("/api/jobs/{job}/logs?{query}")).as_array().unwrap().clone();
    let told = |query: &str| lines(query).len();
    assert_eq!(told("level=debug"), 4);
    assert_eq!((told("level=warn&stage=first"), told("stage=second"), told("level=error")), (1, 2, 1));
    assert_eq!(told(&format!("after={}", lines("")[1]["id"])), 2);
    let bad = house.admin("GET", &format!("/api/jobs/{job}/logs?level=loud")).send().unwrap();
    assert!(bad.status().is_client_error());
    let followed: Vec<Value> = String::from_utf8(follow.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(followed.len(), 2, "{followed:?}");
    assert!(
        followed.iter().all(|line| line["message"].as_str().unwrap().contains("it broke")),
        "{followed:?}"
    );
}

/// The lines that say this.
fn about(log: &Path, what: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"].as_str().is_some_and(|said| said.contains(what))).collect()
}

/// `12-3.1-0123456789abcdef` is an execution.
fn names_an_execution(line: &Value) -> bool {
    line["message"]
        .as_str()
        .unwrap_or_default()
        .split([' ', ':', ','])
        .any(|word| word.parse::<rules::ExecutionId>().is_ok())
}
