//! Runs one command and answers for every process it starts.
//!
//! A command never runs under the worker itself but under a [guard](crate::guard), so that nothing of it
//! outlives the worker, not even one killed by SIGKILL. No shell is involved anywhere.
//!
//! - `guarded` owns the guard: dropping it ends everything under it. `leader` signals and reaps it.
//! - `watch` follows it: output, deadlines, the stop token, the guard's last word.
//! - `capture` is what is kept of the output; [`Progress`] is what others may see meanwhile.

mod capture;
mod environment;
mod error;
mod guarded;
mod leader;
mod lifeline;
mod progress;
mod reach;
mod sink;
mod watch;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::sandbox::Sandbox;

pub use crate::guard::{Limits, Status};
pub use error::Error;
pub use progress::{Held, Progress};
pub use reach::{Door, Reach};
pub use sink::Sink;

/// What to run, where, and how long to put up with it. Standard input is `/dev/null`.
#[derive(Clone)]
pub struct Command {
    /// The program, looked up in `PATH` unless it contains a slash, and its arguments.
    pub argv: Vec<String>,
    /// Beside these the command sees of the worker's environment only what [`environment`] lists: the rest holds
    /// keys and passwords.
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// Wall time from the start. Default: none.
    pub timeout: Option<Duration>,
    /// The longest silence on standard output and error. `Some` also makes output the only thing that counts
    /// as progress; with `None`, the default, each second that the command exists and is not stopped
    /// does.
    pub stall: Option<Duration>,
    /// Where not any output is progress, but only a number in it that grows. Also says how far the command is.
    pub measure: Option<Measure>,
    /// Between SIGTERM and SIGKILL when the command is ended early. Default: 2 s.
    pub grace: Duration,
    /// How long after the grace a guard may take to end before it counts as stuck and is killed with its
    /// group, so that what left the group escapes. It needs milliseconds, or seconds on a machine that is very
    /// busy, and by itself gives up after 15 s. Default: 30 s.
    pub patience: Duration,
    /// Default: none, but for core dumps.
    pub limits: Limits,
    /// All that it may reach, where it runs in a [cage](crate::guard). Default: it runs in none.
    pub reach: Option<Reach>,
    /// How many bytes of standard output the command may write. Default: 1 MiB.
    pub output_limit: usize,
    /// Takes standard output as it comes, instead of its being kept. Default: none.
    pub sink: Option<Sink>,
    pub guard: Guard,
}

impl Command {
    pub fn new(argv: impl IntoIterator<Item = impl Into<String>>, cwd: impl Into<PathBuf>) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            env: Vec::new(),
            cwd: cwd.into(),
            timeout: None,
            stall: None,
            measure: None,
            grace: Duration::from_secs(2),
            patience: Duration::from_secs(30),
            limits: Limits::default(),
            reach: None,
            output_limit: 1024 * 1024,
            sink: None,
            guard: Guard::default(),
        }
    }

    /// As errors and logs name it.
    pub(crate) fn program(&self) -> &str {
        self.argv.first().map_or("", String::as_str)
    }
}

/// Tells from a command's lines on standard output how much it has done.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    pub read: fn(&str) -> Option<u64>,
    /// What it reads when everything is done.
    pub whole: u64,
}

/// Without the values of the environment, which may be secrets.
impl std::fmt::Debug for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        f.debug_struct("Command")
            .field("argv", &self.argv)
            .field("env", &names)
            .field("cwd", &self.cwd)
            .field("timeout", &self.timeout)
            .field("stall", &self.stall)
            .finish_non_exhaustive()
    }
}

/// How to start a guard: a program whose `main` hands what follows `args` to [`crate::guard::run`].
#[derive(Debug, Clone)]
pub struct Guard {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    /// Of commands that say what they [reach](Command::reach). Default: as far as the system can.
    pub sandbox: Sandbox,
}

/// This program's hidden subcommand `guard`. A test binary made by libtest has none and must name another
/// program.
impl Default for Guard {
    fn default() -> Self {
        Self { program: this_program(), args: vec!["guard".into()], sandbox: Sandbox::default() }
    }
}

/// On Linux a name that stays right while an upgrade replaces the file.
fn this_program() -> PathBuf {
    let running = Path::new("/proc/self/exe");
    if running.exists() {
        running.into()
    } else {
        std::env::current_exe().unwrap_or_else(|_| "vodmill".into())
    }
}

/// What is known of a command that has ended, by itself or not.
#[derive(Debug, Clone)]
pub struct Exit {
    pub status: Status,
    /// Everything written to standard output, up to the limit.
    pub stdout: Vec<u8>,
    /// At most the last 4 KiB, made fit for a text column: valid UTF-8 without NUL.
    pub stdout_tail: String,
    /// As `stdout_tail`.
    pub stderr_tail: String,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub wall: Duration,
    /// User and system time of the command and every descendant that was waited for.
    pub cpu: Duration,
    /// The resident memory of the largest single process; at least the guard's own, a few megabytes.
    pub peak_memory_bytes: u64,
}

/// Runs `command` to its end. `Ok` says that it ended by itself, not that it succeeded: see [`Exit::status`].
///
/// When this returns, no process of the command is left, short of those the [guard](crate::guard) lists as
/// able to escape. Dropping the future ends them too, at once and without grace, soon after.
pub async fn run(command: &Command, progress: &Progress, stop: CancellationToken) -> Result<Exit, Error> {
    check(command).await?;
    if stop.is_cancelled() {
        return Err(Error::Stopped);
    }
    let guarded = guarded::Guarded::start(command).await?;
    watch::Watch::new(command, progress, guarded).run(stop).await
}

async fn check(command: &Command) -> Result<(), Error> {
    if command.argv.first().is_none_or(String::is_empty) {
        return Err(Error::Empty);
    }
    let cannot_start = |reason: String| Err(Error::CannotStart { program: command.program().into(), reason });
    let texts = command.argv.iter().chain(command.env.iter().flat_map(|(name, value)| [name, value]));
    if let Some(text) = texts.into_iter().find(|text| text.contains('\0')) {
        return cannot_start(format!("a NUL byte in {text:?}; no argument or variable can hold one"));
    }
    match tokio::fs::metadata(&command.cwd).await {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => cannot_start(format!("its working directory {} is not a directory", command.cwd.display())),
        Err(error) => cannot_start(format!("its working directory {}: {error}", command.cwd.display())),
    }
}
