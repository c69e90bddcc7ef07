//! The sandbox around ffmpeg where the kernel does not give all of it: container profiles refuse namespaces, older kernels
//! have no Landlock.

use crate::support::house::House;
use crate::support::seat::Seat;
use crate::support::{Engine, Program, World};
use serde_json::json;
use std::os::unix::process::CommandExt;

/// System calls that are refused, and with what.
type Refused = &'static [(libc::c_long, i32)];

const NO_NAMESPACES: Refused = &[(libc::SYS_unshare, libc::EPERM)];
const NO_LANDLOCK: Refused =
    &[(libc::SYS_unshare, libc::EPERM), (libc::SYS_landlock_create_ruleset, libc::ENOSYS)];

/// The program, and all that it starts, on such a kernel.
fn on_kernel(refused: Refused, mut program: Program) -> Program {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut filter = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (call, errno) in refused {
        let call = u32::try_from(*call).unwrap();
        filter.push(libc::sock_filter {
            jf: 1,
            ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call)
        });
        filter.push(statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | errno.cast_unsigned()));
    }
    filter.push(statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW));
    let close = move || {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        // SAFETY: the filter outlives the calls, which only read it.
        let is_closed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        if is_closed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: two system calls between fork and exec.
    unsafe { program.command.pre_exec(close) };
    program
}

fn examined(world: &World, refused: Refused, code: i32) -> String {
    on_kernel(refused, world.vodmill(&["doctor", "--host"])).ends_with(code)
}

fn line<'a>(said: &'a str, name: &str) -> &'a str {
    said.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn the_doctor_tells_which_parts_of_the_sandbox_a_machine_lacks() {
    let world = World::bare(Engine::Sqlite);

    let whole = examined(&world, &[], 0);
    let fallback = examined(&world, NO_NAMESPACES, 0);
    let lacking = examined(&world, NO_LANDLOCK, 1);

    let relay = "network of remote workers";
    assert!(line(&whole, relay).contains("in force  a network namespace"), "{whole}");
    assert!(line(&fallback, relay).contains("in force  Landlock: one TCP port"), "{fallback}");
    assert!(!fallback.contains("MISSING"), "{fallback}");
    for name in ["files", relay] {
        assert!(line(&lacking, name).contains("MISSING"), "{lacking}");
    }
    for name in ["processes", "signals", "inspection", "network ", "privileges", "memory"] {
        assert!(line(&lacking, name).contains("in force"), "{lacking}");
    }
}

#[test]
fn a_required_sandbox_starts_nothing_where_a_part_is_missing_and_best_effort_warns() {
    let world = World::bare(Engine::Sqlite);
    let clip = world.folder.path().join("clip.mp4");
    crate::support::sample(&clip, "64x36", 1);
    let _seat = Seat::take(2);
    let transcode = |degree: &str| {
        let program = world.vodmill(&["transcode", clip.to_str().unwrap(), "-o", "out", "--no-thumbnails"]);
        on_kernel(NO_LANDLOCK, program.arg("--sandbox").arg(degree))
    };

    let refused = transcode("require").ends_with(2);
    let warned = transcode("best-effort").succeeds();

    assert!(refused.contains("the sandbox is required, and this is missing of it here: files"), "{refused}");
    assert!(refused.contains("vodmill doctor --host"), "{refused}");
    assert!(warned.contains("ffmpeg is not locked in completely, missing: files"), "{warned}");
}

#[test]
fn without_namespaces_a_remote_worker_makes_a_stream_in_a_required_sandbox() {
    let house = House::seated(Seat::take(2), Engine::Sqlite, &[]);
    let worker = house.remote_worker_with(
        json!({ "name": "contained" }),
        &[("VODMILL_SANDBOX", "require")],
        |program, _| on_kernel(NO_NAMESPACES, program),
    );

    house.upload(&house.sample("talk.mp4", 2), "slug=talk");
    let video = house.video_is(1, "ready");

    let executions = house.get(&format!("/api/jobs/{}/executions", video["job"]));
    let is_by_it = |it: &serde_json::Value| it["worker"] == worker.id.as_str();
    assert!(executions.as_array().unwrap().iter().any(is_by_it), "{executions}");
    let failures: Vec<_> =
        executions.as_array().unwrap().iter().filter(|it| !it["failure"].is_null()).collect();
    assert!(failures.is_empty(), "{failures:?}");
    house.is_healthy();
}
