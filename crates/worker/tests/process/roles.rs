//! What this binary plays when it is not the test: the worker that gets killed, and commands of known
//! appetite.

use std::ffi::OsString;
use std::process::ExitCode;

use worker::process::Command;

pub fn play(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<String> = args.map(|arg| arg.into_string().unwrap()).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["worker", script] => worker(script),
        ["careless-worker", script] => careless_worker(script),
        ["attempt", ref attempts @ ..] => super::attempts::play(attempts),
        ["eat", mebibytes] => eat(mebibytes.parse().unwrap()),
        ref other => panic!("no such role: {other:?}"),
    }
    ExitCode::SUCCESS
}

/// Runs `script` as a worker does.
fn worker(script: &str) {
    let mut command = Command::new(["sh", "-c", script], std::env::current_dir().unwrap());
    command.env.push(super::scene::own_mark());
    super::scene::run(&command).unwrap();
}

/// A worker whose lifeline somebody else holds too: the guard gets this process's own standard input for one.
fn careless_worker(script: &str) {
    let mut guard = std::process::Command::new("/proc/self/exe");
    guard.args(["guard", "--grace-ms", "0", "--", "sh", "-c", script]);
    guard.status().unwrap();
}

fn eat(mebibytes: usize) {
    let memory = vec![1_u8; mebibytes << 20];
    assert_eq!(std::hint::black_box(memory).last(), Some(&1));
}
