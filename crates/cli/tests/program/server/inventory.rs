//! `vodmill doctor --files`: what the database names is there, and nothing else is; and a job of which committed files are
//! gone is made again.

use crate::on_both_engines;
use crate::storage::bucket::Bucket;
use crate::support::house::{Hand, House, good, usage};
use crate::support::seat::Seat;
use crate::support::{Engine, World, until};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

on_both_engines![a_job_of_which_committed_files_are_gone_is_made_again];

const CONTENT: &[u8] = b"committed segment";

fn doctor(house: &House, flags: &[&str]) -> (bool, Vec<String>) {
    let arguments = [&["doctor", "--files", "--json"], flags].concat();
    let mut program = house.world.vodmill(&arguments);
    program = program.env("VODMILL_DATA_FOLDER", house.data().to_str().unwrap());
    for (name, value) in house.settings() {
        program = program.env(name, value);
    }
    let output = program.output();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", crate::support::said(&output)));
    let told = |finding: &Value| {
        format!("{}: {}", finding["subject"].as_str().unwrap(), finding["what"].as_str().unwrap())
    };
    (output.status.success(), report["findings"].as_array().unwrap().iter().map(told).collect())
}

fn is_clean(house: &House) {
    for flags in [&[][..], &["--deep"]] {
        is_clean_with(house, flags);
    }
}

pub fn is_clean_with(house: &House, flags: &[&str]) {
    until("nothing is off", || doctor(house, flags) == (true, Vec::new()));
}

/// Finds one thing, if not at once (a storage may remember its listing for a moment), in which these words are.
fn finds(house: &House, flags: &[&str], words: &[&str]) {
    until(&format!("{words:?} is found"), || {
        let (is_well, findings) = doctor(house, flags);
        !is_well && findings.len() == 1 && words.iter().all(|word| findings[0].contains(word))
    });
}

/// Each kind of damage to a file is found, and it is well again when that is undone.
fn damage_is_found(house: &House, file: &Path, folder: &Path) {
    let name = file.file_name().unwrap().to_str().unwrap();
    let content = fs::read(file).unwrap();
    // What is published may be read-only.
    let put = |content: &[u8]| {
        let _ = fs::remove_file(file);
        fs::write(file, content).unwrap();
    };
    fs::remove_file(file).unwrap();
    finds(house, &[], &[name, "is gone"]);
    put(&content[..content.len() / 2]);
    finds(house, &[], &[name, &format!("not {}", content.len())]);
    let mut changed = content.clone();
    changed[0] ^= 1;
    put(&changed);
    until("sizes are the same", || doctor(house, &[]) == (true, Vec::new()));
    finds(house, &["--deep"], &[name, "has another content"]);
    put(&content);
    fs::write(folder.join("stray.bin"), "x").unwrap();
    finds(house, &[], &["stray.bin", "nothing names it"]);
    fs::remove_file(folder.join("stray.bin")).unwrap();
    is_clean(house);
}

fn complete_with_file(hand: &Hand<'_>, task: &Value) {
    let sha256 = hex::encode(Sha256::digest(CONTENT));
    let file = json!({ "path": "720p/seg.m4s", "bytes": CONTENT.len(), "sha256": sha256 });
    good(hand.put(task, "720p/seg.m4s", CONTENT).send().unwrap());
    let result = json!({ "execution": hand.execution(task), "tracks": [{ "file": file }] });
    good(hand.say(
        "complete",
        json!({ "proof": task["proof"], "result": result, "outputs": [file], "usage": usage() }),
    ));
}

fn fails_for_good(hand: &Hand<'_>) {
    good(hand.fail(&hand.claim_one(), "permanent", "no"));
}

fn a_job_of_which_committed_files_are_gone_is_made_again(engine: Engine) {
    let house = House::with(engine, &[("VODMILL_WORKER_CLAIM_DURATION_MINUTES", "5")]);
    let hand = house.worker("w", &["sleep"]);
    let stage = json!({ "name": "only", "sleep_ms": 1, "segments": 2 });
    let job = house.post("/api/jobs", json!({ "name": "x", "stage": [stage] }))["id"].as_i64().unwrap();
    let committed = hand.claim_one();
    complete_with_file(&hand, &committed);
    is_clean(&house);
    let folder = house.data().join("parts").join(hand.execution(&committed));
    let file = folder.join("720p/seg.m4s");
    damage_is_found(&house, &file, &folder);
    fs::remove_file(&file).unwrap();
    finds(&house, &[], &["is gone", "once the job has failed: vodmill job retry"]);
    fs::write(&file, CONTENT).unwrap();
    // Another remote worker has to confirm what one reports.
    let other = house.worker("other", &["sleep"]);
    fails_for_good(&hand);
    fails_for_good(&other);
    until("the job fails", || house.get(&format!("/api/jobs/{job}"))["state"] == "failed");

    // Whole, it goes on where it was; gone, it is made again.
    assert_eq!(house.post(&format!("/api/jobs/{job}/retry"), json!({}))["id"], job);
    fails_for_good(&other);
    until("the job fails again", || house.get(&format!("/api/jobs/{job}"))["state"] == "failed");
    fs::remove_file(&file).unwrap();
    finds(&house, &[], &["seg.m4s", "is gone", &format!("vodmill job retry {job}")]);
    let again = house.post(&format!("/api/jobs/{job}/retry"), json!({}))["id"].as_i64().unwrap();

    assert_ne!(again, job);
    for about in [job, again] {
        let logs = house.get(&format!("/api/jobs/{about}/logs")).to_string();
        assert!(logs.contains("committed") && logs.contains("are gone"), "{logs}");
    }
    for _ in 0..2 {
        complete_with_file(&hand, &hand.claim_one());
    }
    until("it completes", || house.get(&format!("/api/jobs/{again}"))["state"] == "completed");
    house.is_healthy();
}

#[test]
fn published_files_are_compared_on_a_disk() {
    let house = House::encoding(Engine::Sqlite);
    let data = house.data();
    published_files_are_compared(house, |name| data.join(name));
}

#[test]
fn published_files_are_compared_in_a_bucket() {
    let bucket = Bucket::start();
    let (url, endpoint) = (Bucket::url(), bucket.endpoint());
    let settings = [&[("VODMILL_SERVER_SLOTS", "2")], &Bucket::settings(&url, &endpoint)[..]].concat();
    let house = House::of(World::new(Engine::Sqlite), Seat::take(2), &settings);
    published_files_are_compared(house, |name| bucket.path(name));
}

fn published_files_are_compared(mut house: House, place: impl Fn(&str) -> PathBuf) {
    let video = house.upload(&house.sample("talk.mp4", 2), "name=talk.mp4")["id"].as_i64().unwrap();
    house.video_is(video, "ready");
    until("what the job needed is removed", || doctor(&house, &[]) == (true, Vec::new()));
    // Its janitor removes what this test plants.
    house.stop();
    is_clean(&house);
    let below = |folder: PathBuf| {
        let mut found: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()).collect();
        found.sort();
        found
    };
    let generation = below(place(&format!("videos/{video}"))).pop().unwrap();
    let rendition = below(generation.clone()).into_iter().find(|path| path.is_dir()).unwrap();
    let segment =
        below(rendition.clone()).into_iter().find(|it| it.extension().is_some_and(|it| it == "m4s"));

    damage_is_found(&house, &segment.unwrap(), &rendition);

    for (name, subject) in
        [("parts/7777-0.1-0123456789abcdef/x", "parts/7777-0.1"), ("videos/99/g/x", "videos/99")]
    {
        let file = place(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "x").unwrap();
        finds(&house, &[], &[subject, "nothing names it"]);
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
        if subject == "videos/99" {
            fs::remove_dir_all(file.parent().unwrap().parent().unwrap()).unwrap();
        }
    }
    left_overs_are_found(&house, place("uploads/nobodys/0"));
    let source = below(place("sources")).pop().unwrap();
    let content = fs::read(&source).unwrap();
    fs::write(&source, content.iter().map(|byte| byte ^ 1).collect::<Vec<_>>()).unwrap();
    until("sizes are the same", || doctor(&house, &[]) == (true, Vec::new()));
    finds(&house, &["--deep"], &["its source", "has another content"]);
    fs::write(&source, "cut").unwrap();
    finds(&house, &[], &["its source", "has 3 bytes"]);
}

/// Of executions, uploads and workers that are gone. A worker that has just begun, and one that lives, are none.
fn left_overs_are_found(house: &House, piece: PathBuf) {
    let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    let work = house.world.folder.path().join("work");
    let dead = work.join(uuid::Uuid::now_v7().to_string());
    let incoming = house.data().join("incoming/7777-0.1-0123456789abcdef");
    for (folder, file, subject) in [
        (&incoming, incoming.join("x"), "incoming/7777-0.1"),
        (&piece.parent().unwrap().to_owned(), piece.clone(), "uploads/nobodys"),
        (&dead, dead.join("x"), dead.to_str().unwrap()),
    ] {
        fs::create_dir_all(folder).unwrap();
        fs::write(&file, "x").unwrap();
        fs::File::open(folder).unwrap().set_modified(long_ago).unwrap();
        finds(house, &[], &[subject, "nothing names it"]);
        fs::remove_dir_all(folder).unwrap();
    }
    fs::create_dir_all(&dead).unwrap();
    let lock = fs::File::create(dead.join("lock")).unwrap();
    is_clean(house);
    lock.lock().unwrap();
    fs::File::open(&dead).unwrap().set_modified(long_ago).unwrap();
    is_clean(house);
    fs::remove_dir_all(&dead).unwrap();
}
