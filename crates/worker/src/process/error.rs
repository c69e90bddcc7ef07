//! Why a command did not run to its own end.

use std::path::Path;
use std::time::Duration;

use super::Exit;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no command given: name a program as the first argument")]
    Empty,
    /// The command is at fault, or this machine lacks it; trying again here will not help.
    #[error("cannot start `{program}`: {reason}")]
    CannotStart { program: String, reason: String },
    /// The stop token was cancelled, perhaps before the command was started.
    #[error("stopped on request")]
    Stopped,
    #[error("still running after {after:?}, its time limit, and was killed")]
    TimedOut { after: Duration, exit: Box<Exit> },
    #[error("made no progress for {after:?} and was killed")]
    Stalled { after: Duration, exit: Box<Exit> },
    #[error("wrote more than {limit} bytes to standard output, its limit, and was killed")]
    OutputTooLarge { limit: usize, exit: Box<Exit> },
    #[error("wrote more than {limit} bytes to its work folder, its limit, and was killed")]
    WroteTooMuch { limit: u64, exit: Box<Exit> },
    #[error("took more than {} MB of memory, its limit, and was killed", limit >> 20)]
    TookTooMuchMemory { limit: u64, exit: Box<Exit> },
    #[error("started more than {limit} threads, its limit, and was killed")]
    TooManyThreads { limit: u64, exit: Box<Exit> },
    /// Somebody killed the guard (the kernel, when memory ran out?), or the program named as guard is none.
    #[error("lost the guard of `{program}` ({how}); its process group was killed: {stderr_tail}")]
    GuardLost { program: String, how: String, stderr_tail: String },
    /// The worker's machine is at fault: out of processes, descriptors or memory.
    #[error("{doing}")]
    Io { doing: String, source: std::io::Error },
}

impl Error {
    /// What is known of the command, if it ran and was cut short.
    pub fn exit(&self) -> Option<&Exit> {
        match self {
            Self::TimedOut { exit, .. }
            | Self::Stalled { exit, .. }
            | Self::OutputTooLarge { exit, .. }
            | Self::WroteTooMuch { exit, .. }
            | Self::TookTooMuchMemory { exit, .. }
            | Self::TooManyThreads { exit, .. } => Some(exit),
            Self::Empty
            | Self::CannotStart { .. }
            | Self::Stopped
            | Self::GuardLost { .. }
            | Self::Io { .. } => None,
        }
    }

    pub(crate) fn exit_mut(&mut self) -> Option<&mut Exit> {
        match self {
            Self::TimedOut { exit, .. }
            | Self::Stalled { exit, .. }
            | Self::OutputTooLarge { exit, .. }
            | Self::WroteTooMuch { exit, .. }
            | Self::TookTooMuchMemory { exit, .. }
            | Self::TooManyThreads { exit, .. } => Some(exit),
            Self::Empty
            | Self::CannotStart { .. }
            | Self::Stopped
            | Self::GuardLost { .. }
            | Self::Io { .. } => None,
        }
    }

    /// From what exec said about `program`, looked up from `cwd`.
    pub(super) fn cannot_start(program: &str, cwd: &Path, errno: Option<i32>, otherwise: String) -> Self {
        let is_path = program.contains('/');
        let reason = match errno {
            Some(libc::ENOENT) if !is_path => {
                "no such program in PATH; install it, or give its full path".into()
            }
            Some(libc::ENOENT) if cwd.join(program).exists() => {
                "the file is there, but not the interpreter or loader it asks for; install that, \
                 or correct its #! line"
                    .into()
            }
            Some(libc::ENOENT) => "no such file; install it, or correct the path".into(),
            Some(libc::EACCES) => "permission denied; make it an executable file this user may run".into(),
            Some(libc::ENOEXEC) => "not a program for this machine; a script needs a #! line".into(),
            Some(libc::E2BIG) => {
                "its arguments and environment are too long for this system; shorten them".into()
            }
            _ => otherwise,
        };
        Self::CannotStart { program: program.into(), reason }
    }
}
