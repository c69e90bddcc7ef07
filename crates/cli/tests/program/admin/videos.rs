//! Videos, from a file on the admin's disk to a stream and back.

use super::proxy::Line;
use super::{asking, both, here, there};
use crate::on_both_engines;
use crate::support::house::House;
use crate::support::{Engine, until};
use serde_json::Value;
use std::process::Stdio;

on_both_engines![
    a_video_is_submitted_watched_made_again_deleted_and_restored,
    an_upload_goes_on_after_a_cut_and_a_killed_server,
    an_upload_is_one_video_though_the_server_dies_while_it_makes_it,
];

fn a_video_is_submitted_watched_made_again_deleted_and_restored(engine: Engine) {
    let house = House::encoding(engine);
    let file = house.sample("My talk.mp4", 3);
    let file = file.to_str().unwrap();

    let args = ["submit", file, "--title", "A talk", "--early-playback", "--mp4", "--watch"];
    let said = there(&house, &args).succeeds();
    assert!(said.contains("submitted video 1 (a-talk), job 1"), "{said}");
    assert!(said.contains(&format!("video 1 is ready: {}", house.url("/watch/a-talk"))), "{said}");
    let shown = both(&house, &["video", "show", "a-talk"]);
    assert_eq!((&shown["state"], &shown["title"]), (&"ready".into(), &"A talk".into()));
    assert_eq!(shown["is_early_playback"], true);
    let generation = std::fs::read_dir(house.data().join("videos/1")).unwrap().next().unwrap().unwrap();
    assert!(generation.path().join("video.mp4").exists(), "the file that --mp4 asks for");

    there(&house, &["video", "retranscode", "a-talk", "--rungs", "144p"]).ends_with(2);
    there(&house, &["video", "retranscode", "a-talk", "--watch"]).succeeds();
    here(&house, &["video", "retranscode", "1", "--watch"]).succeeds();
    let generations = both(&house, &["video", "show", "1"])["generations"].as_array().unwrap().clone();
    assert_eq!(generations.len(), 3);
    let back = there(&house, &["video", "rollback", "a-talk", "--json"]).json();
    assert_eq!(back["generation"], generations[1]["id"]);
    let oldest = generations[2]["id"].to_string();
    here(&house, &["video", "rollback", "1", "--to", &oldest]).succeeds();
    there(&house, &["video", "rollback", "1"]).ends_with(2);

    assert!(there(&house, &["video", "delete", "a-talk"]).succeeds().contains("video 1 (a-talk) is deleted"));
    assert_eq!(both(&house, &["videos"]), Value::Array(vec![]));
    assert_eq!(both(&house, &["videos", "--deleted"])[0]["slug"], "a-talk");
    there(&house, &["video", "restore", "1"]).succeeds();
    assert_eq!(both(&house, &["videos", "--search", "TALK", "--state", "ready"])[0]["id"], 1);
    assert!(there(&house, &["watch", "a-talk"]).succeeds().contains("completed"));
}

fn an_upload_goes_on_after_a_cut_and_a_killed_server(engine: Engine) {
    use sha2::{Digest, Sha256};
    let mut house = House::new(engine);
    let file = house.sample("long.mp4", 30);
    let bytes = std::fs::read(&file).unwrap();
    assert!(bytes.len() > 1_000_000, "{}", bytes.len());
    let line = Line::to(&house.url(""), 400_000);

    let mut sending = asking(&house, &line.url, &["submit", file.to_str().unwrap(), "--json"]);
    sending.command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sending = crate::support::Process(sending.command.spawn().unwrap());
    until("the line is cut", || line.cuts() == 1);
    let arrived = || {
        let mut uploads = std::fs::read_dir(house.data().join("uploads")).unwrap();
        uploads.next().map_or(0, |upload| upload.unwrap().metadata().map_or(0, |found| found.len()))
    };
    until("what came through is on the disk", || arrived() > 300_000);
    house.kill();
    house.start();
    let output = sending.output();

    assert!(output.status.success(), "{}", crate::support::said(&output));
    let submitted: Value = serde_json::from_slice(&output.stdout).unwrap();
    let video = house.get(&format!("/api/videos/{}", submitted["id"]));
    assert_eq!(video["source_sha256"], hex::encode(Sha256::digest(&bytes)));
    assert_eq!((&video["slug"], &video["job"]), (&submitted["slug"], &submitted["job"]));
    assert!(line.sent() < bytes.len() + 350_000, "{} bytes were sent of {}", line.sent(), bytes.len());
    assert_eq!(house.get("/api/videos")["items"].as_array().unwrap().len(), 1);
}

fn an_upload_is_one_video_though_the_server_dies_while_it_makes_it(engine: Engine) {
    // Just before the transaction that makes the video: its file has been moved by then.
    let mut house = House::with(engine, &[("VODMILL_FAILPOINT", "submit_video.before")]);
    let file = house.sample("talk.mp4", 1);

    let mut sending = there(&house, &["submit", file.to_str().unwrap(), "--json"]);
    sending.command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sending = crate::support::Process(sending.command.spawn().unwrap());
    house.dies();
    house.set("VODMILL_FAILPOINT", "never.before");
    house.start();
    let output = sending.output();

    assert!(output.status.success(), "{}", crate::support::said(&output));
    let videos = both(&house, &["videos"]);
    assert_eq!(videos.as_array().unwrap().len(), 1);
    assert_eq!(videos[0]["source_bytes"], std::fs::metadata(&file).unwrap().len());
    assert_eq!(std::fs::read_dir(house.data().join("sources")).unwrap().count(), 1);
}
