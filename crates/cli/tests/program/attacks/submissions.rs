//! Jobs submitted over HTTP that ask for the server's own kinds of work, for its files, or for private networks.

use crate::on_both_engines;
use crate::support::house::{House, good, problem};
use crate::support::{Engine, until};
use serde_json::{Value, json};
use std::path::Path;

on_both_engines![
    a_job_over_http_cannot_use_the_servers_own_kinds,
    effects_over_http_stay_in_their_folder,
    a_video_request_carries_no_permissions_of_its_own,
];

const KINDS: (&str, &str) = ("VODMILL_API_JOB_KINDS", "noop,sleep");

fn job(stage: Value) -> Value {
    json!({ "name": "x", "stage": [stage] })
}

fn refused(house: &House, stage: Value, code: &str) {
    problem(house.admin("POST", "/api/jobs").json(&job(stage)).send().unwrap(), 422, code);
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap()
}

fn a_job_over_http_cannot_use_the_servers_own_kinds(engine: Engine) {
    let house = House::with(engine, &[KINDS]);
    let victim = house.world.folder.path().join("victim");
    std::fs::write(&victim, "precious").unwrap();
    let to = victim.to_str().unwrap();

    let fetch =
        json!({ "url": house.url("/health"), "to": to, "max_bytes": 1_000_000, "allow_private": true });
    refused(&house, json!({ "name": "a", "kind": "ingest", "with": fetch }), "kind_not_public");
    let publish = json!({ "video": 1, "output": house.data(), "generation": "x" });
    refused(&house, json!({ "name": "a", "kind": "publish", "with": publish }), "kind_not_public");
    for kind in [
        "probe",
        "plan",
        "encode",
        "encode_optional",
        "audio",
        "subtitles",
        "thumbnails",
        "package",
        "measure",
    ] {
        let with = json!({ "source": to });
        refused(&house, json!({ "name": "a", "kind": kind, "with": with }), "kind_not_public");
    }
    refused(&house, json!({ "name": "a", "run": ["touch", "/tmp/x"] }), "kind_not_public");
    refused(
        &house,
        json!({ "name": "a", "kind": "command", "with": { "run": ["true"] } }),
        "kind_not_public",
    );

    assert_eq!(house.get("/api/jobs")["items"], json!([]), "nothing was submitted");
    assert_eq!(text(&victim), "precious");
    let hand = house.worker("w", &["sleep"]);
    let id = house.post("/api/jobs", job(json!({ "name": "a", "sleep_ms": 1 })))["id"].as_i64().unwrap();
    good(hand.complete(&hand.claim_one(), Value::Null));
    until("an honest job completes", || house.get(&format!("/api/jobs/{id}"))["state"] == "completed");
    house.is_healthy();
}

fn effects_over_http_stay_in_their_folder(engine: Engine) {
    let mut house = House::with(engine, &[KINDS]);
    let at = |name: &str| house.world.folder.path().join(name);
    let (folder, victim) = (at("effects"), at("victim"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, folder.join("link")).unwrap();
    let stage = |path: &str| json!({ "name": "a", "sleep_ms": 1, "effect": { "append": path } });
    refused(&house, stage("lines"), "effects_disabled");

    house.stop();
    house.set("VODMILL_API_EFFECTS_FOLDER", folder.to_str().unwrap());
    house.start();
    for path in [victim.to_str().unwrap(), "../victim", "a/../../victim", "a/b", ".hidden", ""] {
        refused(&house, stage(path), "bad_effect");
    }
    let elsewhere = json!({ "append_in": { "folder": "/", "name": "victim" } });
    refused(&house, json!({ "name": "a", "sleep_ms": 1, "effect": elsewhere }), "bad_effect");
    let hand = house.worker("w", &["sleep"]);
    for path in ["link", "lines"] {
        house.post("/api/jobs", job(stage(path)));
        good(hand.complete(&hand.claim_one(), Value::Null));
    }

    until("the honest effect is delivered", || folder.join("lines").exists());
    until("the server says why the other is not", || {
        text(&house.log()).contains("/link, trying again later")
    });
    assert_eq!(text(&victim), "precious");
}

fn a_video_request_carries_no_permissions_of_its_own(engine: Engine) {
    let house = House::new(engine);
    let address = house.url("/health");

    let private = house.admin("POST", "/api/videos").json(&json!({ "url": address })).send().unwrap();
    problem(private, 422, "bad_url");
    for (field, value) in [
        ("allow_private", json!(true)),
        ("max_bytes", json!(1)),
        ("to", json!("/tmp/x")),
        ("source", json!("/etc/passwd")),
        ("output", json!("/tmp")),
        ("carry", json!("/tmp")),
        ("webhook", json!("http://127.0.0.1/")),
        ("callback_url", json!("http://127.0.0.1/")),
        ("watch_folder", json!("/")),
        ("kind", json!("ingest")),
    ] {
        let asked = json!({ "url": "https://example.org/x.mp4", field: value });
        let refused = house.admin("POST", "/api/videos").json(&asked).send().unwrap();
        assert!(matches!(refused.status().as_u16(), 400 | 422), "{field}");
        let settings = json!({ field: asked[field] });
        let asked = json!({ "url": "https://example.org/x.mp4", "settings": settings });
        let refused = house.admin("POST", "/api/videos").json(&asked).send().unwrap();
        assert!(matches!(refused.status().as_u16(), 400 | 422), "settings.{field}");
    }
    assert_eq!(house.get("/api/videos")["items"], json!([]), "nothing was submitted");
}
