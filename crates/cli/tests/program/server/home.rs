//! The server's page, in a real browser, and the cookie it works by.

use crate::on_both_engines;
use crate::support::Engine;
use crate::support::house::{House, SECRET, problem};
use reqwest::blocking::Response;
use serde_json::json;
use std::process::Command;

on_both_engines![a_cookie_stands_for_the_secret_on_the_servers_own_page];

#[test]
fn somebody_signs_in_adds_a_video_ends_sessions_and_signs_out() {
    let house = House::encoding(Engine::Sqlite);
    let file = house.sample("My talk.mp4", 2);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/browser/home.mjs");

    let seen = Command::new("node").args([script, &house.url("/"), SECRET]).arg(file).output();

    let seen = seen.expect("node is needed");
    assert!(
        seen.status.success(),
        "{}{}",
        String::from_utf8_lossy(&seen.stdout),
        String::from_utf8_lossy(&seen.stderr)
    );
    assert_eq!(house.get("/api/videos/my-talk")["state"], "ready");
}

fn a_cookie_stands_for_the_secret_on_the_servers_own_page(engine: Engine) {
    let house = House::new(engine);
    let sign_in = |secret: &str| {
        house.anyone("POST", "/api/session").json(&json!({ "secret": secret })).send().unwrap()
    };
    let set = |answer: &Response| answer.headers()["set-cookie"].to_str().unwrap().to_owned();

    problem(sign_in("wrong"), 401, "unauthorized");
    let given = sign_in(SECRET);
    assert_eq!(given.status(), 204);
    let given = set(&given);
    let cookie = given.split(';').next().unwrap().to_owned();
    let with = |method: &str, path: &str| house.anyone(method, path).header("cookie", &cookie);
    let own = house.url("");

    assert!(given.contains("HttpOnly") && given.contains("SameSite=Strict"), "{given}");
    assert!(!given.contains(SECRET));
    assert_eq!(with("GET", "/api/videos").send().unwrap().status(), 200);
    let post = || with("POST", "/api/videos/1/restore").json(&json!({}));
    problem(post().send().unwrap(), 401, "unauthorized");
    problem(post().header("origin", "https://evil.example").send().unwrap(), 401, "unauthorized");
    problem(post().header("origin", &own).send().unwrap(), 404, "not_found");
    problem(
        house.anyone("GET", "/api/videos").header("cookie", "vodmill=").send().unwrap(),
        401,
        "unauthorized",
    );

    let taken = with("DELETE", "/api/session").send().unwrap();
    assert!(set(&taken).contains("Max-Age=0"));
    problem(with("GET", "/api/videos").send().unwrap(), 401, "unauthorized");
}
