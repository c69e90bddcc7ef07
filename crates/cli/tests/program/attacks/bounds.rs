//! A worker declares more than an admin allowed it: other kinds of work, the server's own kinds, another pool.

use crate::on_both_engines;
use crate::support::house::{House, good, problem};
use crate::support::{Engine, until};
use serde_json::{Value, json};

on_both_engines![
    a_worker_gets_no_more_than_it_was_allowed,
    a_worker_holds_no_more_than_it_declared_slots,
    the_servers_own_work_is_offered_to_no_worker,
    a_pooled_worker_is_registered_and_seen_from_the_command_line,
];

fn submit(house: &House, more: Value) -> i64 {
    let mut job = json!({ "name": "x", "stage": [{ "name": "only", "sleep_ms": 1 }] });
    job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    house.post("/api/jobs", job)["id"].as_i64().unwrap()
}

fn a_worker_gets_no_more_than_it_was_allowed(engine: Engine) {
    let house = House::new(engine);
    let registration = json!({ "name": "bounded", "capabilities": ["noop"], "metadata": { "rack": 4 } });
    let bounded = house.worker_as(registration, &["noop", "sleep", "pool:eu"]);
    let of_ann = house.worker_as(json!({ "name": "of-ann", "users": ["ann"] }), &["sleep"]);
    let in_eu = house.worker_as(json!({ "name": "in-eu", "pool": "eu" }), &["sleep"]);

    let unpooled = submit(&house, json!({}));
    assert!(
        bounded.claim(10, 0).is_empty() && of_ann.claim(10, 0).is_empty() && in_eu.claim(10, 0).is_empty()
    );
    let why = house.get(&format!("/api/jobs/{unpooled}/why"))["reasons"].to_string();
    assert!(why.contains("of-ann (users ann)") && why.contains("in-eu (pool eu)"), "{why}");
    submit(&house, json!({ "user": "ann" }));
    good(of_ann.complete(&of_ann.claim_one(), Value::Null));
    let pooled = submit(&house, json!({ "pool": "eu" }));
    good(in_eu.complete(&in_eu.claim_one(), Value::Null));
    until("the pooled job completes", || house.get(&format!("/api/jobs/{pooled}"))["state"] == "completed");

    assert!(
        bounded.claim(10, 0).is_empty() && of_ann.claim(10, 0).is_empty() && in_eu.claim(10, 0).is_empty()
    );
    let seen = house.get("/api/workers");
    let of = |name: &str| seen.as_array().unwrap().iter().find(|it| it["name"] == name).unwrap().clone();
    assert_eq!((&of("bounded")["capabilities"], &of("bounded")["granted"]), (&json!("noop"), &json!("noop")));
    assert_eq!(of("bounded")["registered_metadata"], json!({ "rack": 4 }));
    assert_eq!(of("of-ann")["users"], json!(["ann"]));
    assert_eq!(of("in-eu")["pool"], "eu");
}

fn a_worker_holds_no_more_than_it_declared_slots(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "10")]);
    let (greedy, honest) = (house.worker("greedy", &["sleep"]), house.worker("honest", &["sleep"]));
    good(greedy.declare(2));
    let stage = |tasks: u32| json!({ "stage": [{ "name": "only", "sleep_ms": 1, "segments": tasks }] });
    submit(&house, stage(100));
    until("there is work", || {
        good(honest.say("claim", json!({ "incarnation": honest.incarnation, "max": 0, "wait_ms": 0 })))["has_work"]
            == true
    });

    let held: Vec<Value> = std::thread::scope(|scope| {
        let claims: Vec<_> = (0..6).map(|_| scope.spawn(|| greedy.claim(100, 0))).collect();
        claims.into_iter().flat_map(|claim| claim.join().unwrap()).collect()
    });
    assert_eq!(held.len(), 2, "however many claims come at once");
    assert!(greedy.claim(100, 0).is_empty());
    good(greedy.complete(&held[0], Value::Null));
    let next = greedy.claim(100, 0);
    assert_eq!(next.len(), 1, "for the slot that is free");
    good(greedy.release(&next[0]).unwrap());
    assert_eq!(greedy.claim(1, 0).len(), 1);

    good(greedy.declare(1_000_000));
    assert_eq!(greedy.claim(100, 0).len(), 62, "64 are the most a worker may declare");
    assert_eq!(honest.claim(1, 0).len(), 1);
}

fn the_servers_own_work_is_offered_to_no_worker(engine: Engine) {
    let house = House::new(engine);
    let own = ["ingest", "plan", "package", "measure", "publish"];
    for kind in own {
        let asked = json!({ "name": "greedy", "capabilities": [kind] });
        problem(
            house.admin("POST", "/api/worker/register").json(&asked).send().unwrap(),
            422,
            "bad_capability",
        );
    }
    let greedy = house.worker("greedy", &own);
    let seen = house.get("/api/workers");
    let seen = seen.as_array().unwrap().iter().find(|it| it["name"] == "greedy").unwrap();
    assert_eq!(seen["capabilities"], "", "what it declared was dropped");

    house
        .admin("POST", "/api/videos")
        .json(&json!({ "url": "https://user:password@203.0.113.1/x" }))
        .send()
        .unwrap();
    assert!(greedy.claim(10, 2_000).is_empty(), "it is not offered the import, nor its password");
}

fn a_pooled_worker_is_registered_and_seen_from_the_command_line(engine: Engine) {
    let house = House::new(engine);
    let server = house.url("");
    let say = |words: &[&str]| {
        let words: Vec<&str> = words.iter().copied().chain(["--server", &server]).collect();
        house.world.vodmill(&words).env("VODMILL_ADMIN_SECRET", crate::support::house::SECRET)
    };

    let register =
        ["workers", "register", "studio", "--pool", "eu", "--user", "ann,bea", "--allow", "encode,libx264"];
    say(&register).succeeds();

    let listed = say(&["workers", "--json"]).json();
    let studio = listed.as_array().unwrap().iter().find(|it| it["name"] == "studio").unwrap().clone();
    assert_eq!((&studio["pool"], &studio["users"]), (&json!("eu"), &json!(["ann", "bea"])));
    assert_eq!(studio["granted"], "encode,libx264");
    let shown = say(&["workers"]).succeeds();
    assert!(shown.contains("pool eu; users ann, bea"), "{shown}");
}
