//! Steps of a server that people and workers ask for over HTTP. It dies before and after each: before, nothing of it is
//! there; after, all of it; and the database is sound.

use crate::support::Engine;
use crate::support::house::{House, SECRET, usage};
use reqwest::blocking::{RequestBuilder, Response};
use serde_json::json;

/// Also killed elsewhere: going back to an older generation, in `server/videos.rs`, for that needs two.
pub const STEPS: &[&str] = &[
    "submit_video",
    "enroll",
    "introduce",
    "reject",
    "revoke_keys",
    "open_session",
    "close_session",
    "begin_upload",
    "forget_upload",
    "set_caption",
    "delete_caption",
    "set_video_settings",
    "change_video",
    "purge_video",
    "rollback",
];

crate::on_both_engines![a_server_killed_around_what_it_was_asked_for_has_done_all_of_it_or_nothing];

/// What is asked for, and what a count of shows whether it was done.
struct Deed {
    step: &'static str,
    asked: fn(&House, &Scene) -> RequestBuilder,
    count: &'static str,
}

/// What was there before the first kill.
struct Scene {
    worker: String,
    key: String,
    cookie: String,
    upload: String,
}

const DEEDS: [Deed; 13] = [
    Deed {
        step: "submit_video",
        asked: |house, _| house.admin("POST", "/api/videos?slug=second").body("no video either"),
        count: "SELECT (SELECT count(*) FROM video) * 100 + (SELECT count(*) FROM job)",
    },
    Deed {
        step: "enroll",
        asked: |house, _| house.admin("POST", "/api/worker/register").json(&json!({ "name": "new" })),
        count: "SELECT (SELECT count(*) FROM worker WHERE kind = 'remote') * 100 + (SELECT count(*) FROM api_key)",
    },
    Deed {
        step: "introduce",
        asked: |house, scene| {
            let hello = json!({ "hostname": "h", "version": env!("CARGO_PKG_VERSION"), "slots": 1,
                                "capabilities": [], "metadata": {} });
            let body = json!({ "incarnation": uuid::Uuid::now_v7(), "phase": "Startup", "running": 0, "hello": hello });
            house.anyone("POST", "/api/worker/heartbeat").bearer_auth(&scene.key).json(&body)
        },
        count: "SELECT count(*) FROM worker WHERE kind = 'remote' AND incarnation IS NOT NULL AND hostname = 'h'",
    },
    Deed {
        step: "reject",
        asked: |house, _| {
            let hand = house.worker("liar", &["sleep"]);
            let stage = json!({ "name": "only", "sleep_ms": 1 });
            house.post("/api/jobs", json!({ "name": "x", "stage": [stage] }));
            let proof = hand.claim_one()["proof"].clone();
            let body = json!({ "proof": proof, "result": { "execution": "1-0.9" }, "usage": usage() });
            hand.request("POST", "/api/worker/complete").json(&body)
        },
        count: "SELECT max(rejections) FROM worker",
    },
    Deed {
        step: "revoke_keys",
        asked: |house, scene| {
            house.admin("POST", &format!("/api/workers/{}/revoke", scene.worker)).json(&json!({}))
        },
        count: "SELECT count(*) FROM api_key WHERE revoked_at IS NULL",
    },
    Deed {
        step: "open_session",
        asked: |house, _| house.anyone("POST", "/api/session").json(&json!({ "secret": SECRET })),
        count: "SELECT count(*) FROM session",
    },
    Deed {
        step: "close_session",
        asked: |house, scene| house.anyone("DELETE", "/api/session").header("cookie", &scene.cookie),
        count: "SELECT count(*) FROM session",
    },
    Deed { step: "begin_upload", asked: begin, count: "SELECT count(*) FROM upload" },
    Deed {
        step: "forget_upload",
        asked: |house, scene| house.admin("DELETE", &scene.upload).header("tus-resumable", "1.0.0"),
        count: "SELECT count(*) FROM upload",
    },
    Deed {
        step: "set_caption",
        asked: |house, _| {
            house.admin("PUT", "/api/videos/1/captions/en").body("WEBVTT\n\n00:00.000 --> 00:01.000\nhello\n")
        },
        count: "SELECT count(*) FROM caption",
    },
    Deed {
        step: "delete_caption",
        asked: |house, _| house.admin("DELETE", "/api/videos/1/captions/en"),
        count: "SELECT count(*) FROM caption",
    },
    Deed {
        step: "set_video_settings",
        asked: |house, _| {
            let wish = json!({ "settings": { "mp4": true } });
            house.admin("POST", "/api/videos/1/retranscode").json(&wish)
        },
        count: "SELECT count(*) FROM video WHERE settings LIKE '%\"mp4\":true%'",
    },
    Deed {
        step: "change_video",
        asked: |house, _| house.admin("DELETE", "/api/videos/1"),
        count: "SELECT count(*) FROM video WHERE deleted_at IS NOT NULL",
    },
];

fn begin(house: &House, _: &Scene) -> RequestBuilder {
    house.admin("POST", "/api/uploads").header("tus-resumable", "1.0.0").header("upload-length", "10")
}

fn scene(house: &House) -> Scene {
    let first = house.admin("POST", "/api/videos?slug=first").body("no video").send().unwrap();
    assert_eq!(first.status(), 201);
    let worker = house.post("/api/worker/register", json!({ "name": "w" }));
    let text = |name: &str| worker[name].as_str().unwrap().to_owned();
    let signed_in = house.anyone("POST", "/api/session").json(&json!({ "secret": SECRET })).send().unwrap();
    let header = |answer: &Response, name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let cookie = header(&signed_in, "set-cookie").split(';').next().unwrap().to_owned();
    let mut scene = Scene { worker: text("worker_id"), key: text("api_key"), cookie, upload: String::new() };
    let place = header(&begin(house, &scene).send().unwrap(), "location");
    scene.upload = place.strip_prefix(&house.url("")).unwrap_or(&place).to_owned();
    scene
}

fn a_server_killed_around_what_it_was_asked_for_has_done_all_of_it_or_nothing(engine: Engine) {
    let mut house = House::new(engine);
    let scene = scene(&house);
    house.kill();

    for deed in DEEDS {
        dies_at(&mut house, deed.step, deed.count, |house| {
            let answer = (deed.asked)(house, &scene).send();
            assert!(answer.is_err(), "{}: {answer:?}", deed.step);
        });
    }
    // A retention that is over at once.
    house.set("VODMILL_RETENTION_DAYS", "0.0000001");
    dies_at(&mut house, "purge_video", "SELECT count(*) FROM video", |_| {});
}

fn dies_at(house: &mut House, step: &str, count: &'static str, ask: impl Fn(&House)) {
    for (moment, is_done) in [("before", false), ("after", true)] {
        let before = house.world.count(count);
        house.set("VODMILL_FAILPOINT", &format!("{step}.{moment}"));
        house.start();
        ask(house);
        house.dies();
        assert_eq!(house.world.count(count) != before, is_done, "{step}.{moment}");
        house.is_healthy();
    }
}
