//! Nothing a command starts outlives it, its worker, or its welcome.

use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use worker::process::{self, Error, Progress};

use super::scene::{Scene, marked, run, run_and, runtime, send, stat, wait_until, zombies};

/// A child in the background, one in a session of its own, and a daemon (session of its own, parent dead)
/// that ignores SIGTERM. `up` appears when all are there.
const TREE: &str = "
    sleep 1001 &
    setsid sleep 1002 &
    (setsid sh -c 'trap \"\" TERM HUP; echo $$ > daemon; while :; do sleep 1003; done' &) &
    while [ ! -s daemon ]; do sleep 0.01; done
    echo > up
";

fn then(rest: &str) -> String {
    format!("{TREE}{rest}")
}

pub fn a_finished_command_leaves_nothing_behind() {
    let scene = Scene::new();

    let exit = run(&scene.sh(&then("exit 3"))).unwrap();

    assert_eq!(exit.status, process::Status::Code(3));
    scene.assert_all_gone();
    wait_until("no zombie", || zombies().is_empty());
}

/// Children are born between looking and killing, so looking once is not enough. Should it fail to be killed,
/// it grows to some hundred processes and no further.
pub fn a_tree_that_keeps_growing_is_killed() {
    let scene = Scene::new();
    let grow = "i=0; while [ $i -lt 200 ]; do sleep 61 & i=$((i+1)); echo > $0; done; sleep 61";
    let seeds = format!("for name in a b c d; do setsid sh -c '{grow}' $name & done");

    let exit = run(&scene.sh(&format!("{seeds}; while [ ! -e d ]; do sleep 0.01; done"))).unwrap();

    assert!(exit.status.is_success());
    scene.assert_all_gone();
}

pub fn a_timeout_kills_the_whole_tree() {
    let scene = Scene::new();
    let mut command = scene.sh(&then("exec sleep 1000"));
    command.timeout = Some(Duration::from_secs(6));

    let result = run(&command);

    assert!(matches!(result, Err(Error::TimedOut { .. })));
    assert!(scene.file("up").exists());
    scene.assert_all_gone();
}

pub fn a_stop_kills_the_whole_tree() {
    let scene = Scene::new();

    let result =
        run_and(&scene.sh(&then("trap '' TERM; while :; do sleep 1; done")), &Progress::default(), |stop| {
            scene.wait_for_file("up");
            assert!(scene.alive().len() >= 5, "guard, command and three below");
            stop.cancel();
        });

    assert!(matches!(result, Err(Error::Stopped)));
    scene.assert_all_gone();
}

pub fn a_dropped_future_leaves_nothing_behind() {
    drop_when_there(&Scene::new(), &then("exec sleep 1000"), "up");
    drop_when_there(&Scene::new(), &then("kill -STOP $PPID; echo > halted; exec sleep 1000"), "halted");
}

fn drop_when_there(scene: &Scene, script: &str, sign: &str) {
    let command = scene.sh(script);
    let runtime = runtime();

    runtime.block_on(async {
        let progress = Progress::default();
        let mut run = Box::pin(process::run(&command, &progress, CancellationToken::new()));
        while !scene.file(sign).exists() {
            let step = tokio::time::timeout(Duration::from_millis(10), &mut run).await;
            assert!(step.is_err(), "ended early: {step:?}");
        }
    });

    // The runtime still exists, and does nothing: the reaping does not depend on it.
    wait_until("the tree to die", || scene.alive().is_empty());
    wait_until("no zombie", || zombies().is_empty());
    drop(runtime);
}

pub fn a_killed_worker_leaves_nothing_behind() {
    let scene = Scene::new();
    let mut worker = start(&scene, "worker", Stdio::null());

    kill_when_up(&scene, &mut worker);

    wait_until("the tree to die", || scene.alive().is_empty());
}

/// The lifeline stays whole here, for the test holds it; the guard must see by its parent that the worker is
/// gone.
pub fn a_worker_whose_lifeline_leaked_leaves_nothing_behind() {
    let scene = Scene::new();
    let (held, lifeline) = UnixStream::pair().unwrap();
    let mut worker = start(&scene, "careless-worker", std::os::fd::OwnedFd::from(lifeline).into());

    kill_when_up(&scene, &mut worker);

    wait_until("the tree to die", || scene.alive().is_empty());
    drop(held);
}

/// A command that left the group is out of the worker's reach, but not of the kernel's.
pub fn a_killed_guard_leaves_neither_command_nor_group() {
    let scene = Scene::new();

    let in_group = run(&scene.sh("(sleep 1001 & sleep 1002) & kill -KILL $PPID; sleep 1000"));
    let on_its_own = run(&scene.command(["setsid", "sh", "-c", "kill -KILL $PPID; exec sleep 1000"]));

    assert!(matches!(in_group, Err(Error::GuardLost { .. })));
    assert!(matches!(on_its_own, Err(Error::GuardLost { .. })));
    wait_until("all to die", || scene.alive().is_empty());
    wait_until("no zombie", || zombies().is_empty());
}

fn start(scene: &Scene, role: &str, stdin: Stdio) -> Child {
    let mut worker = std::process::Command::new("/proc/self/exe");
    worker.args(["role", role, &then("exec sleep 1000")]).current_dir(scene.path()).stdin(stdin);
    worker.stdout(Stdio::null()).stderr(Stdio::null());
    marked(&mut worker, scene);
    worker.spawn().unwrap()
}

fn kill_when_up(scene: &Scene, worker: &mut Child) {
    scene.wait_for_file("up");
    let daemon = super::scene::read_pid(&scene.file("daemon"));
    assert!(stat(daemon).is_some(), "the daemon lives");
    send(worker.id().cast_signed(), libc::SIGKILL);
    worker.wait().unwrap();
}
