//! A worker lies about its own work: false failures, impossible results, other workers' tokens. Its lies cost it its place,
//! and cost the jobs nothing.

use crate::on_both_engines;
use crate::support::house::{Hand, House, good, problem, usage};
use crate::support::{Engine, until};
use serde_json::{Value, json};

on_both_engines![
    a_false_permanent_failure_fails_no_job,
    a_worker_that_lies_again_and_again_is_suspended,
    a_false_failure_of_a_suspended_worker_confirms_no_other,
    a_worker_that_uses_others_tokens_is_suspended,
    every_upload_or_failure_that_is_none_counts,
    what_a_crash_explains_is_not_held_against_a_worker,
];

/// As many rejected reports as suspend a worker by default.
const LIMIT: usize = 5;

fn house(engine: Engine) -> House {
    let limit = LIMIT.to_string();
    House::with(
        engine,
        &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"), ("VODMILL_WORKER_SUSPEND_AFTER", limit.as_str())],
    )
}

fn submit(house: &House, tasks: usize) -> i64 {
    let stage = json!({ "name": "only", "sleep_ms": 1, "segments": tasks });
    house.post("/api/jobs", json!({ "name": "x", "max_attempts": 1, "stage": [stage] }))["id"]
        .as_i64()
        .unwrap()
}

fn completes(house: &House, job: i64) {
    until("the job completes", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    house.is_healthy();
}

fn seen(house: &House, hand: &Hand<'_>) -> Value {
    let workers = house.get("/api/workers?all=true");
    workers.as_array().unwrap().iter().find(|it| it["id"] == hand.id.as_str()).unwrap().clone()
}

fn lie(hand: &Hand<'_>, task: &Value) {
    let result = json!({ "execution": "1-0.9", "path": "x", "sha256": "y" });
    let body = json!({ "proof": task["proof"], "result": result, "usage": usage() });
    problem(hand.say("complete", body), 422, "bad_result");
}

fn a_false_permanent_failure_fails_no_job(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_HEARTBEAT_INTERVAL", "60")]);
    let (liar, honest) = (house.worker("liar", &["sleep"]), house.worker("honest", &["sleep"]));
    let job = submit(&house, 1);

    good(liar.fail(&liar.claim_one(), "permanent", "this input is broken"));

    until("the task waits for another", || {
        let why = house.get(&format!("/api/jobs/{job}/why"))["reasons"].to_string();
        why.contains("Worker liar reports a permanent failure") && why.contains("this input is broken")
    });
    let task = honest.claim_one();
    assert!(liar.claim(1, 0).is_empty());
    good(honest.complete(&task, Value::Null));
    completes(&house, job);
    let log = house.get(&format!("/api/jobs/{job}/logs")).to_string();
    assert!(log.contains("another worker or the server has to confirm it"), "{log}");
}

fn a_worker_that_lies_again_and_again_is_suspended(engine: Engine) {
    let house = house(engine);
    let (liar, honest) = (house.worker("liar", &["sleep"]), house.worker("honest", &["sleep"]));
    let job = submit(&house, 2);
    let held = liar.claim(2, 10_000);

    for _ in 0..LIMIT {
        assert!(seen(&house, &liar)["suspended"].is_null());
        lie(&liar, &held[0]);
    }

    let suspended = seen(&house, &liar);
    assert_eq!(suspended["status"], "disabled");
    let why = suspended["suspended"].as_str().unwrap();
    assert!(why.starts_with("5 reports were rejected, the last for a bad result"), "{why}");
    assert!(liar.claim(2, 0).is_empty(), "it gets nothing new");
    for task in &held {
        problem(liar.complete(task, Value::Null), 409, "refused");
    }
    assert_eq!(good(liar.heartbeat(0))["status"], "disabled");
    for _ in &held {
        good(honest.complete(&honest.claim_one(), Value::Null));
    }
    completes(&house, job);

    good(house.admin("POST", &format!("/api/workers/{}/enable", liar.id)).send().unwrap());
    assert!(seen(&house, &liar)["suspended"].is_null());
    let job = submit(&house, 1);
    good(liar.complete(&liar.claim_one(), Value::Null));
    completes(&house, job);
}

/// Otherwise an admin who lets the same liar in twice, because it was suspended, gives it two voices.
fn a_false_failure_of_a_suspended_worker_confirms_no_other(engine: Engine) {
    let house = house(engine);
    let (liar, honest) = (house.worker("liar", &["sleep"]), house.worker("honest", &["sleep"]));
    let job = submit(&house, 2);
    let held = liar.claim(2, 10_000);
    good(liar.fail(&held[0], "permanent", "this input is broken"));
    for _ in 0..LIMIT {
        lie(&liar, &held[1]);
    }
    assert_eq!(seen(&house, &liar)["status"], "disabled");

    let again = house.worker("liar again", &["sleep"]);
    let held = again.claim(2, 10_000);
    assert_eq!(held.len(), 2);
    for task in &held {
        good(again.fail(task, "permanent", "this input is broken too"));
    }

    for _ in 0..2 {
        good(honest.complete(&honest.claim_one(), Value::Null));
    }
    completes(&house, job);
}

fn a_worker_that_uses_others_tokens_is_suspended(engine: Engine) {
    let house = house(engine);
    let (victim, thief) = (house.worker("victim", &["sleep"]), house.worker("thief", &["sleep"]));
    let job = submit(&house, 1);
    let task = victim.claim_one();

    problem(thief.fail(&task, "permanent", "not mine"), 409, "refused");
    problem(thief.complete(&task, Value::Null), 409, "refused");
    assert!(thief.progress(&task, 1).to_string().contains("stale_token"));
    let renewal = json!({ "proof": task["proof"], "progress": 1, "is_renewal": true });
    good(thief.say("progress", json!({ "reports": [renewal, renewal] })));
    assert!(seen(&house, &thief)["suspended"].is_null());
    problem(thief.say("direct", json!({ "proof": task["proof"], "source": true })), 409, "refused");

    let why = seen(&house, &thief)["suspended"].to_string();
    assert!(why.contains("a report on another worker's execution"), "{why}");
    good(victim.complete(&task, Value::Null));
    assert!(seen(&house, &victim)["suspended"].is_null());
    completes(&house, job);
}

fn every_upload_or_failure_that_is_none_counts(engine: Engine) {
    let house = house(engine);
    let (liar, honest) = (house.worker("liar", &["sleep"]), house.worker("honest", &["sleep"]));
    let job = submit(&house, 1);
    let task = liar.claim_one();
    good(liar.put(&task, "a", b"a file").send().unwrap());

    problem(liar.put(&task, ".hidden", b"x").send().unwrap(), 422, "bad_path");
    problem(liar.put(&task, "a/b", b"a is no folder").send().unwrap(), 422, "path_conflict");
    let range = liar.put(&task, "c", b"four").header("content-range", "bytes 0-1/2");
    problem(range.send().unwrap(), 422, "size_mismatch");
    let archive = liar.request("POST", "/api/worker/outputs").body("no archive");
    let archive = archive.header("x-vodmill-proof", liar.proof_header(&task)).send().unwrap();
    problem(archive, 422, "bad_archive");
    assert!(seen(&house, &liar)["suspended"].is_null());
    problem(liar.fail(&task, "lease_expired", "not mine to say"), 422, "bad_failure");

    let why = seen(&house, &liar)["suspended"].to_string();
    assert!(
        why.contains("5 reports were rejected, the last for a failure that no worker can report"),
        "{why}"
    );
    good(honest.complete(&honest.claim_one(), Value::Null));
    completes(&house, job);
}

fn what_a_crash_explains_is_not_held_against_a_worker(engine: Engine) {
    let house = house(engine);
    let hand = house.worker("w", &["sleep"]);
    let job = submit(&house, 2);
    let (done, lost) = (hand.claim_one(), hand.claim_one());
    good(hand.complete(&done, Value::Null));
    good(hand.release(&lost).unwrap());
    let mut forgotten = lost["proof"].clone();
    forgotten["token"] = json!(12345);

    for _ in 0..LIMIT * 2 {
        good(hand.complete(&done, Value::Null));
        problem(hand.complete(&lost, Value::Null), 409, "refused");
        problem(hand.fail(&lost, "transient", "late"), 409, "refused");
        problem(
            hand.fail(&json!({ "proof": forgotten }), "transient", "from before a crash"),
            409,
            "refused",
        );
    }

    assert!(seen(&house, &hand)["suspended"].is_null());
    good(hand.complete(&hand.claim_one(), Value::Null));
    completes(&house, job);
}
