//! The same command, or almost the same, given again: at once, after success, after somebody meddled.

use super::room::{Room, SHORT, assert_same, names};
use crate::support::kill;
use std::collections::BTreeMap;
use std::fs;
use std::time::SystemTime;

#[test]
fn a_second_one_in_the_same_folder_says_so_and_leaves_the_first_alone() {
    let room = Room::new(SHORT);
    let mut first = room.transcode().start();
    let held = room.hold_an_encoder(&mut first);

    let told = room.transcode().ends_with(1);
    let also_told = room.transcode().arg("--rungs").arg("240p").ends_with(1);
    kill(held, libc::SIGCONT);
    let ended = first.ends();

    assert!(told.contains("another vodmill is at work in out"), "{told}");
    assert!(also_told.contains("another vodmill is at work in out"), "{also_told}");
    assert_eq!(ended, Some(0));
    let executions = room.executions(1);
    executions.each_task_committed_once();
    assert_eq!(executions.failures(), Vec::<String>::new(), "nobody was disturbed");
    assert_same(&room.published("out"), &room.undisturbed());
    room.is_complete();
}

#[test]
fn after_success_it_says_so_and_changes_nothing() {
    let room = Room::new(SHORT);
    room.transcode().succeeds();
    let (before, written) = (room.published("out"), written(&room));
    let done = room.executions(1).len();

    let told = room.transcode().succeeds();

    assert!(told.contains(r#""is_complete":true"#), "{told}");
    assert_same(&room.published("out"), &before);
    assert_eq!(self::written(&room), written, "no segment was written again");
    assert_eq!(room.executions(1).len(), done, "nothing was done");
    room.is_complete();
}

#[test]
fn what_was_removed_by_hand_is_made_again() {
    let room = Room::new(SHORT);
    room.transcode().succeeds();
    let expected = room.published("out");
    let generation = room.out().join(&room.generations()[0]);

    fs::remove_file(room.out().join("master.m3u8")).unwrap();
    room.transcode().succeeds();
    assert_same(&room.published("out"), &expected);

    fs::remove_file(generation.join("180p/seg-00002.m4s")).unwrap();
    room.transcode().succeeds();
    assert_same(&room.published("out"), &expected);

    fs::remove_dir_all(&generation).unwrap();
    room.transcode().succeeds();
    assert_same(&room.published("out"), &expected);
    room.is_complete();
}

/// Such as by somebody who wants his disk back and thinks that a stopped transcode needs no parts.
#[test]
fn parts_that_were_removed_by_hand_are_made_again() {
    let room = Room::new(SHORT);
    let expected = room.undisturbed();
    room.transcode().env("VODMILL_FAILPOINT", "commit.after:5").output();
    assert!(!room.parts().is_empty());

    fs::remove_dir_all(room.out().join(".vodmill/parts")).unwrap();
    room.transcode().succeeds();

    assert_same(&room.published("out"), &expected);
    room.is_complete();
}

#[test]
fn a_folder_that_was_moved_goes_on_in_its_new_place() {
    let room = Room::new(SHORT);
    let expected = room.undisturbed();
    room.transcode_to("before").env("VODMILL_FAILPOINT", "commit.after:5").output();

    fs::rename(room.folder().join("before"), room.out()).unwrap();
    room.transcode().succeeds();

    assert_same(&room.published("out"), &expected);
    assert!(!room.folder().join("before").exists());
    room.is_complete();
}

#[test]
fn other_settings_in_mid_way_give_up_the_older_job_and_its_parts() {
    let room = Room::new(SHORT);
    room.transcode().env("VODMILL_FAILPOINT", "commit.after:5").output();
    let before = room.parts();
    assert!(!before.is_empty());

    let mut process = room.transcode().arg("--no-thumbnails").start();
    room.hold_an_encoder(&mut process);
    let (states, parts) = (room.job_states(), room.parts());
    process.kill();
    room.is_quiet();
    room.transcode().arg("--no-thumbnails").succeeds();

    assert_eq!(states[&1], "cancelled");
    assert!(parts.iter().all(|part| !before.contains(part)), "{parts:?} of {before:?}");
    let ended = BTreeMap::from([(1, "cancelled".to_owned()), (2, "completed".to_owned())]);
    assert_eq!(room.job_states(), ended);
    let generation = room.out().join(&room.generations()[0]);
    assert!(!names(&generation).contains(&"poster.jpg".to_owned()));
    room.is_complete();
}

/// When each published segment was written.
fn written(room: &Room) -> BTreeMap<String, SystemTime> {
    let generation = room.out().join(&room.generations()[0]).join("180p");
    let time = |name: &String| fs::metadata(generation.join(name)).unwrap().modified().unwrap();
    names(&generation).into_iter().map(|name| (name.clone(), time(&name))).collect()
}
