//! What a command uses, and what it may not.

use std::time::Duration;

use worker::process::{Command, Error, Limits, Status};

use super::scene::{Scene, run};

const MIB: u64 = 1 << 20;

fn eat(scene: &Scene, mebibytes: &str) -> Command {
    scene.command(["/proc/self/exe", "role", "eat", mebibytes])
}

pub fn what_was_used_is_reported() {
    let scene = Scene::new();

    let busy = run(&scene.sh("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done")).unwrap();
    let idle = run(&scene.sh("sleep 0.3")).unwrap();
    let large = run(&eat(&scene, "100")).unwrap();

    assert!(busy.cpu > Duration::from_millis(10) && busy.cpu > idle.cpu, "{:?} {:?}", busy.cpu, idle.cpu);
    assert!(idle.wall >= Duration::from_millis(300) && idle.cpu < idle.wall);
    assert!((100 * MIB..200 * MIB).contains(&large.peak_memory_bytes), "{}", large.peak_memory_bytes);
    assert!((1..50 * MIB).contains(&idle.peak_memory_bytes), "{}", idle.peak_memory_bytes);
}

pub fn limits_hold() {
    let scene = Scene::new();
    let limited = |mut command: Command, limits: Limits| {
        command.limits = limits;
        run(&command).unwrap()
    };
    let memory = Limits { memory_bytes: Some(64 * MIB), ..Limits::default() };
    let cpu = Limits { cpu_seconds: Some(1), ..Limits::default() };
    let file = Limits { file_bytes: Some(1000), ..Limits::default() };

    let small = limited(eat(&scene, "16"), memory.clone());
    let large = limited(eat(&scene, "100"), memory);
    let busy = limited(scene.sh("while :; do :; done"), cpu);
    let writer = limited(scene.command(["head", "-c", "1001", "/dev/zero"]), file.clone());
    let filer = limited(scene.sh("exec head -c 1001 /dev/zero > file"), file);
    allow_core_dumps();
    let cores = limited(scene.sh("ulimit -c"), Limits::default());

    assert_eq!(small.status, Status::Code(0));
    assert_eq!(large.status, Status::Signal(libc::SIGABRT), "{}", large.stderr_tail);
    assert_eq!(busy.status, Status::Signal(libc::SIGXCPU));
    assert_eq!(writer.status, Status::Code(0), "a pipe is no file");
    assert_eq!(filer.status, Status::Signal(libc::SIGXFSZ));
    assert_eq!(cores.stdout_tail, "0\n");
}

pub fn memory_that_is_made_read_only_counts() {
    let scene = Scene::new();
    let mut hoarder = scene.command(["/proc/self/exe", "role", "hoard", "300"]);
    hoarder.timeout = Some(Duration::from_secs(30));
    hoarder.limits.memory_bytes = Some(64 * MIB);

    let ended = run(&hoarder).unwrap_err();

    assert!(matches!(ended, Error::TookTooMuchMemory { .. }), "{ended:?}");
    assert_eq!(ended.to_string(), "took more than 64 MB of memory, its limit, and was killed");
}

pub fn threads_are_limited() {
    let scene = Scene::new();
    let mut spinner = scene.command(["/proc/self/exe", "role", "threads", "40"]);
    spinner.timeout = Some(Duration::from_secs(30));
    spinner.limits.threads = Some(40);

    let ended = run(&spinner).unwrap_err();

    assert!(matches!(ended, Error::TooManyThreads { limit: 40, .. }), "{ended:?}");
}

/// As far as this process may; most systems switch them off softly.
fn allow_core_dumps() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result of the first call and an initialised argument of the
    // second.
    unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
    }
}
