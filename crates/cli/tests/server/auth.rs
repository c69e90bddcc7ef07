//! Every door: without a key, with a wrong one, a revoked one, and the other role's.

use crate::house::{House, SECRET, good, problem};
use crate::on_both_engines;
use crate::support::Engine;
use serde_json::{Value, json};

on_both_engines![
    every_address_is_closed_to_those_who_may_not,
    a_revoked_worker_is_shut_out_and_its_work_is_free
];

/// Everything the OpenAPI document says needs somebody, and what it does not list for being streamed.
fn doors(house: &House) -> Vec<(String, String, &'static str)> {
    let api: Value = good(house.anyone("GET", "/api/openapi.json").send().unwrap());
    let mut doors = Vec::new();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let Some(security) = operation["security"].as_array() else { continue };
            let role = if security.iter().any(|it| it.get("admin").is_some()) {
                "admin"
            } else {
                "worker"
            };
            let path = path.replace("{id}", "1").replace("{language}", "en").replace("{path}", "a");
            doors.push((method.to_uppercase(), path, role));
        }
    }
    let streamed = [
        ("POST", "/api/videos", "admin"),
        ("GET", "/api/worker/source", "worker"),
        ("PUT", "/api/worker/outputs/a", "worker"),
        ("POST", "/api/worker/outputs", "worker"),
    ];
    doors.extend(streamed.map(|(method, path, role)| (method.to_owned(), path.to_owned(), role)));
    doors
}

fn every_address_is_closed_to_those_who_may_not(engine: Engine) {
    let house = House::new(engine);
    let worker = house.worker("w", &[]);
    let revoked = house.worker("gone", &[]);
    house.post(&format!("/api/workers/{}/revoke", revoked.id), json!({}));

    let doors = doors(&house);

    assert!(doors.len() > 30, "{}", doors.len());
    for (method, path, role) in doors {
        let knock = || house.anyone(&method, &path).json(&json!({}));
        let attempts = [
            ("nothing", knock()),
            ("a wrong secret", knock().header("x-admin-secret", "wrong")),
            ("a wrong key", knock().bearer_auth("wrong")),
            ("a key of the right length", knock().bearer_auth("0".repeat(64))),
            ("a revoked key", knock().bearer_auth(&revoked.key)),
            (
                "the other role",
                if role == "admin" {
                    knock().bearer_auth(&worker.key)
                } else {
                    knock().header("x-admin-secret", SECRET)
                },
            ),
        ];
        for (with, attempt) in attempts {
            let answer = attempt.send().unwrap();
            let (status, said) = (answer.status(), answer.text().unwrap());
            assert_eq!(status, 401, "{method} {path} with {with}: {said}");
            assert!(!said.contains("0000000000"), "it repeats the key: {method} {path}: {said}");
        }
    }
}

fn a_revoked_worker_is_shut_out_and_its_work_is_free(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let (first, second) = (house.worker("first", &["sleep"]), house.worker("second", &["sleep"]));
    let job = house.post("/api/jobs", json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1 }] }));
    let lost = first.claim_one();

    house.post(&format!("/api/workers/{}/revoke", first.id), json!({}));

    problem(first.heartbeat(1), 401, "unauthorized");
    problem(first.complete(&lost, Value::Null), 401, "unauthorized");
    let again = second.claim_one();
    good(second.complete(&again, Value::Null));
    crate::support::until("the job ends", || {
        house.get(&format!("/api/jobs/{}", job["id"]))["state"] == "completed"
    });
    house.is_healthy();
}
