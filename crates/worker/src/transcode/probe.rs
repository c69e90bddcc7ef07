//! What the file is.

use super::tools::Run;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::{Exit, Sink};
use media::limits::FileLimits;
use media::probe::{self, Answer, File, LONGEST_REPORT, Looked};
use media::source::Source;
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

/// Enough to tell a web page from a program.
const HEAD: u64 = 512;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let run = |step, argv, sink| {
            work.run(Run::new(step, argv, input.reach()).saying(LONGEST_REPORT).told_to(sink))
        };
        let limits = &work.tools.file_limits;
        let found = match input.at_server() {
            None => look(input.argument(), limits, run).await,
            Some(source) => {
                let (bytes, head) = (source.bytes(), source.head());
                look_at(&File { input: input.argument(), bytes, head }, source.name(), limits, run).await
            }
        };
        outcome(&input.unchanged(found)?)
    })
}

/// Finds out what a file is, by commands that `run` runs. What one says goes to the sink, if it is given one.
pub async fn look<R>(
    source: &str,
    limits: &FileLimits,
    run: impl Fn(&'static str, Vec<String>, Option<Sink>) -> R,
) -> Result<Source, Failed>
where
    R: Future<Output = Result<Exit, Failed>>,
{
    let (bytes, head) = first_bytes(source)?;
    look_at(&File { input: source, bytes, head: &head }, source, limits, run).await
}

/// As [`look`], at a file that people know by another name than ffprobe.
async fn look_at<R>(
    file: &File<'_>,
    name: &str,
    limits: &FileLimits,
    run: impl Fn(&'static str, Vec<String>, Option<Sink>) -> R,
) -> Result<Source, Failed>
where
    R: Future<Output = Result<Exit, Failed>>,
{
    let failed = |error| failed(name, &error);
    let exit = run("probe", probe::look(file.input), None).await?;
    let looked = Looked::read(file, &answer(&exit)).map_err(failed)?;
    looked.check(limits).map_err(failed)?;
    // The list of packets is longer than anybody should keep: it is read as it comes.
    let reader = Arc::new(Mutex::new(Some(looked.reader(limits))));
    let sink = Sink::new({
        let reader = reader.clone();
        move |bytes| match reader.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(reader) => reader.feed(bytes),
            None => ControlFlow::Break(()),
        }
    });
    let exit = run("scan", looked.scan(), Some(sink)).await?;
    let reader = reader.lock().unwrap_or_else(PoisonError::into_inner).take();
    let reader = reader.ok_or_else(|| Failed::transient("the list of packets was not read"))?;
    // Minutes of packets are looked at in a moment, and a day of them in a second or two.
    tokio::task::block_in_place(|| looked.finish_read(reader, &answer(&exit), limits).map_err(failed))
}

fn answer(exit: &Exit) -> Answer<'_> {
    Answer { stdout: &exit.stdout, stderr: &exit.stderr_tail, succeeded: exit.status.is_success() }
}

fn first_bytes(source: &str) -> Result<(u64, Vec<u8>), Failed> {
    if probe::input::is_remote(source) {
        return Ok((0, Vec::new()));
    }
    let look = || {
        // Opening a pipe would wait for ever.
        if !std::fs::metadata(source)?.is_file() {
            return Ok(None);
        }
        let file = std::fs::File::open(source)?;
        let found = file.metadata()?;
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head)?;
        Ok(Some((found.len(), head)))
    };
    let looked = look().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Failed::permanent(format!("{source}: there is no such file")),
        _ => Failed::transient(format!("{source} cannot be read: {error}")),
    });
    looked?.ok_or_else(|| Failed::permanent(format!("{source} is not a regular file")))
}

fn failed(name: &str, error: &probe::Error) -> Failed {
    let message = format!("{name}: {error}");
    match error {
        probe::Error::Unusable(_) => Failed::permanent(message),
        probe::Error::Failed(_) => Failed::transient(message),
    }
}
