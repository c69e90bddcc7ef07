//! A worker lies in its results: about names, tracks, segments and stages.

use super::forged;
use super::tree;
use crate::on_both_engines;
use crate::support::house::{Hand, House, good, problem};
use crate::support::{Engine, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

on_both_engines![
    a_worker_elsewhere_is_given_nothing_that_decides_what_is_published,
    no_name_in_a_result_leads_anywhere,
    a_result_of_another_stage_or_shape_is_not_taken,
];

/// Every kind of work there is, and some there is not.
const ALL_KINDS: &[&str] = &[
    "ingest",
    "probe",
    "plan",
    "encode",
    "encode_optional",
    "audio",
    "subtitles",
    "thumbnails",
    "package",
    "measure",
    "publish",
    "libx264",
    "unknown-kind",
];

fn house(engine: Engine) -> House {
    // One liar tells all lies: it is not suspended in between.
    let settings = [("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5"), ("VODMILL_WORKER_SUSPEND_AFTER", "0")];
    House::with(engine, &settings)
}

/// A task of this kind; others are given back until it comes.
pub fn claim_of(hand: &Hand<'_>, kind: &str) -> Value {
    let mut found = Value::Null;
    until(&format!("there is a task of kind {kind}"), || {
        for task in hand.claim(1, 1000) {
            if task["kind"] == kind {
                found = task;
            } else {
                good(hand.release(&task).unwrap());
            }
        }
        !found.is_null()
    });
    found
}

/// Does honestly what is left of a video.
pub fn finish(house: &House, hand: &Hand<'_>, file: &Path, video: i64) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    until("the video is ready", || {
        for task in hand.claim(1, 500) {
            kinds.insert(task["kind"].as_str().unwrap().to_owned());
            good(forged::make(&task, file).hand_in(hand, &task));
        }
        let state = house.get(&format!("/api/videos/{video}"))["state"].clone();
        assert_ne!(state, "failed");
        state == "ready"
    });
    kinds
}

fn a_worker_elsewhere_is_given_nothing_that_decides_what_is_published(engine: Engine) {
    let house = house(engine);
    let hand = house.worker("greedy", ALL_KINDS);
    let file = house.sample("a.mp4", 4);

    house.upload(&file, "slug=talk");
    let kinds = finish(&house, &hand, &file, 1);

    let others: Vec<&String> =
        kinds.iter().filter(|kind| !["audio", "encode"].contains(&kind.as_str())).collect();
    assert!(kinds.contains("encode") && others.is_empty(), "{kinds:?}");
    let workers = house.get("/api/workers");
    let greedy = workers.as_array().unwrap().iter().find(|it| it["name"] == "greedy").unwrap();
    assert_eq!(greedy["capabilities"], "audio,encode,encode_optional,libx264,unknown-kind");
    house.is_healthy();
}

const ASTRAY: &[&str] = &[
    "../../videos/1/x",
    "/tmp/vodmill-was-here",
    "..",
    "a/../../b",
    "http://127.0.0.1:9/x",
    "tcp://127.0.0.1:9",
    "",
    ".hidden",
    "-y",
    "x\n#EXT-X-ENDLIST",
    "%d",
    "720p\0",
];

/// Each place of a result in which a later stage could take a text for a name, with another text in it.
fn lies(honest: &Value) -> Vec<Value> {
    let places = [
        "/execution",
        "/tracks/0/name",
        "/tracks/0/codec",
        "/tracks/0/init/path",
        "/tracks/0/init/sha256",
        "/tracks/0/segments/0/file/path",
    ];
    let changed = |place: &str, text: &str| {
        let mut lie = honest.clone();
        *lie.pointer_mut(place).unwrap() = json!(text);
        lie
    };
    places.iter().flat_map(|place| ASTRAY.iter().map(move |text| changed(place, text))).collect()
}

fn no_name_in_a_result_leads_anywhere(engine: Engine) {
    let house = house(engine);
    let hand = house.worker("liar", ALL_KINDS);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=victim");
    finish(&house, &hand, &file, 1);
    house.upload(&file, "slug=own");
    let (videos, task) = (tree(&house.data().join("videos")), claim_of(&hand, "encode"));
    let made = forged::make(&task, &file);
    made.upload(&hand, &task);
    let honest = made.result(&task);

    for lie in lies(&honest) {
        let refused = problem(made.complete_with(&hand, &task, lie), 422, "bad_result");
        assert!(!refused["detail"].as_str().unwrap().contains('\n'), "{refused}");
    }
    // A later stage would write below the name of the track, wherever its files are.
    let mut lie = honest.clone();
    lie["tracks"][0]["name"] = json!("another");
    problem(made.complete_with(&hand, &task, lie), 422, "bad_result");

    assert_eq!(tree(&house.data().join("videos")), videos, "what is published did not change");
    assert!(!house.world.folder.path().join("x").exists());
    // Nothing of it counts against the task: the truth is still taken.
    good(made.complete_with(&hand, &task, honest));
    finish(&house, &hand, &file, 2);
    house.is_healthy();
}

fn a_result_of_another_stage_or_shape_is_not_taken(engine: Engine) {
    let house = house(engine);
    let hand = house.worker("liar", ALL_KINDS);
    let file = house.sample("a.mp4", 4);
    house.upload(&file, "slug=own");
    let task = claim_of(&hand, "encode");
    let made = forged::make(&task, &file);
    made.upload(&hand, &task);
    let honest = made.result(&task);
    let with = |place: &str, value: Value| {
        let mut lie = honest.clone();
        *lie.pointer_mut(place).unwrap() = value;
        lie
    };

    for lie in [
        Value::Null,
        json!({}),
        json!([honest]),
        task["results"]["plan"][0].clone(),
        json!({ "execution": honest["execution"], "files": made.outputs() }),
        json!({ "generation": "g", "packaged": { "execution": honest["execution"], "files": made.outputs() } }),
        with("/tracks", json!([])),
        with("/tracks", json!([honest["tracks"][0], honest["tracks"][0]])),
        with("/tracks/0/timescale", json!(1)),
        with("/tracks/0/shape", json!({ "video": { "width": 2, "height": 2, "frame_rate": "25/1" } })),
        with("/tracks/0/segments/0/number", json!(7)),
        with("/tracks/0/segments/0/start", json!(1)),
        with("/tracks/0/segments/0/samples", json!(u32::MAX)),
        with("/tracks/0/segments/0/file/bytes", json!(1)),
        with("/tracks/0/segments/0/file/sha256", json!("00".repeat(32))),
        with("/tracks/0/segments/0/key_frames", json!([])),
        with("/tracks/0/segments", json!([])),
        with("/tracks/0/codec", json!("vp09")),
    ] {
        problem(made.complete_with(&hand, &task, lie), 422, "bad_result");
    }
    // A file more than the task makes, and another one than the result names.
    problem(hand.put(&task, "more/file.mp4", b"more").send().unwrap(), 413, "too_large");
    good(hand.release(&task).unwrap());
    let task = claim_of(&hand, "encode");
    good(hand.put(&task, "more/file.mp4", b"more").send().unwrap());
    problem(made.complete_with(&hand, &task, made.result(&task)), 422, "output_mismatch");
    let log = std::fs::read_to_string(house.log()).unwrap();
    assert!(log.contains(&format!("of worker {}: ", hand.id)), "an operator can see it");

    good(hand.release(&task).unwrap());
    finish(&house, &hand, &file, 1);
    house.is_healthy();
}
