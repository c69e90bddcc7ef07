//! What goes into a command and what comes out of it.

use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use worker::process::{self, Command, Error, Progress, Status};

use super::scene::{Scene, file_appears, run, run_with, runtime, wait_until};

pub fn exit_codes_and_signals_are_told_apart() {
    let scene = Scene::new();
    let status = |script: &str| run(&scene.sh(script)).unwrap().status;

    assert_eq!(status("exit 0"), Status::Code(0));
    assert_eq!(status("exit 7"), Status::Code(7));
    assert_eq!(status("kill -SEGV $$"), Status::Signal(libc::SIGSEGV));
    assert_eq!(status("kill -KILL $$"), Status::Signal(libc::SIGKILL));
}

pub fn both_streams_are_kept() {
    let scene = Scene::new();

    let exit = run(&scene.sh("echo one; echo two >&2; printf three")).unwrap();

    assert_eq!(exit.stdout, b"one\nthree");
    assert_eq!(exit.stdout_tail, "one\nthree");
    assert_eq!(exit.stderr_tail, "two\n");
    assert_eq!((exit.stdout_bytes, exit.stderr_bytes), (9, 4));
}

pub fn tails_are_the_end_of_long_output() {
    let scene = Scene::new();

    let exit = run(&scene.sh("seq 20000; seq 30000 >&2; echo ende. >&2")).unwrap();

    assert!(exit.stdout.starts_with(b"1\n2\n") && exit.stdout.ends_with(b"\n20000\n"));
    assert!(exit.stdout_tail.ends_with("\n20000\n") && exit.stdout_tail.len() == 4096);
    assert!(exit.stderr_tail.ends_with("\n30000\nende.\n") && exit.stderr_tail.len() == 4096);
}

pub fn too_much_output_is_refused() {
    let scene = Scene::new();
    let limited = |script: &str| {
        let mut command = scene.sh(script);
        command.output_limit = 1000;
        run(&command)
    };

    let exact = limited("head -c 1000 /dev/zero");
    let over = limited("head -c 1001 /dev/zero");
    let endless = limited("yes");

    assert_eq!(exact.unwrap().stdout.len(), 1000);
    for refused in [over, endless] {
        assert!(
            matches!(&refused, Err(Error::OutputTooLarge { limit: 1000, exit }) if exit.stdout.len() == 1000)
        );
    }
    scene.assert_all_gone();
}

/// The worker comes to read only when the command is long gone, and may hear of its end first.
pub fn too_much_output_is_refused_even_if_read_late() {
    for _ in 0..10 {
        let scene = Scene::new();
        let write = "echo > ready; while [ ! -e go ]; do sleep 0.01; done; head -c 1001 /dev/zero";
        let mut command = scene.sh(write);
        command.output_limit = 1000;
        let progress = Progress::default();

        let run = process::run(&command, &progress, CancellationToken::new());
        let result = runtime().block_on(async { tokio::join!(run, keep_busy(&scene)).0 });

        assert!(matches!(result, Err(Error::OutputTooLarge { .. })), "{result:?}");
    }
}

/// Blocks the only thread of the runtime while the command writes and ends.
async fn keep_busy(scene: &Scene) {
    file_appears(scene, "ready").await;
    std::fs::write(scene.file("go"), "").unwrap();
    wait_until("the guard to end", || scene.alive().is_empty());
}

const WRITE: &str = "head -c 40000 /dev/zero; head -c 40000 /dev/zero >&2; echo > ready";

/// It learns of the end before it has looked for the output.
pub fn a_worker_that_is_held_up_loses_no_output() {
    let scene = Scene::new();
    let command = scene.sh(WRITE);
    let progress = Progress::default();

    let run = process::run(&command, &progress, CancellationToken::new());
    let exit = runtime().block_on(async { tokio::join!(biased; hold_up(&scene), run).1 }).unwrap();

    assert_eq!((exit.stdout.len(), exit.stderr_bytes), (40000, 40000));
}

/// It learns that time has passed before it has looked for the output.
pub fn a_worker_that_is_held_up_does_not_take_that_for_silence() {
    let scene = Scene::new();
    let mut command = scene.sh(&format!("{WRITE}; until [ -e end ]; do sleep 0.01; done"));
    command.stall = Some(Duration::from_secs(1));
    let progress = Progress::default();

    let run = process::run(&command, &progress, CancellationToken::new());
    let exit = runtime().block_on(async { tokio::join!(biased; run, hold_up(&scene)).0 }).unwrap();

    assert_eq!((exit.stdout.len(), exit.stderr_bytes), (40000, 40000));
}

/// Blocks the only thread of the runtime between any two steps of the run, each time for longer than a silence
/// is put up with, or the end of output waited for.
async fn hold_up(scene: &Scene) {
    let mut left = 3;
    while left > 0 {
        tokio::task::yield_now().await;
        if scene.file("ready").exists() {
            std::fs::write(scene.file("end"), "").unwrap();
            left -= 1;
        }
        let begin = Instant::now();
        wait_until("a while to pass", || begin.elapsed() > Duration::from_millis(1200));
    }
}

pub fn lines_on_standard_output_set_the_fraction() {
    let scene = Scene::new();
    let progress = Progress::default();
    let after = |script: &str| {
        run_with(&scene.sh(script), &progress, Default::default()).unwrap();
        (progress.fraction(), progress.last_line())
    };

    assert_eq!(after("echo hello; echo progress=1 >&2"), (None, progress.last_line()));
    assert_eq!(after("echo progress=12%; echo frame 9"), (Some(0.12), "frame 9".into()));
    assert_eq!(after("printf 'progress=0.5\\rprogress=0.75'"), (Some(0.75), "progress=0.75".into()));
}

pub fn environment_and_directory_are_passed_on() {
    let scene = Scene::new();
    let mut command = scene.sh("echo \"$COLOUR ${VODMILL_API_KEY-none} ${VODMILL_TASK-none} $(pwd)\"");
    command.env.push(("COLOUR".into(), "sea green".into()));
    command.env.push(("VODMILL_TASK".into(), "t1".into()));
    // SAFETY: other tests of this process read the environment only through `std`, which locks it.
    unsafe { std::env::set_var("VODMILL_API_KEY", "secret") };

    let exit = run(&command).unwrap();

    let here = scene.path().canonicalize().unwrap();
    assert_eq!(exit.stdout_tail.trim_end(), format!("sea green none t1 {}", here.display()));
}

pub fn the_command_starts_from_a_clean_state() {
    let scene = Scene::new();
    let leaky = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: clears the close-on-exec flag of a descriptor that is open.
    unsafe { libc::fcntl(leaky.as_raw_fd(), libc::F_SETFD, 0) };

    let descriptors = run(&scene.sh("exec ls -l /proc/self/fd")).unwrap();
    let status = run(&scene.command(["cat", "/proc/self/status"])).unwrap();

    // `ls` itself opens the directory it lists; that one points back at /proc.
    let listed =
        descriptors.stdout_tail.lines().filter(|line| line.contains(" -> ") && !line.contains("/proc/"));
    let numbers: Vec<_> =
        listed.filter_map(|line| line.split(" -> ").next()?.split(' ').next_back()).collect();
    assert_eq!(numbers, ["0", "1", "2"], "{}", descriptors.stdout_tail);
    assert!(descriptors.stdout_tail.contains("0 -> /dev/null"));
    assert!(status.stdout_tail.contains("SigBlk:\t0000000000000000\n"), "{}", status.stdout_tail);
    let ignored = status.stdout_tail.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGPIPE, libc::SIGTERM, libc::SIGCHLD] {
        assert_eq!(ignored >> (signal - 1) & 1, 0, "signal {signal} is ignored");
    }
}

pub fn what_cannot_start_says_why() {
    let scene = Scene::new();
    let script = |name: &str, text: &str, mode| {
        std::fs::write(scene.file(name), text).unwrap();
        std::fs::set_permissions(scene.file(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    script("plain", "hello", 0o644);
    script("orphan", "#!/no/such/shell\n", 0o755);
    script("garbage", "\u{1}\u{2}\u{3}", 0o755);
    let refusal = |program: &str| run(&scene.command([program])).unwrap_err().to_string();

    assert_eq!(
        refusal("no-such-encoder"),
        "cannot start `no-such-encoder`: no such program in PATH; install it, or give its full path"
    );
    assert!(refusal("./missing").contains("`./missing`: no such file"));
    assert!(refusal("./plain").contains("permission denied; make it an executable"));
    assert!(refusal("./orphan").contains("not the interpreter"));
    assert!(refusal("./garbage").contains("a script needs a #! line"));
    assert!(refusal("nul\0").contains("NUL byte"));
    assert!(refusal("").contains("name a program"));
    assert!(matches!(run(&Command::new([""; 0], scene.path())), Err(Error::Empty)));
    assert!(
        run(&Command::new(["ls"], scene.file("gone")))
            .unwrap_err()
            .to_string()
            .contains("gone: No such file")
    );
    let long = "x".repeat(3 << 20);
    assert!(
        run(&scene.command(["echo", &long])).unwrap_err().to_string().contains("too long for this system")
    );
}
