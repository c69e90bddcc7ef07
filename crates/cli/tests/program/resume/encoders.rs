//! Encoders that hang or die under a program that is well.

use super::room::{Length, Room, SHORT, assert_same};
use crate::support::{kill, until};

#[test]
fn a_stalled_encoder_is_killed_and_its_piece_made_again() {
    let room = Room::new(SHORT);
    let expected = room.undisturbed();

    let mut process = room.transcode().arg("--stall-seconds").arg("5").start();
    let stopped = room.hold_an_encoder(&mut process);
    until("the stalled encoder is gone", || !room.encoders().contains(&stopped));
    let ended = process.ends();

    assert_eq!(ended, Some(0));
    is_whole_after_failures(&room, "no progress for 5s");
    assert_same(&room.published("out"), &expected);
}

#[test]
fn a_killed_encoder_is_started_again() {
    let room = Room::new(SHORT);
    let expected = room.undisturbed();

    let mut process = room.transcode().start();
    let held = room.hold_an_encoder(&mut process);
    kill(held, libc::SIGKILL);
    let ended = process.ends();

    assert_eq!(ended, Some(0));
    is_whole_after_failures(&room, "was ended by signal 9");
    assert_same(&room.published("out"), &expected);
}

#[test]
fn a_probe_that_stands_still_is_ended_and_asked_again() {
    let room = Room::new(Length(5));
    let once = format!("mkdir {}/once 2>/dev/null && kill -STOP $$", room.folder().display());
    let path = room.with_tool("ffprobe", &once);

    room.transcode().env("PATH", &path).arg("--stall-seconds").arg("3").succeeds();

    is_whole_after_failures(&room, "no progress for 15s");
}

/// On a machine that is very busy, one that works may seem to stall.
fn is_whole_after_failures(room: &Room, why: &str) {
    let executions = room.executions(1);
    let failures = executions.failures();
    executions.each_task_committed_once();
    assert!(failures.iter().any(|failure| failure.contains(why)), "{failures:?}");
    room.is_complete();
}
