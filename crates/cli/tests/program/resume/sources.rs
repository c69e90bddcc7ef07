//! A source that is taken away or changed, in the middle or between two runs.

use super::room::{Room, SHORT, assert_same, make_source};
use crate::support::{Process, kill, said};
use std::fs;
use std::process::{Output, Stdio};
use std::time::Duration;

#[test]
fn a_source_that_is_removed_in_the_middle_is_missed_and_goes_on_when_it_is_back() {
    let room = Room::new(SHORT);
    let expected = room.undisturbed();
    let aside = room.folder().join("aside.mp4");

    let output = in_the_middle(&room, || fs::rename(room.source(), &aside).unwrap());
    let missing = room.transcode().ends_with(2);
    fs::rename(&aside, room.source()).unwrap();
    let committed = room.executions(1).committed();
    room.transcode().succeeds();

    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("source.mp4 was removed while a stream was made of it"), "{told}");
    assert!(missing.contains("source.mp4"), "{missing}");
    let executions = room.executions(1);
    executions.each_task_committed_once();
    assert!(committed.iter().all(|id| executions.committed().contains(id)));
    assert_same(&room.published("out"), &expected);
    room.is_complete();
}

#[test]
fn a_source_that_is_changed_in_the_middle_never_becomes_half_of_a_stream() {
    let room = Room::new(SHORT);

    let output = in_the_middle(&room, || make_source(&room.source(), SHORT, 880));
    let generations = room.generations();
    room.transcode().succeeds();

    let told = said(&output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("source.mp4 was changed while a stream was made of it"), "{told}");
    assert!(generations.is_empty(), "nothing was published");
    assert_same(&room.published("out"), &room.undisturbed());
    room.is_complete();
}

#[test]
fn a_changed_source_is_a_new_generation_and_the_old_one_plays_until_it_is_there() {
    let room = Room::new(SHORT);
    room.transcode().succeeds();
    let (old, master) = (room.generations(), fs::read(room.out().join("master.m3u8")).unwrap());
    let files = room.published("out");
    make_source(&room.source(), SHORT, 880);

    let mut process = room.transcode().start();
    room.hold_an_encoder(&mut process);
    room.is_playable();
    assert_same(&room.published("out"), &files);
    process.kill();
    room.is_quiet();
    let mut process = room.transcode().start();
    let mut checks = 0;
    // As long as the old master is shown, every file behind it is there.
    while !process.has_ended() {
        let is_whole = files.keys().all(|path| room.out().join(path).exists());
        let is_shown = fs::read(room.out().join("master.m3u8")).unwrap() == master;
        assert!(is_whole || !is_shown);
        checks += 1;
        std::thread::sleep(Duration::from_millis(1));
    }

    assert_eq!(process.ends(), Some(0));
    println!("looked {checks} times");
    assert!(!room.generations().contains(&old[0]), "the old one is gone");
    assert_ne!(fs::read(room.out().join("master.m3u8")).unwrap(), master);
    assert_same(&room.published("out"), &room.undisturbed());
    room.is_complete();
}

/// Does something to the source while an encoder reads it; what the transcode came to.
fn in_the_middle(room: &Room, meddle: impl FnOnce()) -> Output {
    let mut program = room.transcode();
    let child = program.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut process = Process(child);
    let held = room.hold_an_encoder(&mut process);
    meddle();
    kill(held, libc::SIGCONT);
    process.output()
}
