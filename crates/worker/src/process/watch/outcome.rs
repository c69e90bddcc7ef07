//! What a run comes to, once nothing is left to follow.

use tokio::time::Instant;
use tracing::warn;

use super::{Cut, Watch};
use crate::guard::message::{Ended, Exceeded};
use crate::process::{Error, Exit, Status};

impl Watch<'_> {
    pub(super) fn result(mut self) -> Result<Exit, Error> {
        let (program, limits) = (self.command.program(), &self.command.limits);
        if let Some((errno, reason)) = self.heard.refused.take() {
            return Err(Error::cannot_start(program, &self.command.cwd, errno, reason));
        }
        let ended = self.heard.ended.take();
        if let Some(exceeded) = ended.as_ref().and_then(|ended| ended.exceeded) {
            let exit = Box::new(self.exit(ended));
            return Err(match exceeded {
                Exceeded::Folder => {
                    Error::WroteTooMuch { limit: limits.folder_bytes.unwrap_or_default(), exit }
                }
                Exceeded::Memory => {
                    Error::TookTooMuchMemory { limit: limits.memory_bytes.unwrap_or_default(), exit }
                }
                Exceeded::Threads => {
                    Error::TooManyThreads { limit: limits.threads.unwrap_or_default(), exit }
                }
            });
        }
        match (self.cut, ended) {
            (None, None) => Err(self.guard_lost()),
            (None, Some(ended)) if !self.stdout.is_over_limit() => Ok(self.exit(Some(ended))),
            (Some(Cut::Enough), ended) => Ok(self.exit(ended)),
            (None, ended) => Err(self.cut_short(Cut::OutputTooLarge, ended)),
            (Some(cut), ended) => Err(self.cut_short(cut, ended)),
        }
    }

    fn cut_short(self, cut: Cut, ended: Option<Ended>) -> Error {
        let limit = self.command.output_limit;
        let exit = Box::new(self.exit(ended));
        match cut {
            Cut::Stopped => Error::Stopped,
            Cut::TimedOut(after) => Error::TimedOut { after, exit },
            Cut::Stalled(after) => Error::Stalled { after, exit },
            Cut::Enough | Cut::OutputTooLarge => Error::OutputTooLarge { limit, exit },
        }
    }

    fn guard_lost(self) -> Error {
        let status = self.gone.and_then(|(_, status)| status);
        let how = status.map_or("it vanished".into(), |status| Status::of(status).to_string());
        Error::GuardLost { program: self.command.program().into(), how, stderr_tail: self.stderr.tail() }
    }

    fn exit(self, ended: Option<Ended>) -> Exit {
        let survivors = ended.as_ref().map_or(0, |ended| ended.survivors);
        if survivors > 0 {
            warn!("{survivors} processes of `{}` survived SIGKILL", self.command.program());
        }
        let usage = ended.as_ref().map(|ended| ended.usage).unwrap_or_default();
        Exit {
            status: ended.map_or(Status::Signal(libc::SIGKILL), |ended| ended.status),
            stdout_tail: self.stdout.tail(),
            stderr_tail: self.stderr.tail(),
            stdout_bytes: self.stdout.bytes(),
            stderr_bytes: self.stderr.bytes(),
            stdout: self.stdout.into_kept(),
            wall: self.gone.map_or_else(Instant::now, |(at, _)| at) - self.guarded.since,
            cpu: usage.cpu(),
            peak_memory_bytes: usage.peak_memory_bytes,
        }
    }
}
