//! Commands that are ended before their time, and when they are not.

use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use worker::process::{Error, Guard, Measure, Progress, Status};

use super::scene::{Scene, read_pid, run, run_and, run_with, send, stat, wait_until};

pub fn a_timeout_ends_the_command() {
    let scene = Scene::new();
    let mut command = scene.sh("echo begun; echo why >&2; exec sleep 1000");
    command.timeout = Some(Duration::from_secs(3));
    command.grace = Duration::from_secs(60);

    let error = run(&command).unwrap_err();

    let Error::TimedOut { after, exit } = error else { panic!("{error:?}") };
    assert_eq!(after, Duration::from_secs(3));
    assert_eq!(exit.status, Status::Signal(libc::SIGTERM));
    assert_eq!((exit.stdout_tail.as_str(), exit.stderr_tail.as_str()), ("begun\n", "why\n"));
    assert!(exit.wall >= after);
    scene.assert_all_gone();
}

pub fn a_silent_command_is_stalled_and_a_talking_one_is_not() {
    let scene = Scene::new();
    let stalling = |script: &str| {
        let mut command = scene.sh(script);
        command.stall = Some(Duration::from_secs(3));
        let progress = Progress::default();
        (run_with(&command, &progress, CancellationToken::new()), progress.beats())
    };

    let (silent, beats_of_silence) = stalling("exec sleep 1000");
    let (talking, beats_of_talk) = stalling("for i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo $i >&2; done");

    assert!(matches!(silent, Err(Error::Stalled { after, .. }) if after == Duration::from_secs(3)));
    assert_eq!(beats_of_silence, 0);
    let talked = talking.unwrap();
    assert!(talked.status.is_success() && talked.wall > Duration::from_secs(3));
    assert!(beats_of_talk >= 2);
}

/// What an encoder prints while it hangs.
pub fn talk_is_no_progress_where_a_number_must_grow() {
    let scene = Scene::new();
    let frame = |line: &str| line.strip_prefix("frame=")?.parse().ok();
    let stalling = |script: &str| {
        let mut command = scene.sh(script);
        command.stall = Some(Duration::from_secs(2));
        command.measure = Some(Measure { read: frame, whole: 8 });
        let progress = Progress::default();
        (run_with(&command, &progress, CancellationToken::new()), progress)
    };

    let (hung, seen) = stalling("echo frame=2; while :; do sleep 0.1; echo frame=2; done");
    let (moving, moved) = stalling("for i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo frame=$i; done");

    assert!(matches!(hung, Err(Error::Stalled { .. })), "{hung:?}");
    assert_eq!((seen.beats(), seen.fraction()), (1, Some(0.25)));
    assert!(moving.unwrap().status.is_success());
    assert_eq!((moved.beats(), moved.fraction()), (8, Some(1.0)));
}

/// Even with a command that somebody stopped, which has to go on to end.
pub fn a_stop_is_gentle_first() {
    let scene = Scene::new();
    let save = "trap 'echo saved > trailer; exit 0' TERM";
    let mut command =
        scene.sh(&format!("{save}; echo $$ > pid.new; mv pid.new pid; while :; do sleep 0.01; done"));
    command.grace = Duration::from_secs(60);

    let result = run_and(&command, &Progress::default(), |stop| {
        scene.wait_for_file("pid");
        send(read_pid(&scene.file("pid")), libc::SIGSTOP);
        stop.cancel();
    });

    assert!(matches!(result, Err(Error::Stopped)));
    assert!(scene.file("trailer").exists());
    scene.assert_all_gone();
}

pub fn a_stop_does_not_wait_for_a_command_that_ignores_it() {
    let scene = Scene::new();
    let command = scene.sh("trap '' TERM; echo > ready; while :; do sleep 0.01; done");

    let result = run_and(&command, &Progress::default(), |stop| {
        scene.wait_for_file("ready");
        stop.cancel();
    });

    assert!(matches!(result, Err(Error::Stopped)));
    scene.assert_all_gone();
}

/// Not even a guard: this one could not be started.
pub fn a_token_cancelled_before_starts_nothing() {
    let scene = Scene::new();
    let mut command = scene.sh("exit 0");
    command.guard.program = "/no/such/guard".into();
    let stop = CancellationToken::new();
    stop.cancel();

    let result = run_with(&command, &Progress::default(), stop);

    assert!(matches!(result, Err(Error::Stopped)));
}

/// Two seconds are looked at, for in any two a running command has at least one beat.
pub fn a_stopped_command_makes_no_progress() {
    let scene = Scene::new();
    let progress = Progress::default();

    let result =
        run_and(&scene.sh("echo $$ > pid.new; mv pid.new pid; exec sleep 1000"), &progress, |stop| {
            scene.wait_for_file("pid");
            let pid = read_pid(&scene.file("pid"));
            wait_until("a first beat", || progress.beats() > 0);
            send(pid, libc::SIGSTOP);
            wait_until("the command to stop", || stat(pid).is_some_and(|(state, _)| state == 'T'));
            let before = progress.beats();
            let begin = Instant::now();
            wait_until("two seconds", || begin.elapsed() > Duration::from_millis(2200));
            // One beat may have been on its way when the signal arrived.
            assert!(progress.beats() <= before + 1);
            let stopped = progress.beats();
            send(pid, libc::SIGCONT);
            wait_until("a beat after going on", || progress.beats() > stopped);
            stop.cancel();
        });

    assert!(matches!(result, Err(Error::Stopped)));
}

/// The process in a session of its own tells a guard that did its work from one that was killed for not doing
/// it.
pub fn a_stopped_guard_still_ends() {
    let scene = Scene::new();
    let command = scene.sh("setsid sleep 1001 & kill -STOP $PPID; echo > ready; kill -STOP $$");

    let result = run_and(&command, &Progress::default(), |stop| {
        scene.wait_for_file("ready");
        stop.cancel();
    });

    assert!(matches!(result, Err(Error::Stopped)));
    scene.assert_all_gone();
}

pub fn a_guard_that_others_ask_to_end_ends_the_command() {
    let scene = Scene::new();

    let mut command = scene.sh("kill -TERM $PPID; exec sleep 1000");
    command.grace = Duration::from_secs(60);
    let terminated = run(&command).unwrap();
    let interrupted = run(&scene.sh("trap '' TERM; kill -INT $PPID; sleep 1000; sleep 1000")).unwrap();

    assert_eq!(terminated.status, Status::Signal(libc::SIGTERM));
    assert_eq!(interrupted.status, Status::Signal(libc::SIGKILL));
    scene.assert_all_gone();
}

pub fn a_guard_that_is_stuck_is_killed_with_its_group() {
    let scene = Scene::new();
    let mut command = scene.sh("");
    let stuck = "trap '' TERM; echo > ready; while :; do sleep 1; done";
    command.guard =
        Guard { program: "/bin/sh".into(), args: vec!["-c".into(), stuck.into()], ..Guard::default() };
    command.patience = Duration::from_millis(500);

    let result = run_and(&command, &Progress::default(), |stop| {
        scene.wait_for_file("ready");
        stop.cancel();
    });

    assert!(matches!(result, Err(Error::Stopped)));
    wait_until("the group to die", || scene.alive().is_empty());
}

/// What got away holds the output open, silently or talking on and on: its end must not be waited for.
pub fn what_escapes_a_dead_guard_does_not_hold_up_the_worker() {
    for goes_on in ["exec sleep 1000", "while :; do echo >&2; sleep 0.01; done"] {
        let scene = Scene::new();
        let escape = format!("setsid sh -c 'echo > out; {goes_on}' &");
        let script = format!("{escape} until [ -e out ]; do sleep 0.01; done; kill -KILL $PPID; sleep 1000");

        let result = run(&scene.sh(&script));

        assert!(matches!(result, Err(Error::GuardLost { .. })));
    }
}

pub fn a_dead_guard_is_noticed() {
    let scene = Scene::new();

    let error = run(&scene.sh("echo last words >&2; kill -KILL $PPID; exec sleep 1000")).unwrap_err();

    let Error::GuardLost { program, how, stderr_tail } = &error else { panic!("{error:?}") };
    assert_eq!((program.as_str(), how.as_str(), stderr_tail.as_str()), ("sh", "signal 9", "last words\n"));
}

pub fn a_program_that_is_no_guard_is_noticed() {
    let scene = Scene::new();
    let mut command = scene.sh("exit 0");
    command.guard = Guard { program: "/bin/false".into(), args: Vec::new(), ..Guard::default() };
    let silent = run(&command).unwrap_err();
    command.guard.program = "/no/such/guard".into();
    let missing = run(&command).unwrap_err();
    command.guard = Guard::default();
    command.guard.args.push("--nonsense".into());
    let confused = run(&command).unwrap_err();

    assert!(silent.to_string().contains("lost the guard of `sh` (exit code 1)"));
    assert_eq!(missing.to_string(), "starting the guard /no/such/guard");
    assert!(confused.to_string().contains("unknown argument `--nonsense`"), "{confused}");
}
