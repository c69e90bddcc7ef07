//! A worker with a key of its own goes for executions that another worker holds or has committed.

use super::tree;
use crate::on_both_engines;
use crate::support::house::{Hand, House, good, problem, usage};
use crate::support::{Engine, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;

on_both_engines![
    a_refused_report_deletes_nothing_of_another_execution,
    a_stolen_token_opens_no_route_to_another_worker,
    a_committed_execution_cannot_be_failed_by_its_own_worker,
];

const CONTENT: &[u8] = b"committed segment";

/// A job of two tasks: while the second is open, the output of the first is needed.
fn two_tasks(house: &House) -> i64 {
    let stage = json!({ "name": "only", "sleep_ms": 1, "segments": 2 });
    house.post("/api/jobs", json!({ "name": "x", "stage": [stage] }))["id"].as_i64().unwrap()
}

fn house(engine: Engine) -> House {
    House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")])
}

/// Uploads one file and completes with it.
fn complete_with_file(hand: &Hand<'_>, task: &Value) {
    good(hand.put(task, "720p/seg.m4s", CONTENT).send().unwrap());
    good(hand.say("complete", completion(&task["proof"])));
}

fn completion(proof: &Value) -> Value {
    let sha256 = hex::encode(Sha256::digest(CONTENT));
    let output = json!({ "path": "720p/seg.m4s", "bytes": CONTENT.len(), "sha256": sha256 });
    json!({ "proof": proof, "result": null, "outputs": [output], "usage": usage() })
}

/// What executions have brought and committed.
fn outputs(house: &House) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = tree(&house.data().join("parts"));
    all.extend(tree(&house.data().join("incoming")));
    all
}

/// Reports that end an execution, with this proof.
fn endings(proof: &Value) -> [(&'static str, Value); 4] {
    [
        ("complete", completion(proof)),
        ("complete", json!({ "proof": proof, "result": null, "usage": usage() })),
        ("fail", json!({ "proof": proof, "kind": "permanent", "message": "no", "usage": usage() })),
        ("release", json!({ "proof": proof, "message": "no" })),
    ]
}

fn with(proof: &Value, field: &str, value: Value) -> Value {
    let mut changed = proof.clone();
    changed[field] = value;
    changed
}

fn a_refused_report_deletes_nothing_of_another_execution(engine: Engine) {
    let house = house(engine);
    let (victim, attacker) = (house.worker("victim", &["sleep"]), house.worker("attacker", &["sleep"]));
    let job = two_tasks(&house);
    let (committed, held) = (victim.claim_one(), victim.claim_one());
    complete_with_file(&victim, &committed);
    good(victim.put(&held, "720p/seg.m4s", CONTENT).send().unwrap());
    let before = outputs(&house);
    assert_eq!(before.len(), 2, "{before:?}");

    for target in [&committed["proof"], &held["proof"]] {
        let guess = with(target, "token", json!(1));
        let earlier = with(target, "fence", json!(0));
        let later = with(target, "fence", json!(2));
        for proof in [target, &guess, &earlier, &later] {
            for (operation, body) in endings(proof) {
                problem(attacker.say(operation, body), 409, "refused");
            }
        }
        // Its own key gives the victim no right to guess either.
        for proof in [guess, earlier, later] {
            for (operation, body) in endings(&proof) {
                problem(victim.say(operation, body), 409, "refused");
            }
        }
    }

    assert_eq!(outputs(&house), before, "no byte of the victim's files changed");
    good(victim.say("complete", completion(&held["proof"])));
    until("the job completes", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    house.is_healthy();
}

fn a_stolen_token_opens_no_route_to_another_worker(engine: Engine) {
    let house = house(engine);
    let (victim, thief) = (house.worker("victim", &["sleep"]), house.worker("thief", &["sleep"]));
    let job = two_tasks(&house);
    let held = victim.claim_one();
    good(victim.put(&held, "720p/seg.m4s", CONTENT).send().unwrap());
    let before = outputs(&house);
    let (proof, header) = (&held["proof"], victim.proof_header(&held));

    for (operation, body) in endings(proof) {
        problem(thief.say(operation, body), 409, "refused");
    }
    problem(thief.say("direct", json!({ "proof": proof, "source": true })), 409, "refused");
    problem(thief.put(&held, "720p/seg.m4s", b"another picture").send().unwrap(), 409, "refused");
    for (method, path) in
        [("GET", "source"), ("HEAD", "outputs/720p/seg.m4s"), ("POST", "outputs"), ("PUT", "outputs/new")]
    {
        let request =
            thief.request(method, &format!("/api/worker/{path}")).header("x-vodmill-proof", &header);
        assert_eq!(request.send().unwrap().status(), 409, "{method} {path}");
    }
    for is_renewal in [true, false] {
        let report = json!({ "proof": proof, "progress": 9, "step": "mine", "is_renewal": is_renewal });
        let answers = good(thief.say("progress", json!({ "reports": [report] })))["answers"].clone();
        assert_eq!(answers, json!([{ "answer": "refused", "refusal": "stale_token" }]));
    }

    assert_eq!(outputs(&house), before, "no byte of the victim's files changed");
    let executions = house.get(&format!("/api/jobs/{job}/executions"));
    assert_eq!((executions.as_array().unwrap().len(), &executions[0]["status"]), (1, &json!("LEASED")));
    good(victim.say("complete", completion(proof)));
    good(victim.complete(&victim.claim_one(), Value::Null));
    until("the job completes", || house.get(&format!("/api/jobs/{job}"))["state"] == "completed");
    house.is_healthy();
}

fn a_committed_execution_cannot_be_failed_by_its_own_worker(engine: Engine) {
    let house = house(engine);
    let hand = house.worker("w", &["sleep"]);
    two_tasks(&house);
    let task = hand.claim_one();
    complete_with_file(&hand, &task);
    let before = outputs(&house);

    for (operation, body) in endings(&task["proof"]).into_iter().filter(|(it, _)| *it != "complete") {
        let refused = problem(hand.say(operation, body), 409, "refused");
        assert_eq!(refused["refusal"], "committed_by_you", "{operation}");
    }

    assert_eq!(outputs(&house), before, "its committed output is still there");
    let again = good(hand.say("complete", completion(&task["proof"])));
    assert_eq!(again["answer"], "already_accepted");
}
