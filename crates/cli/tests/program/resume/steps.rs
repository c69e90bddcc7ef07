//! Killed before and after each durable step a transcode makes.

use super::room::{Length, Room, assert_same};
use crate::support::said;
use std::os::unix::process::ExitStatusExt;

/// Steps that are killed here; `failpoints.rs` kills the others.
const STEPS: [&str; 14] = [
    "migrate",
    "create_video",
    "submit",
    "register",
    "claim",
    "progress",
    "commit",
    "settle",
    "heartbeat",
    "hand_over",
    "place_generation",
    "show",
    "clear_shown",
    "clear_parts",
];

/// One chunk: seven tasks, with the sound and the small pictures.
const LENGTH: Length = Length(5);

/// The plan, the last piece, the package; and the publication, whose commit also moves the video's pointer.
const COMMITS: [u32; 4] = [2, 5, 6, 7];

#[test]
fn killed_around_every_step_it_ends_with_the_same_stream() {
    let room = Room::new(LENGTH);
    let expected = room.undisturbed();
    let moments = STEPS.iter().flat_map(|step| [format!("{step}.before"), format!("{step}.after")]);

    // One after the other in one transcode: whatever one leaves behind is what the next finds.
    for moment in moments {
        is_killed(&room, &moment);
        room.is_quiet();
    }
    room.transcode().succeeds();

    assert_same(&room.published("out"), &expected);
    room.executions(1).each_task_committed_once();
    room.is_complete();
}

#[test]
fn killed_around_each_commit_it_ends_with_the_same_stream() {
    let room = Room::new(LENGTH);
    let expected = room.undisturbed();

    for number in COMMITS {
        for moment in ["commit.before", "commit.after"] {
            std::fs::remove_dir_all(room.out()).ok();
            let moment = format!("{moment}:{number}");
            is_killed(&room, &moment);
            room.transcode().succeeds();

            assert_same(&room.published("out"), &expected);
            room.executions(1).each_task_committed_once();
            room.is_complete();
        }
    }
}

#[test]
fn a_committed_part_that_is_damaged_is_made_again() {
    let room = Room::new(LENGTH);
    let expected = room.undisturbed();
    let damage = |change: fn(&mut Vec<u8>)| {
        std::fs::remove_dir_all(room.out()).ok();
        is_killed(&room, "commit.after:5");
        let part = room.segment_of_a_part();
        let mut bytes = std::fs::read(&part).unwrap();
        change(&mut bytes);
        std::fs::write(&part, bytes).unwrap();
    };

    damage(|bytes| bytes.truncate(100));
    room.transcode().succeeds();
    assert_same(&room.published("out"), &expected);
    room.is_complete();

    // As long as before: the gate sees it, and the next run knows better than to use it again.
    damage(|bytes| bytes.iter_mut().rev().take(50).for_each(|byte| *byte ^= 0xff));
    let told = room.transcode().ends_with(1);
    assert!(told.contains("nothing was published"), "{told}");
    room.transcode().succeeds();
    assert_same(&room.published("out"), &expected);
    room.is_complete();
}

fn is_killed(room: &Room, moment: &str) {
    let output = room.transcode().env("VODMILL_FAILPOINT", moment).output();
    assert_eq!(output.status.signal(), Some(libc::SIGKILL), "{moment} was not reached:\n{}", said(&output));
}
