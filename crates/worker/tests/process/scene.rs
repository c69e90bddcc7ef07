//! A directory, a mark that every process of one test carries in its environment, and patience.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use worker::process::{self, Command, Error, Exit, Progress};

/// For what takes milliseconds, on a machine that may be very busy with other things.
const DEADLINE: Duration = Duration::from_secs(60);

const MARK: &str = "PROCESS_TEST_MARK";

pub struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A shell is what these tests run, never what runs them.
    pub fn sh(&self, script: &str) -> Command {
        self.command(["sh", "-c", script])
    }

    pub fn command<const N: usize>(&self, argv: [&str; N]) -> Command {
        let mut command = Command::new(argv, self.path());
        command.env.push((MARK.into(), self.mark()));
        command.grace = Duration::from_millis(300);
        command
    }

    pub fn mark(&self) -> String {
        self.path().to_string_lossy().into_owned()
    }

    /// Every process that carries the mark: guards, commands, and whatever they started, wherever it went.
    pub fn alive(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}\0", self.mark());
        pids()
            .filter(|pid| contains(&std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default(), &mark))
            .collect()
    }

    pub fn wait_for_file(&self, name: &str) {
        wait_until(&format!("file {name}"), || self.file(name).exists());
    }

    #[track_caller]
    pub fn assert_all_gone(&self) {
        assert_eq!(self.alive(), [] as [i32; 0], "processes left behind");
    }
}

/// A failed test must not leave behind what it proved to be left behind.
impl Drop for Scene {
    fn drop(&mut self) {
        let start = Instant::now();
        let mut left = self.alive();
        while !left.is_empty() && start.elapsed() < DEADLINE {
            for pid in left {
                // SAFETY: takes no pointers; one that died meanwhile gives an error that does not matter.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            left = self.alive();
        }
    }
}

/// Sets the mark of the calling process's environment for the guard it will start.
pub fn marked(command: &mut std::process::Command, scene: &Scene) {
    command.env(MARK, scene.mark());
}

/// The mark this process was given, for what it starts.
pub fn own_mark() -> (String, String) {
    (MARK.into(), std::env::var(MARK).unwrap())
}

pub fn run(command: &Command) -> Result<Exit, Error> {
    run_with(command, &Progress::default(), CancellationToken::new())
}

pub fn run_with(command: &Command, progress: &Progress, stop: CancellationToken) -> Result<Exit, Error> {
    runtime().block_on(process::run(command, progress, stop))
}

/// Runs `command` while `meanwhile` looks at it from another thread; fails if that does.
pub fn run_and(
    command: &Command,
    progress: &Progress,
    meanwhile: impl FnOnce(CancellationToken) + Send,
) -> Result<Exit, Error> {
    let stop = CancellationToken::new();
    std::thread::scope(|scope| {
        let given = stop.clone();
        let looking = scope.spawn(move || {
            let _stop_at_last = given.clone().drop_guard();
            meanwhile(given);
        });
        let result = run_with(command, progress, stop);
        looking.join().unwrap();
        result
    })
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// As [`Scene::wait_for_file`], but lets the runtime go on meanwhile.
pub async fn file_appears(scene: &Scene, name: &str) {
    let start = Instant::now();
    while !scene.file(name).exists() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for file {name}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < DEADLINE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// State and parent, as `/proc` has them.
pub fn stat(pid: i32) -> Option<(char, i32)> {
    let stat = String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/stat")).ok()?).into_owned();
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub fn send(pid: i32, signal: i32) {
    // SAFETY: takes no pointers.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill({pid}, {signal})");
}

/// Dead children of this very process that nobody has reaped.
pub fn zombies() -> Vec<i32> {
    let me = std::process::id().cast_signed();
    pids().filter(|pid| stat(*pid) == Some(('Z', me))).collect()
}

pub fn read_pid(path: &Path) -> i32 {
    std::fs::read_to_string(path).unwrap().trim().parse().unwrap()
}

fn pids() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn contains(haystack: &[u8], needle: &str) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle.as_bytes())
}
