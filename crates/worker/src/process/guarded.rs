//! One guard and the thread that starts and reaps it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::process::{ChildStderr, ChildStdout};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::environment::environment;
use super::leader::Leader;
use super::lifeline::Lifeline;
use super::{Command, Error, Reach};
use crate::guard::args::Args;
use crate::guard::cage::Cage;
use crate::sandbox::Sandbox;

/// A started guard. Dropping it ends the guard, and with it everything below.
pub(super) struct Guarded {
    leader: Leader,
    /// See [`Command::patience`].
    patience: Duration,
    /// The worker's end. Closing it tells the guard that the worker is gone; the guard's messages come out
    /// of it.
    pub lifeline: Lines<BufReader<Lifeline>>,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
    /// Taken before the start, so that a busy worker does not give the command more time than it has.
    pub since: Instant,
    /// How the guard ended, once it has been reaped.
    pub gone: oneshot::Receiver<ExitStatus>,
}

struct Started {
    leader: Leader,
    stdout: std::process::ChildStdout,
    stderr: std::process::ChildStderr,
}

impl Guarded {
    pub async fn start(command: &Command) -> Result<Self, Error> {
        Self::try_start(command).await.map_err(|source| match source.raw_os_error() {
            errno @ Some(libc::E2BIG) => {
                Error::cannot_start(command.program(), &command.cwd, errno, source.to_string())
            }
            _ => {
                Error::Io { doing: format!("starting the guard {}", command.guard.program.display()), source }
            }
        })
    }

    async fn try_start(command: &Command) -> io::Result<Self> {
        let since = Instant::now();
        let (ours, theirs) = StdUnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let guard = guard_command(command, theirs);
        let (started_to, started) = oneshot::channel();
        let (gone_to, gone) = oneshot::channel();
        // A thread for each guard, from its start to its end: the kernel's notice of the worker's death is in
        // truth of the death of the thread that started the child, and tokio's threads come and go. It also
        // reaps the guard whatever becomes of the future or the runtime.
        std::thread::Builder::new().name("guard".into()).spawn(move || attend(guard, started_to, gone_to))?;
        let started = started.await.map_err(io::Error::other).flatten()?;
        Ok(Self {
            leader: started.leader,
            patience: command.patience,
            lifeline: BufReader::new(Lifeline::new(UnixStream::from_std(ours)?)).lines(),
            stdout: ChildStdout::from_std(started.stdout)?,
            stderr: ChildStderr::from_std(started.stderr)?,
            since,
            gone,
        })
    }

    /// Asks the guard to end the command within `grace`; sees to it that it does.
    pub fn end(&self, grace: Duration) {
        self.leader.signal(libc::SIGTERM);
        self.leader.signal(libc::SIGCONT);
        self.leader.kill_after(grace.saturating_add(self.patience));
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // A stopped guard would not notice that its lifeline is cut.
        if self.leader.signal(libc::SIGCONT) {
            self.leader.kill_after(self.patience);
        }
    }
}

fn guard_command(command: &Command, lifeline: StdUnixStream) -> std::process::Command {
    let args = Args {
        grace: command.grace,
        limits: command.limits.clone(),
        cage: command.reach.as_ref().and_then(|reach| cage(reach, command.guard.sandbox)),
        command: command.argv.iter().map(Into::into).collect(),
    };
    let mut guard = std::process::Command::new(&command.guard.program);
    guard.args(&command.guard.args).args(args.to_vec());
    guard.env_clear().envs(environment(command));
    guard.current_dir(&command.cwd).process_group(0);
    guard.stdin(OwnedFd::from(lifeline)).stdout(Stdio::piped()).stderr(Stdio::piped());
    guard
}

fn cage(reach: &Reach, sandbox: Sandbox) -> Option<Cage> {
    (sandbox != Sandbox::Off).then(|| Cage {
        is_required: sandbox == Sandbox::Require,
        reads: reach.reads.clone(),
        writes: reach.writes.clone(),
        port: reach.door.as_ref().map(|door| door.port),
    })
}

fn attend(
    mut guard: std::process::Command,
    started: oneshot::Sender<io::Result<Started>>,
    gone: oneshot::Sender<ExitStatus>,
) {
    let child = guard.spawn();
    // With it goes the worker's copy of the guard's end of the lifeline: only the guard must hold that.
    drop(guard);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    let leader = Leader::of(&child);
    if let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) {
        let _ = started.send(Ok(Started { leader: leader.clone(), stdout, stderr }));
    }
    if let Ok(status) = leader.reap(&mut child) {
        let _ = gone.send(status);
    }
}
