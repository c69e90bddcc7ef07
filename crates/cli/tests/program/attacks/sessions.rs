//! What a stolen or old cookie is worth.

use crate::on_both_engines;
use crate::support::Engine;
use crate::support::house::{House, SECRET, good, problem};
use serde_json::{Value, json};
use std::io::Read;

on_both_engines![
    changing_the_secret_ends_every_session,
    sessions_are_listed_and_ended_one_and_all,
    a_stream_of_events_ends_with_its_session,
    signing_out_of_no_session_writes_nothing,
];

/// The cookie of somebody who signs in with this secret.
fn sign_in(house: &House, secret: &str) -> String {
    let request = house.anyone("POST", "/api/session").header("user-agent", "Browser\u{9b}2J 1.0");
    let answer = request.json(&json!({ "secret": secret })).send().unwrap();
    assert_eq!(answer.status(), 204);
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=604800"] {
        assert!(cookie.contains(flag), "{cookie}");
    }
    assert!(!cookie.contains("Secure"), "{cookie}");
    cookie.split(';').next().unwrap().to_owned()
}

fn status(house: &House, cookie: &str) -> u16 {
    house.anyone("GET", "/api/videos").header("cookie", cookie).send().unwrap().status().as_u16()
}

fn changing_the_secret_ends_every_session(engine: Engine) {
    let mut house = House::new(engine);
    let cookie = sign_in(&house, SECRET);
    assert_eq!(status(&house, &cookie), 200);

    house.kill();
    house.set("VODMILL_ADMIN_SECRET", "another secret of twenty or more");
    house.start();

    assert_eq!(status(&house, &cookie), 401);
    let secret = "another secret of twenty or more";
    let listed = good(house.anyone("GET", "/api/sessions").header("x-admin-secret", secret).send().unwrap());
    assert_eq!(listed, json!([]));
    let new = sign_in(&house, secret);
    assert_eq!((status(&house, &new), status(&house, &cookie)), (200, 401));
}

fn sessions_are_listed_and_ended_one_and_all(engine: Engine) {
    let house = House::new(engine);
    let [first, second, third] = [0; 3].map(|_| sign_in(&house, SECRET));

    let listed = house.get("/api/sessions");

    let listed = listed.as_array().unwrap();
    assert_eq!((listed.len(), &listed[0]["client"]), (3, &json!("127.0.0.1")));
    assert!(!listed[0]["user_agent"].as_str().unwrap().contains('\u{9b}'), "{listed:?}");
    let of_first = house.anyone("GET", "/api/sessions").header("cookie", &first).send().unwrap();
    let current: Vec<Value> =
        good(of_first).as_array().unwrap().iter().map(|it| it["is_current"].clone()).collect();
    assert_eq!(current.iter().filter(|it| **it == true).count(), 1, "a browser sees which is its own");
    assert!(listed.iter().all(|it| it["is_current"] == false), "the secret is no session");
    let said = Value::from(listed.clone()).to_string();
    for cookie in [&first, &second, &third] {
        assert!(!said.contains(cookie.trim_start_matches("vodmill=")), "a token is listed");
    }
    let newest = listed[0]["id"].as_str().unwrap();
    let end = |path: &str| house.admin("DELETE", path).send().unwrap();
    assert_eq!(end(&format!("/api/sessions/{newest}")).status(), 204);
    problem(end(&format!("/api/sessions/{newest}")), 404, "not_found");
    problem(end("/api/sessions/nonsense"), 404, "not_found");
    let open = [&first, &second, &third].into_iter().filter(|cookie| status(&house, cookie) == 200).count();
    assert_eq!(open, 2);

    let server = house.url("");
    let command = |args: &[&str]| {
        let args = [&["--server", &server], args].concat();
        house.world.vodmill(&args).env("VODMILL_ADMIN_SECRET", SECRET)
    };
    assert_eq!(command(&["sessions", "--json"]).json().as_array().unwrap().len(), 2);
    command(&["sessions", "end"]).ends_with(2);
    let by_database = house.world.vodmill(&["sessions", "--json"]).json();
    assert_eq!(by_database.as_array().unwrap().len(), 2);
    assert_eq!(command(&["sessions", "end", "--all", "--json"]).json()["ended"], 2);
    for cookie in [&first, &second, &third] {
        assert_eq!(status(&house, cookie), 401);
    }
    // A cookie that never was one costs nothing and opens nothing.
    for cookie in
        ["vodmill=", "vodmill=x", &format!("vodmill={}", "0".repeat(64)), "vodmill='; DROP TABLE session"]
    {
        assert_eq!(status(&house, cookie), 401, "{cookie}");
    }
}

fn a_stream_of_events_ends_with_its_session(engine: Engine) {
    let house = House::new(engine);
    let cookie = sign_in(&house, SECRET);
    let mut events = house.anyone("GET", "/api/events").header("cookie", &cookie).send().unwrap();
    assert_eq!(events.status(), 200);

    good(house.admin("DELETE", "/api/sessions").send().unwrap());

    // It would go on for ever; the client has a deadline.
    let mut said = Vec::new();
    events.read_to_end(&mut said).unwrap();
}

#[test]
fn behind_a_proxy_that_encrypts_the_cookie_is_secure() {
    let house = House::new(Engine::Sqlite);

    let request = house.anyone("POST", "/api/session").header("x-forwarded-proto", "https");
    let answer = request.json(&json!({ "secret": SECRET })).send().unwrap();

    assert!(answer.headers()["set-cookie"].to_str().unwrap().ends_with("; Secure"));
}

fn signing_out_of_no_session_writes_nothing(engine: Engine) {
    let house = House::new(engine);
    let cookie = sign_in(&house, SECRET);
    let sign_out = |cookie: &str| {
        house.anyone("DELETE", "/api/session").header("cookie", cookie).send().unwrap().status().as_u16()
    };
    // Only a session that is open is removed, so only that takes part in the writing.
    house.world.execute("UPDATE session SET expires_at = 1");
    let kept = || house.world.count("SELECT count(*) FROM session");

    for none in ["vodmill=x", &format!("vodmill={}", "0".repeat(64)), &cookie] {
        assert_eq!((sign_out(none), kept()), (204, 1), "{none}");
    }

    house.world.execute("UPDATE session SET expires_at = 9000000000000");
    assert_eq!((status(&house, &cookie), sign_out(&cookie), kept()), (200, 204, 0));
    assert_eq!(status(&house, &cookie), 401);
}
