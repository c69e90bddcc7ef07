//! Every door: without a key, with a wrong one, a revoked one, and the other role's.

use crate::on_both_engines;
use crate::support::house::{House, SECRET, good, problem};
use crate::support::{Engine, World};
use serde_json::{Value, json};

on_both_engines![
    every_address_is_closed_to_those_who_may_not,
    a_revoked_worker_is_shut_out_and_its_work_is_free,
    who_guesses_is_told_to_wait_and_who_was_let_in_before_is_not,
];

/// Everything that the OpenAPI document says needs somebody.
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
    doors
}

fn every_address_is_closed_to_those_who_may_not(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_AUTH_FAILURES_PER_MINUTE", "1000000")]);
    let worker = house.worker("w", &[]);
    let revoked = house.worker("gone", &[]);
    house.post(&format!("/api/workers/{}/revoke", revoked.id), json!({}));

    let doors = doors(&house);

    assert!(doors.len() > 40, "{}", doors.len());
    for (method, path, role) in doors {
        let knock = || house.anyone(&method, &path).header("tus-resumable", "1.0.0").json(&json!({}));
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

fn who_guesses_is_told_to_wait_and_who_was_let_in_before_is_not(engine: Engine) {
    let mut house = House::with(engine, &[("VODMILL_CLIENT_ADDRESS_HEADER", "X-Forwarded-For")]);
    let key =
        house.post("/api/worker/register", json!({ "name": "w" }))["api_key"].as_str().unwrap().to_owned();
    let guesser = "203.0.113.9, 198.51.100.7";

    guesses_too_often(&house, guesser);

    let admin = |house: &House, from: &str| {
        from_there(house, from, "GET", "/api/videos").header("x-admin-secret", SECRET).send().unwrap()
    };
    good(admin(&house, guesser));
    let hello = json!({ "hostname": "h", "version": env!("CARGO_PKG_VERSION"), "slots": 1, "capabilities": [], "metadata": {} });
    let hello =
        json!({ "incarnation": uuid::Uuid::now_v7(), "phase": "Startup", "running": 0, "hello": hello });
    let first = from_there(&house, guesser, "POST", "/api/worker/heartbeat").bearer_auth(&key).json(&hello);
    good(first.send().unwrap());
    let without = from_there(&house, guesser, "GET", "/api/videos").send().unwrap();
    problem(without, 401, "unauthorized");

    // A server that has let in nobody yet does not even look at the right secret.
    house.kill();
    house.start();
    guesses_too_often(&house, guesser);
    problem(admin(&house, guesser), 429, "too_many_guesses");
    good(admin(&house, "198.51.100.8"));
    good(admin(&house, guesser));
}

/// As the proxy tells it.
fn from_there(house: &House, from: &str, method: &str, path: &str) -> reqwest::blocking::RequestBuilder {
    house.anyone(method, path).header("x-forwarded-for", from)
}

fn guesses_too_often(house: &House, from: &str) {
    let guess = |n: usize| match n % 3 {
        0 => from_there(house, from, "GET", "/api/videos").header("x-admin-secret", format!("guess {n}")),
        1 => from_there(house, from, "POST", "/api/session").json(&json!({ "secret": format!("guess {n}") })),
        _ => from_there(house, from, "POST", "/api/worker/claim")
            .bearer_auth(format!("{n:064}"))
            .json(&json!({})),
    };
    for n in 0..10 {
        problem(guess(n).send().unwrap(), 401, "unauthorized");
    }
    for n in 10..13 {
        let answer = guess(n).send().unwrap();
        let wait: u64 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=61).contains(&wait), "{wait}");
        problem(answer, 429, "too_many_guesses");
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

/// As somebody has it who has just unpacked the program; only the port is given, for others may have the usual one.
#[test]
fn with_no_settings_a_server_makes_itself_a_secret_and_shows_it_once() {
    let world = World::bare(Engine::Sqlite);
    let log = world.folder.path().join("serve.log");
    let start = || {
        let before = std::fs::read_to_string(&log).unwrap_or_default().len();
        let mut program = world.vodmill(&["serve"]).env("VODMILL_LISTEN", "127.0.0.1:0");
        for name in ["VODMILL_DATABASE_URL", "VODMILL_WORK_FOLDER", "VODMILL_DATABASE_CONNECTIONS"] {
            program.command.env_remove(name);
        }
        let (process, address) = program.start_serving(&log);
        (process, address, std::fs::read_to_string(&log).unwrap()[before..].to_owned())
    };

    let (mut process, _, said) = start();
    let shown = std::fs::read_to_string(log.with_extension("out")).unwrap();
    let (_, secret) = shown.split_once("shown this once: ").unwrap();
    let secret = secret.lines().next().unwrap().to_owned();
    process.kill();
    let (_process, address, again) = start();

    assert!(!said.contains(&secret) && !again.contains(&secret), "the log: {said}{again}");
    assert_eq!(std::fs::read_to_string(log.with_extension("out")).unwrap(), shown, "shown once");
    let videos = format!("http://{address}/api/videos");
    let ask = |secret: &str| {
        let client = crate::support::http().build().unwrap();
        client
            .post(&videos)
            .header("x-admin-secret", secret)
            .body("no video")
            .send()
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!((ask("another secret, which is wrong"), ask(&secret)), (401, 201));
    assert!(world.folder.path().join("vodmill-data").is_dir());
}
