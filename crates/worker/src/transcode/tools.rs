//! What the stages of transcoding have in common: where files go, and how programs are run and their failures told.

use super::Work;
use super::ingest::Imports;
use crate::depot::Depot;
use crate::handler::Failed;
use crate::memory::Budget;
use crate::process::{Command, Error, Exit, Guard, Limits, Measure, Reach, Sink, Status};
use files::Reserve;
use media::limits::FileLimits;
use pipeline::FilePath;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::UnboundedSender;

#[derive(Debug, Clone)]
pub struct Tools {
    pub depot: Depot,
    /// For each ffmpeg. Default: what the stage is expected to need, and more.
    pub limits: Limits,
    pub guard: Guard,
    /// How much of one file is taken on.
    pub file_limits: FileLimits,
    /// What encoders share.
    pub memory: Budget,
    /// What is to stay free when something is fetched.
    pub room: Reserve,
    /// What jobs may fetch. Default: nothing.
    pub imports: Option<Imports>,
    /// Hears of committed output that is not what its task was to make, where somebody listens.
    pub bad_outputs: Option<UnboundedSender<BadOutput>>,
}

/// Committed output that the gate has refused.
#[derive(Debug, Clone)]
pub struct BadOutput {
    pub execution: FilePath,
    pub why: String,
}

impl Tools {
    pub fn new(depot: impl Into<Depot>) -> Self {
        Tools {
            depot: depot.into(),
            limits: Limits::default(),
            guard: Guard::default(),
            file_limits: FileLimits::default(),
            memory: Budget::of_this_machine(),
            room: Reserve::default(),
            imports: None,
            bad_outputs: None,
        }
    }
}

/// What a run may write to its standard output: of ffmpeg, how far it is, once a second.
const OUTPUT_LIMIT: usize = 64 << 20;

const BEAT: Duration = Duration::from_secs(1);

/// No run of a program takes longer, whatever it is at.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The check decodes up to 96 files at once.
const OPEN_FILES: u64 = 1024;

/// Decoders and encoders have some for each processor, and the check has 96 of the former.
const THREADS: u64 = 1024;
const THREADS_OF_A_PROCESSOR: u64 = 128;

/// A run may write so many times what it is expected to, and a little for what is small.
const TIMES_AS_MUCH: u64 = 4;
const A_LITTLE: u64 = 256 << 20;

fn most_written(expected: u64) -> u64 {
    expected.saturating_mul(TIMES_AS_MUCH).saturating_add(A_LITTLE)
}

/// Of all threads together, on all processors.
fn cpu_seconds(timeout: Duration) -> u64 {
    timeout.as_secs().saturating_mul(processors()).max(1)
}

/// Far more than a run has, and less than a machine cannot bear.
fn threads() -> u64 {
    THREADS + THREADS_OF_A_PROCESSOR * processors()
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get) as u64
}

/// One run of ffmpeg or ffprobe.
pub struct Run {
    step: &'static str,
    argv: Vec<String>,
    reach: Reach,
    /// Default: the execution's own.
    folder: Option<PathBuf>,
    measure: Option<Measure>,
    timeout: Duration,
    /// Default: nothing.
    writes: u64,
    /// An estimate, in bytes. Default: not much.
    memory: u64,
    /// In bytes, all of which are kept.
    output: usize,
    sink: Option<Sink>,
}

impl Run {
    /// Reads what it may `reach`, and writes nothing.
    pub fn new(step: &'static str, argv: Vec<String>, reach: Reach) -> Self {
        Run {
            step,
            argv,
            reach,
            folder: None,
            measure: None,
            timeout: LONGEST,
            writes: 0,
            memory: 0,
            output: OUTPUT_LIMIT,
            sink: None,
        }
    }

    pub fn measured(mut self, measure: Measure) -> Self {
        self.measure = Some(measure);
        self
    }

    /// Takes about so many bytes of memory, for which it waits its turn.
    pub fn taking(mut self, bytes: u64) -> Self {
        self.memory = bytes;
        self
    }

    pub fn told_to(mut self, sink: Option<Sink>) -> Self {
        self.sink = sink;
        self
    }

    /// Says no more than so many bytes.
    pub fn saying(mut self, most: usize) -> Self {
        self.output = most;
        self
    }

    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    pub fn in_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Writes about so many bytes to the folder it runs in.
    pub fn writing(mut self, bytes: u64) -> Self {
        self.writes = bytes.max(1);
        self
    }
}

impl Work<'_> {
    /// Runs ffmpeg or ffprobe, to its own end.
    pub async fn run(&self, run: Run) -> Result<Exit, Failed> {
        let (step, program) = (run.step, run.argv.first().cloned().unwrap_or_default());
        self.start(run).await?.map_err(|error| cut_short(&program, step, &error))
    }

    /// As [`Work::run`], of a file that may be made to break a limit; none if it did.
    pub async fn run_on_untrusted(&self, run: Run) -> Result<Option<Exit>, Failed> {
        let (step, program) = (run.step, run.argv.first().cloned().unwrap_or_default());
        let limit = self.memory_limit(&run);
        match self.start(run).await? {
            Ok(exit) if !exit.status.is_success() && lacked_memory(&exit.stderr_tail) => {
                Err(out_of_memory(&program, step, limit))
            }
            Ok(exit) => Ok(Some(exit)),
            Err(
                Error::OutputTooLarge { .. }
                | Error::WroteTooMuch { .. }
                | Error::TooManyThreads { .. }
                | Error::TimedOut { .. }
                | Error::Stalled { .. },
            ) => Ok(None),
            Err(error) => Err(cut_short(&program, step, &error)),
        }
    }

    async fn start(&self, run: Run) -> Result<Result<Exit, Error>, Failed> {
        let folder = match &run.folder {
            Some(folder) => folder.clone(),
            None => self.context.folder().await?.to_owned(),
        };
        let _memory = self.reserve(run.memory).await?;
        let memory = self.memory_limit(&run);
        let mut command = Command::new(run.argv, &folder);
        command.limits = Limits {
            memory_bytes: Some(memory),
            cpu_seconds: self.tools.limits.cpu_seconds.or(Some(cpu_seconds(run.timeout))),
            open_files: self.tools.limits.open_files.or(Some(OPEN_FILES)),
            file_bytes: self.tools.limits.file_bytes.or(Some(most_written(run.writes))),
            // What writes nothing may have much to read there.
            folder_bytes: (run.writes > 0)
                .then(|| self.tools.limits.folder_bytes.unwrap_or_else(|| most_written(run.writes))),
            threads: self.tools.limits.threads.or(Some(threads())),
        };
        command.guard = self.tools.guard.clone();
        command.output_limit = run.output;
        command.measure = run.measure;
        command.sink = run.sink;
        command.timeout = Some(run.timeout);
        command.reach = Some(if run.writes > 0 { run.reach.and_writing(folder) } else { run.reach });
        Ok(self.context.run(run.step, command).await)
    }

    /// Waits for memory that others of this worker have; they move, so this counts as moving too.
    async fn reserve(&self, bytes: u64) -> Result<Option<OwnedSemaphorePermit>, Failed> {
        let reserved = self.tools.memory.reserve(bytes);
        tokio::pin!(reserved);
        loop {
            tokio::select! {
                permit = &mut reserved => return Ok(permit),
                () = self.context.stop.cancelled() => return Err(Failed::transient("stopped on request")),
                () = tokio::time::sleep(BEAT) => self.context.progress.beat(),
            }
        }
    }

    /// As [`Work::run`], and the program must also have succeeded.
    pub async fn succeed(&self, run: Run) -> Result<Exit, Failed> {
        let (step, program) = (run.step, run.argv.first().cloned().unwrap_or_default());
        let exit = self.run_with_memory(run).await?;
        if exit.status.is_success() {
            Ok(exit)
        } else {
            Err(unsuccessful(&program, step, &exit))
        }
    }

    /// As [`Work::run`], and the program must not have run out of memory.
    pub async fn run_with_memory(&self, run: Run) -> Result<Exit, Failed> {
        let (step, program) = (run.step, run.argv.first().cloned().unwrap_or_default());
        let limit = self.memory_limit(&run);
        let exit = self.run(run).await?;
        match exit.status.is_success() || !lacked_memory(&exit.stderr_tail) {
            true => Ok(exit),
            false => Err(out_of_memory(&program, step, limit)),
        }
    }

    fn memory_limit(&self, run: &Run) -> u64 {
        self.tools.limits.memory_bytes.unwrap_or_else(|| self.tools.memory.limit(run.memory))
    }

    /// Reports committed output that is not what its task was to make, so that a server removes it and a retry makes it
    /// again.
    pub fn refuse_output(&self, execution: &FilePath, why: &str) {
        if let Some(bad_outputs) = &self.tools.bad_outputs {
            let _ = bad_outputs.send(BadOutput { execution: execution.clone(), why: why.into() });
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
    pub async fn keep(&self, made: PathBuf) -> Result<FilePath, Failed> {
        let kept = self.tools.depot.keep(self.job, self.context, made).await;
        self.context.progress.beat();
        kept
    }
}

/// The disk's fault, or that of whoever filled it: worth another try.
pub fn disk(doing: &str, path: &Path, error: &std::io::Error) -> Failed {
    let path = path.display();
    match is_full(error) {
        true => full(&format!("{doing} {path}")),
        false => Failed::transient(format!("{doing} {path} failed: {error}")),
    }
}

pub fn is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
}

fn full(doing: &str) -> Failed {
    Failed::disk_full(format!("{doing}: no space is left on the disk; make some and try again"))
}

fn cut_short(program: &str, step: &str, error: &Error) -> Failed {
    match error {
        Error::Empty => Failed::permanent(error.to_string()),
        Error::CannotStart { .. } => Failed::transient(error.to_string()),
        Error::OutputTooLarge { .. } | Error::WroteTooMuch { .. } | Error::TooManyThreads { .. } => {
            Failed::permanent(format!("{step}: `{program}` {error}"))
        }
        Error::TookTooMuchMemory { limit, .. } => out_of_memory(program, step, *limit),
        Error::TimedOut { .. } | Error::Stalled { .. } => {
            Failed::transient(format!("{step}: `{program}` {error}"))
        }
        Error::Stopped | Error::GuardLost { .. } | Error::Io { .. } => {
            Failed::transient(format!("{step}: {error}"))
        }
    }
}

fn out_of_memory(program: &str, step: &str, limit: u64) -> Failed {
    Failed::transient(format!(
        "{step}: `{program}` ran out of memory: it may take {} MB; raise that with --encoder-memory or \
         VODMILL_ENCODER_MEMORY_MB, if the machine has more",
        limit >> 20
    ))
}

/// How ffmpeg and its encoders say that they were refused memory.
fn lacked_memory(stderr: &str) -> bool {
    const WORDS: [&str; 6] = [
        "Cannot allocate memory",
        "malloc of size",
        "failed to allocate",
        "std::bad_alloc",
        "allocate memory failed",
        "out of memory",
    ];
    WORDS.iter().any(|words| stderr.contains(words))
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
    fn encoders_say_in_their_own_ways_that_memory_is_short() {
        assert!(lacked_memory("x264 [error]: malloc of size 396 failed\n"));
        assert!(lacked_memory("[graph 0] Error: Cannot allocate memory\n"));
        assert!(!lacked_memory("[h264] no frame!\n"));
    }

    #[test]
    fn the_complaint_that_says_most_is_told() {
        let stderr = "[h264] deprecated\n[out#0] No space left on device\nConversion failed!\n";

        assert_eq!(complaint(stderr), Some("[out#0] No space left on device"));
        assert_eq!(complaint("Conversion failed!\n"), Some("Conversion failed!"));
        assert_eq!(complaint("\n  \n"), None);
    }
}
