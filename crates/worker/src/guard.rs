//! The parent of every command a worker runs: `vodmill guard [OPTIONS] -- PROGRAM [ARGS…]`.
//!
//! A worker may be killed at any line, and a killed process cannot clean up after itself. So it never starts
//! a command directly: it starts this guard, a second, tiny instance of its own program, which starts the
//! command and outlives the worker by just long enough to kill what the worker left behind.
//!
//! - Standard input is the *lifeline*, one end of a socket pair whose other end only the worker holds. Its
//!   end of file means that the worker is gone, however it went. The guard's messages go the other way.
//! - As a child subreaper the guard inherits every descendant whose parent died, so that one that called
//!   `setsid` or made itself a daemon is still found below it, and still killed.
//! - SIGTERM and SIGINT ask it to end: it passes SIGTERM on, waits out the grace, then kills.
//!
//! Commands that read files of strangers run in a [`cage`].
//!
//! What can escape from outside of one: work handed to somebody else's daemon (`docker run`, `at`, `systemd-run`), and processes
//! the guard may not signal because they changed their user. If the guard itself is killed by SIGKILL, the
//! kernel kills the command and the worker kills the process group; a descendant that had left the group
//! lives on. On systems other than Linux there is no subreaper and no `/proc`: only the process group is
//! killed.

pub(crate) mod args;
pub(crate) mod cage;
mod folder;
mod limits;
pub(crate) mod message;
mod signals;
mod spawn;
mod taken;
pub(crate) mod tree;
mod usage;

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use args::Args;
pub use cage::{Examined, Item};
use folder::Folder;
pub use limits::Limits;
pub use message::Status;
use message::{Ended, Exceeded, Message};
use signals::Signals;
use taken::Taken;

/// How long the guard keeps killing before it reports the survivors and gives up. Only a process stuck in the
/// kernel (a dead network mount), or one the guard may not signal, lasts this long.
const KILL_LIMIT: Duration = Duration::from_secs(15);

/// How soon a sweep looks again for processes that were born while it was killing.
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// How often a quiet guard looks around even if nothing woke it.
const LOOK_AROUND: Duration = Duration::from_millis(250);

/// A command may have so much more memory than its limit: what the kernel does not count to it, such as its first stack.
const MEMORY_SLACK: u64 = 64 << 20;

/// Runs the hidden subcommand with the arguments that follow its name, and exits as the command did.
///
/// Call it first thing in `main`, before any thread is started: it forks, and signals must reach this thread.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ! {
    let mut args = args.into_iter().peekable();
    if args.next_if(|arg| arg == EXAMINE).is_some() {
        std::process::exit(examine());
    }
    let code =
        Args::parse(args).map_err(io::Error::other).and_then(|args| guard(&args)).unwrap_or_else(|error| {
            eprintln!("vodmill guard: {error}");
            2
        });
    std::process::exit(code)
}

/// The argument that makes a guard find out which parts of the cage work here, instead of guarding anything.
pub(crate) const EXAMINE: &str = "--examine";

fn examine() -> i32 {
    let examined = cage::examine().and_then(|examined| Ok(serde_json::to_string(&examined)?));
    match examined {
        Ok(json) => {
            println!("{json}");
            0
        }
        Err(error) => {
            eprintln!("vodmill guard: {error}");
            2
        }
    }
}

fn guard(args: &Args) -> io::Result<i32> {
    let parent = std::os::unix::process::parent_id();
    lead_a_group();
    tree::adopt_orphans()?;
    hide_descriptors();
    let signals = Signals::catch()?;

    match spawn::spawn(args) {
        Ok(pid) => {
            tell(&Message::Started { pid });
            let mut watch = Watch {
                parent,
                signals,
                command: pid,
                ended: None,
                kill_at: None,
                grace: args.grace,
                folder: args.limits.folder_bytes.map(Folder::of_this_process),
                limits: args.limits.clone(),
                exceeded: None,
            };
            watch.until_over();
            let survivors = watch.sweep();
            Ok(watch.report(survivors))
        }
        Err(error) => {
            tell(&Message::NotStarted { errno: error.raw_os_error(), reason: error.to_string() });
            Ok(127)
        }
    }
}

/// The worker puts the guard into a group of its own when it starts it; this is for a guard started by hand.
fn lead_a_group() {
    // SAFETY: takes no pointers. It fails only for a session leader, which leads a group already.
    unsafe { libc::setpgid(0, 0) };
}

/// Marks everything but 0, 1 and 2 close-on-exec, so that what the worker inherited carelessly from whoever
/// started it does not reach the command.
fn hide_descriptors() {
    let Ok(entries) = std::fs::read_dir("/dev/fd") else { return };
    let names = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for fd in names.filter(|fd| *fd > 2) {
        // SAFETY: changes a flag of a descriptor by number; one that was closed meanwhile gives EBADF.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Writes one line to the worker. A worker that is gone is noticed at the lifeline, not here.
fn tell(message: &Message) {
    let _ = message::send(io::stdin().as_fd(), message, None);
}

struct Watch {
    /// The worker. Another parent means that it died.
    parent: u32,
    signals: Signals,
    command: i32,
    /// Set when the command has been reaped.
    ended: Option<Status>,
    /// Set once somebody asked the guard to end.
    kill_at: Option<Instant>,
    grace: Duration,
    /// What the command writes to, where that is limited.
    folder: Option<Folder>,
    limits: Limits,
    /// Why it was ended.
    exceeded: Option<Exceeded>,
}

impl Watch {
    /// Returns when the command has ended, the worker is gone, or the grace is over.
    fn until_over(&mut self) {
        loop {
            self.reap();
            let now = Instant::now();
            if self.ended.is_some() || self.kill_at.is_some_and(|at| at <= now) || self.worker_is_gone() {
                return;
            }
            self.exceeded = self.look(now);
            if self.exceeded.is_some() {
                return;
            }
            if self.kill_at.is_none() && self.signals.asked_to_end() {
                tree::signal_all(self.command, libc::SIGTERM);
                // A stopped process takes no notice of SIGTERM until it continues.
                tree::signal_all(self.command, libc::SIGCONT);
                self.kill_at = Some(now + self.grace);
            }
            let pause = self.kill_at.map_or(LOOK_AROUND, |at| LOOK_AROUND.min(at - now));
            if self.signals.wait(Some(signals::LIFELINE), pause) && signals::lifeline_is_cut() {
                return;
            }
        }
    }

    /// Whether the command takes more than it may, of what the kernel does not see to.
    fn look(&mut self, now: Instant) -> Option<Exceeded> {
        if self.folder.as_mut().is_some_and(|folder| folder.is_too_large(now)) {
            return Some(Exceeded::Folder);
        }
        let taken = Taken::by(self.command)?;
        let is_over = |limit: Option<u64>, taken: u64| limit.is_some_and(|limit| taken > limit);
        let memory = self.limits.memory_bytes.map(|bytes| bytes.saturating_add(MEMORY_SLACK));
        if is_over(memory, taken.memory_bytes) {
            return Some(Exceeded::Memory);
        }
        is_over(self.limits.threads, taken.threads).then_some(Exceeded::Threads)
    }

    /// A second line beside the lifeline, whose other end could have leaked into some other process.
    fn worker_is_gone(&self) -> bool {
        std::os::unix::process::parent_id() != self.parent
    }

    /// Kills until no descendant is left, and returns how many could not be killed. As all orphans become
    /// children of the guard, having no child means having no descendant.
    fn sweep(&mut self) -> usize {
        let give_up = Instant::now() + KILL_LIMIT;
        while self.reap() {
            if Instant::now() >= give_up {
                return tree::descendants(std::process::id().cast_signed()).len().max(1);
            }
            tree::signal_all(self.command, libc::SIGKILL);
            self.signals.wait(None, SWEEP_PAUSE);
        }
        0
    }

    /// Reaps every child that is dead; `false` when there is no child left, dead or alive.
    fn reap(&mut self) -> bool {
        loop {
            let mut status = 0;
            // SAFETY: `status` is a valid place for the one integer that is written.
            match unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG) } {
                0 => return true,
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                -1 => return false,
                pid if pid == self.command => self.ended = Some(Status::of(ExitStatus::from_raw(status))),
                _ => {}
            }
        }
    }

    fn report(&mut self, survivors: usize) -> i32 {
        if self.folder.as_mut().is_some_and(Folder::is_too_large_at_last) {
            self.exceeded.get_or_insert(Exceeded::Folder);
        }
        let status = self.ended.unwrap_or(Status::Signal(libc::SIGKILL));
        let usage = usage::of_reaped_children();
        tell(&Message::Ended(Ended { status, usage, survivors, exceeded: self.exceeded }));
        tree::last_act();
        match status {
            Status::Code(code) => code,
            Status::Signal(signal) => 128 + signal,
        }
    }
}
