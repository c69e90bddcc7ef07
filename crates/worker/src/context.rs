//! What an execution gets from its worker, and what it leaves with it.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rules::task::Refusal;
use tokio::sync::OnceCell;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, warn};
use wire::{Assignment, StepRecord, Usage};

use crate::handler::Failed;
use crate::process::{self, Command, Exit, Progress, Status};
use crate::shared::blocking;
use crate::stop::Stop;
use crate::trace;
use crate::transcode::disk;

/// How much of a command line is kept.
const COMMAND_LIMIT: usize = 4 * 1024;

#[derive(Debug)]
pub struct Context {
    /// How far the work is. Its beats are what the lease is renewed for: work that has a `stall_ms` and does
    /// not beat within it is ended.
    pub progress: Progress,
    /// Cancelled when the work is to end; the handler need not know why.
    pub stop: CancellationToken,
    began: Instant,
    timeout: Option<Duration>,
    stall: Option<Duration>,
    folder: PathBuf,
    kept_folder: Option<PathBuf>,
    made: OnceCell<()>,
    record: Mutex<Record>,
    ending: Stop,
}

/// What will be reported, whether the work succeeds or not.
#[derive(Debug, Default)]
struct Record {
    step: Option<String>,
    kept: Option<i64>,
    steps: Vec<StepRecord>,
    usage: Usage,
    /// What must not be seen, and what is to be seen instead.
    concealed: Vec<(String, String)>,
}

impl Context {
    /// Time counts from `began`, when the lease was asked for. Nothing is written to `folder` before it is
    /// used.
    pub fn new(job: &Assignment, folder: impl Into<PathBuf>, began: Instant) -> Self {
        let stop = CancellationToken::new();
        Context {
            progress: Progress::default(),
            ending: Stop::new(stop.clone()),
            stop,
            began,
            timeout: job.timeout_ms.map(span),
            stall: job.stall_ms.map(span),
            folder: folder.into(),
            kept_folder: None,
            made: OnceCell::new(),
            record: Mutex::default(),
        }
    }

    /// Names the folder that [`KeptFolder::of`](crate::kept::KeptFolder::of) opens.
    pub(crate) fn with_kept_folder(self, folder: PathBuf) -> Self {
        Context { kept_folder: Some(folder), ..self }
    }

    pub(crate) fn kept_folder(&self) -> Option<&Path> {
        self.kept_folder.as_deref()
    }

    /// Says that the next execution continues from so much, in a unit of the work's own, whatever becomes of this process
    /// and its machine. An execution that is lost after it has kept more than those before it uses up no attempt.
    pub(crate) fn set_kept(&self, amount: u64) {
        self.record().kept = Some(i64::try_from(amount).unwrap_or(i64::MAX));
    }

    pub(crate) fn kept(&self) -> Option<i64> {
        self.record().kept
    }

    /// The execution's own working directory, made when first asked for and removed when it has ended.
    pub async fn folder(&self) -> Result<&Path, Failed> {
        let make = || tokio::fs::create_dir_all(&self.folder);
        let made = self.made.get_or_try_init(make).await;
        made.map_err(|error| disk("making", &self.folder, &error))?;
        Ok(&self.folder)
    }

    /// Says what the work is at, to be shown.
    pub fn set_step(&self, step: &str) {
        self.record().step = Some(step.into());
    }

    /// Adds to the bytes the work has fetched and stored.
    pub fn count_bytes(&self, bytes_in: u64, bytes_out: u64) {
        let usage = &mut self.record().usage;
        usage.bytes_in = usage.bytes_in.saturating_add_unsigned(bytes_in);
        usage.bytes_out = usage.bytes_out.saturating_add_unsigned(bytes_out);
    }

    /// From now on `shown` stands for `hidden` in everything that is kept or told of commands.
    pub fn conceal(&self, hidden: impl Into<String>, shown: impl Into<String>) {
        self.record().concealed.push((hidden.into(), shown.into()));
    }

    /// Ends the work, for the lease is lost: there is no one to report to.
    pub(crate) fn lose(&self, refusal: Refusal) {
        self.ending.stop(refusal.into());
    }

    pub(crate) fn ending(&self) -> &Stop {
        &self.ending
    }

    /// Runs a command within the limits of this execution, and keeps what it cost and how it ended.
    pub async fn run(&self, step: &str, mut command: Command) -> Result<Exit, process::Error> {
        self.set_step(step);
        command.stall = command.stall.or(self.stall);
        command.timeout = command.timeout.into_iter().chain(self.time_left()).min();
        let began = Instant::now();
        let span = trace::of_step(step, &command);
        let running = process::run(&command, &self.progress, self.stop.clone());
        let mut result = running.instrument(span.clone()).await;
        trace::step_ended(&span, &result);
        if let Some(exit) = result.as_mut().map_or_else(process::Error::exit_mut, Some) {
            exit.stdout_tail = self.concealed(std::mem::take(&mut exit.stdout_tail));
            exit.stderr_tail = self.concealed(std::mem::take(&mut exit.stderr_tail));
        }
        self.keep(step, &command, &result, began.elapsed());
        result
    }

    /// Until the execution is overdue, if it can be.
    pub fn time_left(&self) -> Option<Duration> {
        self.timeout.map(|timeout| timeout.saturating_sub(self.began.elapsed()))
    }

    pub(crate) fn stall(&self) -> Option<Duration> {
        self.stall
    }

    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    pub(crate) fn step(&self) -> Option<String> {
        self.record().step.clone()
    }

    /// What the execution has cost so far, and the commands it ran.
    pub fn recorded(&self) -> (Usage, Vec<StepRecord>) {
        let record = self.record();
        (Usage { wall_ms: millis(self.began.elapsed()), ..record.usage }, record.steps.clone())
    }

    pub(crate) async fn remove_folder(&self) {
        if !self.made.initialized() {
            return;
        }
        let folder = self.folder.clone();
        if let Err(error) = blocking(move || files::remove(&folder)).await {
            warn!("cannot remove {}, a later worker will: {error}", self.folder.display());
        }
    }

    fn concealed(&self, text: String) -> String {
        let record = self.record();
        record.concealed.iter().fold(text, |text, (hidden, shown)| text.replace(hidden, shown))
    }

    fn keep(&self, step: &str, command: &Command, result: &Result<Exit, process::Error>, took: Duration) {
        let exit = result.as_ref().map_or_else(process::Error::exit, Some);
        let command = shortened(self.concealed(command_line(&command.argv)));
        let mut record = self.record();
        if let Some(exit) = exit {
            record.usage.cpu_ms += millis(exit.cpu);
            let peak = i64::try_from(exit.peak_memory_bytes).unwrap_or(i64::MAX);
            record.usage.peak_memory_bytes = record.usage.peak_memory_bytes.max(peak);
        }
        record.steps.push(StepRecord {
            kind: step.into(),
            command,
            exit_code: exit.and_then(|exit| code(exit.status)),
            signal: exit.and_then(|exit| signal(exit.status)),
            stdout_tail: exit.map(|exit| exit.stdout_tail.clone()).unwrap_or_default(),
            stderr_tail: exit.map(|exit| exit.stderr_tail.clone()).unwrap_or_default(),
            duration_ms: millis(took),
            is_success: result.as_ref().is_ok_and(|exit| exit.status.is_success()),
            error: result.as_ref().err().map(ToString::to_string),
        });
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn span(ms: i64) -> Duration {
    Duration::from_millis(ms.max(0).unsigned_abs())
}

fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

fn code(status: Status) -> Option<i64> {
    match status {
        Status::Code(code) => Some(code.into()),
        Status::Signal(_) => None,
    }
}

fn signal(status: Status) -> Option<i64> {
    match status {
        Status::Code(_) => None,
        Status::Signal(signal) => Some(signal.into()),
    }
}

fn shortened(mut line: String) -> String {
    line.truncate(line.floor_char_boundary(COMMAND_LIMIT));
    line
}

/// As one could type it into a shell.
pub fn command_line(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    let quoted = argv.iter().map(|word| match word.as_str() {
        plain if !plain.is_empty() && plain.chars().all(is_plain) => plain.to_string(),
        other => format!("'{}'", other.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ").replace('\0', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let argv = ["ffmpeg", "-i", "a b.mov", "it's", ""].map(String::from);

        assert_eq!(command_line(&argv), r"ffmpeg -i 'a b.mov' 'it'\''s' ''");
    }
}
