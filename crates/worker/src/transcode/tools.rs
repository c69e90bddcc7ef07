//! What the stages of transcoding have in common: where files go, and how programs are run and their failures told.

use super::Work;
use crate::depot::Depot;
use crate::handler::Failed;
use crate::process::{Command, Error, Exit, Guard, Limits, Measure, Status};
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Tools {
    pub depot: Depot,
    /// For each ffmpeg. Default: none.
    pub limits: Limits,
    pub guard: Guard,
}

impl Tools {
    pub fn new(depot: impl Into<Depot>) -> Self {
        Tools { depot: depot.into(), limits: Limits::default(), guard: Guard::default() }
    }
}

/// ffprobe may list a week of packets.
const OUTPUT_LIMIT: usize = 1 << 30;

impl Work<'_> {
    /// Runs ffmpeg or ffprobe in the execution's folder, to its own end.
    pub async fn run(&self, step: &str, argv: Vec<String>, measure: Option<Measure>) -> Result<Exit, Failed> {
        let folder = self.context.folder().await?;
        self.start(step, self.command(argv, folder, measure)).await
    }

    /// As [`Work::run`], in another folder and for no longer than that.
    pub async fn run_in(
        &self,
        step: &str,
        argv: Vec<String>,
        folder: &Path,
        timeout: Duration,
    ) -> Result<Exit, Failed> {
        let command = self.command(argv, folder, None);
        self.start(step, Command { timeout: Some(timeout), ..command }).await
    }

    fn command(&self, argv: Vec<String>, folder: &Path, measure: Option<Measure>) -> Command {
        let mut command = Command::new(argv, folder);
        command.limits = self.tools.limits.clone();
        command.guard = self.tools.guard.clone();
        command.output_limit = OUTPUT_LIMIT;
        command.measure = measure;
        command
    }

    async fn start(&self, step: &str, command: Command) -> Result<Exit, Failed> {
        let program = command.program().to_owned();
        self.context.run(step, command).await.map_err(|error| cut_short(&program, step, &error))
    }

    /// As [`Work::run`], and the program must also have succeeded.
    pub async fn succeed(
        &self,
        step: &str,
        argv: Vec<String>,
        measure: Option<Measure>,
    ) -> Result<Exit, Failed> {
        let program = argv.first().cloned().unwrap_or_default();
        let exit = self.run(step, argv, measure).await?;
        if exit.status.is_success() {
            Ok(exit)
        } else {
            Err(unsuccessful(&program, step, &exit))
        }
    }

    /// Does file work where it holds up nobody.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Failed> {
        let done = tokio::task::spawn_blocking(work).await;
        self.context.progress.beat();
        done.map_err(|error| Failed::transient(format!("the worker broke down: {error}")))?
    }

    /// Hands what is in `made` to those who will read it; returns where it is.
    pub async fn keep(&self, made: PathBuf) -> Result<String, Failed> {
        let kept = self.tools.depot.keep(self.job, self.context, made).await;
        self.context.progress.beat();
        kept
    }
}

/// The disk's fault, or that of whoever filled it: worth another try.
pub fn disk(doing: &str, path: &Path, error: &std::io::Error) -> Failed {
    let path = path.display();
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
            full(&format!("{doing} {path}"))
        }
        _ => Failed::transient(format!("{doing} {path} failed: {error}")),
    }
}

fn full(doing: &str) -> Failed {
    Failed::transient(format!("{doing}: no space is left on the disk; make some and try again"))
}

fn cut_short(program: &str, step: &str, error: &Error) -> Failed {
    match error {
        Error::Empty => Failed::permanent(error.to_string()),
        Error::CannotStart { .. } => Failed::transient(error.to_string()),
        Error::OutputTooLarge { .. } => Failed::permanent(format!("{step}: `{program}` {error}")),
        Error::TimedOut { .. } | Error::Stalled { .. } => {
            Failed::transient(format!("{step}: `{program}` {error}"))
        }
        Error::Stopped | Error::GuardLost { .. } | Error::Io { .. } => {
            Failed::transient(format!("{step}: {error}"))
        }
    }
}

fn unsuccessful(program: &str, step: &str, exit: &Exit) -> Failed {
    if exit.stderr_tail.contains("No space left on device") {
        return full(step);
    }
    let how = match exit.status {
        Status::Code(code) => format!("{step}: `{program}` ended with exit code {code}"),
        Status::Signal(signal) => format!("{step}: `{program}` was ended by signal {signal}"),
    };
    Failed::transient(complaint(&exit.stderr_tail).map_or(how.clone(), |why| format!("{how}: {why}")))
}

/// Of all that ffmpeg complained about, the line that says most: the first error of the last burst is followed by its
/// consequences, and those say less and less.
pub fn complaint(stderr: &str) -> Option<&str> {
    const CONSEQUENCES: [&str; 4] =
        ["Conversion failed", "Error while filtering", "Last message repeated", "Error initializing output"];
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = |line: &&str| !CONSEQUENCES.iter().any(|consequence| line.contains(consequence));
    let all: Vec<&str> = lines.by_ref().collect();
    all.iter().rev().copied().find(telling).or(all.last().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_complaint_that_says_most_is_told() {
        let stderr = "[h264] deprecated\n[out#0] No space left on device\nConversion failed!\n";

        assert_eq!(complaint(stderr), Some("[out#0] No space left on device"));
        assert_eq!(complaint("Conversion failed!\n"), Some("Conversion failed!"));
        assert_eq!(complaint("\n  \n"), None);
    }
}
