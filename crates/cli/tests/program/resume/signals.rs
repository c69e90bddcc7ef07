//! Asked to stop, by a person or by the system.

use super::room::{Room, SHORT, assert_same};
use crate::support::{Program, said};
use std::process::{Output, Stdio};

#[test]
fn ctrl_c_stops_it_and_the_same_command_goes_on() {
    stops_and_goes_on(&[libc::SIGINT]);
}

#[test]
fn sigterm_stops_it_and_the_same_command_goes_on() {
    stops_and_goes_on(&[libc::SIGTERM]);
}

#[test]
fn ctrl_c_twice_does_no_harm() {
    stops_and_goes_on(&[libc::SIGINT, libc::SIGINT]);
}

fn stops_and_goes_on(signals: &[i32]) {
    let room = Room::new(SHORT);

    let output = stopped_in_the_middle(&room, plainly(&room), signals);
    let quiet = room.processes();
    room.transcode().succeeds();

    let told = said(&output);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("the same command goes on from here"), "{told}");
    assert_eq!(quiet, [], "nothing runs on");
    let executions = room.executions(1);
    executions.each_task_committed_once();
    assert!(
        executions.failures().iter().all(|why| why.contains("drained") || why.contains("shutting down")),
        "{:?}",
        executions.failures()
    );
    assert_same(&room.published("out"), &room.undisturbed());
    room.is_complete();
}

/// As on a terminal, without `--json`.
fn plainly(room: &Room) -> Program {
    let args = ["transcode", "source.mp4", "-o", "out", "--preset", "veryfast", "--slots", "2"];
    room.world.vodmill(&args).env("VODMILL_STALL_SECONDS", "600")
}

fn stopped_in_the_middle(room: &Room, mut program: Program, signals: &[i32]) -> Output {
    let child = program.command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut process = crate::support::Process(child);
    room.hold_an_encoder(&mut process);
    signals.iter().for_each(|signal| process.signal(*signal));
    process.output()
}
