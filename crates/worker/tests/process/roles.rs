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
        ["hoard", mebibytes] => hoard(mebibytes.parse().unwrap()),
        ["threads", count] => threads(count.parse().unwrap()),
        ["lacking", parts, program, ref args @ ..] => lacking(parts, program, args),
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

/// Becomes this program on a kernel that lacks some parts, with commas between: as under a container's profile, or as an
/// older kernel is.
#[cfg(target_os = "linux")]
fn lacking(parts: &str, program: &str, args: &[&str]) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    use std::os::unix::process::CommandExt;
    for part in parts.split(',') {
        let (call, errno) = match part {
            "namespaces" => (libc::SYS_unshare, libc::EPERM),
            "landlock" => (libc::SYS_landlock_create_ruleset, libc::ENOSYS),
            other => panic!("no such part: {other}"),
        };
        let refused = SeccompAction::Errno(errno.cast_unsigned());
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let calls = [(call, Vec::new())].into();
        let filter = SeccompFilter::new(calls, SeccompAction::Allow, refused, arch).unwrap();
        seccompiler::apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
    }
    panic!("{}", std::process::Command::new(program).args(args).exec());
}

#[cfg(not(target_os = "linux"))]
fn lacking(parts: &str, _: &str, _: &[&str]) {
    panic!("there is no way to take {parts} away here");
}

/// As `eat`, but of no more than one mebibyte at a time that can be written; then it waits to be ended.
fn hoard(mebibytes: usize) {
    const MIB: usize = 1 << 20;
    for _ in 0..mebibytes {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the memory is new, as large as it is written, and never used again.
        unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), MIB, protection, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            memory.cast::<u8>().write_bytes(1, MIB);
            assert_eq!(libc::mprotect(memory, MIB, libc::PROT_READ), 0);
        }
    }
    wait_for_ever();
}

fn threads(count: usize) {
    for _ in 0..count {
        std::thread::Builder::new().stack_size(64 << 10).spawn(wait_for_ever).unwrap();
    }
    wait_for_ever();
}

fn wait_for_ever() {
    loop {
        std::thread::park();
    }
}

fn eat(mebibytes: usize) {
    let memory = vec![1_u8; mebibytes << 20];
    assert_eq!(std::hint::black_box(memory).last(), Some(&1));
}
