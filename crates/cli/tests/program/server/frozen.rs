//! A remote worker that stands still in a step of its commit, until its lease is over and another worker has done the task.

use super::inventory;
use crate::on_both_engines;
use crate::support::house::{House, Remote};
use crate::support::seat::Seat;
use crate::support::{Engine, until};
use serde_json::{Value, json};
use std::path::Path;

on_both_engines![a_remote_worker_frozen_in_a_commit_takes_effect_once];

fn a_remote_worker_frozen_in_a_commit_takes_effect_once(engine: Engine) {
    let house = House::seated(Seat::take(2), engine, &[]);

    let files = is_done_once_by_another(&house, 1, "complete.before");
    is_done_once_by_another(&house, 2, "upload.before");
    is_done_once_by_another(&house, 3, &format!("upload.before:{files}"));
    is_done_once_in_spite_of_standing_still(&house, 4);

    for flags in [&[][..], &["--deep"]] {
        inventory::is_clean_with(&house, flags);
    }
    house.is_healthy();
}

/// A worker that encodes and stands still at this moment of its first task; and it does stand still, with the first task of
/// this video.
fn frozen(house: &House, video: i64, moment: &str) -> Remote {
    let name = format!("frozen-{video}");
    let registration = json!({ "name": name, "capabilities": ["encode", "libx264"] });
    let settings = [("VODMILL_FAILPOINT", moment), ("VODMILL_FAILPOINT_ACTION", "stop")];
    let worker = house.remote_worker_as(registration, &settings);
    let uploaded = house.upload(&house.sample("talk.mp4", 2), &format!("slug=talk-{video}"));
    assert_eq!(uploaded["id"], video);
    until("the worker stands still", || worker.process.is_stopped());
    worker
}

/// How many files the frozen worker had brought.
fn is_done_once_by_another(house: &House, video: i64, moment: &str) -> usize {
    let mut frozen = frozen(house, video, moment);
    let brought = files_below(&house.data().join("incoming"));
    let _other = house.remote_worker(&format!("other-{video}"), &[]);
    let made = house.video_is(video, "ready");

    frozen.process.signal(libc::SIGCONT);

    until("it drops what it was at", || said(&frozen).contains("dropped"));
    frozen.process.kill();
    let of_frozen = executions(house, &made, &frozen);
    assert_eq!(of_frozen, [("ABORTED".into(), json!("lease_expired"))], "{moment}");
    is_published_once(house, video);
    brought
}

/// What the server has committed is done, though its worker has not heard so.
fn is_done_once_in_spite_of_standing_still(house: &House, video: i64) {
    let mut frozen = frozen(house, video, "complete.after");
    let _other = house.remote_worker(&format!("other-{video}"), &[]);
    let made = house.video_is(video, "ready");

    frozen.process.signal(libc::SIGCONT);

    until("it hears that it is done", || said(&frozen).contains("done: "));
    frozen.process.kill();
    assert_eq!(executions(house, &made, &frozen), [("DONE".into(), Value::Null)]);
    is_published_once(house, video);
}

/// Status and failure of what this worker did of the video.
fn executions(house: &House, video: &Value, worker: &Remote) -> Vec<(String, Value)> {
    let all = house.get(&format!("/api/jobs/{}/executions", video["job"]));
    let of_worker = all.as_array().unwrap().iter().filter(|it| it["worker"] == worker.id.as_str());
    of_worker.map(|it| (it["status"].as_str().unwrap().into(), it["failure"].clone())).collect()
}

fn is_published_once(house: &House, video: i64) {
    let folder = house.data().join(format!("videos/{video}"));
    let generations: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().collect();
    assert_eq!(generations.len(), 1, "{generations:?}");
    house.world.vodmill(&["check", generations[0].path().to_str().unwrap()]).succeeds();
}

fn files_below(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|it| if it.path().is_dir() { files_below(&it.path()) } else { 1 }).sum()
}

fn said(worker: &Remote) -> String {
    std::fs::read_to_string(&worker.log).unwrap_or_default()
}
