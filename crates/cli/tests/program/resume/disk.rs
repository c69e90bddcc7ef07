//! A disk that is full in the middle.

use super::room::{Executions, Length, Room};
use crate::support::said;
use std::process::Command;

/// Six chunks: about 3.5 MB of stream.
const LENGTH: Length = Length(70);

/// What both scripts begin with; they run where they may mount what they like.
const BEGIN: &str = r#"
transcode() { timeout 600 $VODMILL transcode source.mp4 -o disk/out --preset veryfast --slots 2; }
executions() { $VODMILL job executions 1 --json --database-url sqlite:disk/out/.vodmill/vodmill.db; }
wait_for_failure() { code=0; wait $! || code=$?; cat first; echo "exit code $code"; }
mkdir disk
"#;

/// And end with.
const END: &str = r#"
executions > before.json
transcode
executions > after.json
$VODMILL check disk/out
$VODMILL doctor --database-url sqlite:disk/out/.vodmill/vodmill.db
"#;

#[test]
fn a_disk_too_small_for_the_stream_is_said_to_be_full_and_it_goes_on_after_room_is_made() {
    is_told_and_goes_on(
        "
        mount -t tmpfs -o size=3m tmpfs disk
        transcode > first 2>&1 &
        wait_for_failure
        mount -o remount,size=64m disk
        ",
    );
}

/// Not even that there is no room can be recorded then.
#[test]
fn a_disk_that_somebody_else_fills_is_said_to_be_full_and_it_goes_on_after_room_is_made() {
    is_told_and_goes_on(
        "
        mount -t tmpfs -o size=64m tmpfs disk
        transcode > first 2>&1 &
        until ls disk/out/.vodmill/parts | grep -q .; do sleep 0.02; done 2> /dev/null
        head -c 99m /dev/zero > disk/ballast 2> /dev/null || true
        while kill -0 $! 2> /dev/null; do head -c 99m /dev/zero >> disk/ballast 2> /dev/null || sleep 0.02; done
        wait_for_failure
        rm disk/ballast
        ",
    );
}

fn is_told_and_goes_on(until_there_is_room: &str) {
    let room = Room::new(LENGTH);

    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-euc", &[BEGIN, until_there_is_room, END].concat()])
        .env("VODMILL", env!("CARGO_BIN_EXE_vodmill"))
        .env_remove("VODMILL_DATABASE_URL")
        .current_dir(room.folder())
        .output()
        .expect("unshare (Debian package util-linux) is needed to mount a small disk");

    let told = said(&output);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("exit code 1\n"), "{told}");
    assert!(told.contains("no space is left on the disk"), "{told}");
    assert!(told.contains("make some"), "{told}");
    let (before, after) = (Executions::read(&room, "before.json"), Executions::read(&room, "after.json"));
    assert!(!before.committed().is_empty());
    after.each_task_committed_once();
    let is_kept = |id: &String| after.committed().contains(id);
    assert!(before.committed().iter().all(is_kept), "what was committed is not made again");
    println!(
        "{} committed before, {} executions in all; {:?}",
        before.committed().len(),
        after.len(),
        after.failures()
    );
    room.is_quiet();
}
