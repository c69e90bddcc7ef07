//! What the file is.

use super::source::FromSource;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::Exit;
use media::probe::{self, Answer, File, Looked};
use media::source::Source;
use std::io::Read;

/// Enough to tell a web page from a program.
const HEAD: u64 = 512;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let from: FromSource = work.payload()?;
        let found = look(&from.source, |step, argv| work.run(step, argv, None)).await;
        outcome(&from.unchanged(found)?)
    })
}

/// Finds out what a file is, by commands that `run` runs.
pub async fn look<R>(source: &str, run: impl Fn(&'static str, Vec<String>) -> R) -> Result<Source, Failed>
where
    R: Future<Output = Result<Exit, Failed>>,
{
    let (bytes, head) = first_bytes(source)?;
    let file = File { input: source, bytes, head: &head };
    let exit = run("probe", probe::look(source)).await?;
    let looked = Looked::read(&file, &answer(&exit)).map_err(|error| failed(source, &error))?;
    let exit = run("scan", looked.scan()).await?;
    // Minutes of packets are read in a moment, and a day of them in a second or two.
    tokio::task::block_in_place(|| looked.finish(&answer(&exit)).map_err(|error| failed(source, &error)))
}

fn answer(exit: &Exit) -> Answer<'_> {
    Answer { stdout: &exit.stdout, stderr: &exit.stderr_tail, succeeded: exit.status.is_success() }
}

fn first_bytes(source: &str) -> Result<(u64, Vec<u8>), Failed> {
    if probe::input::is_remote(source) {
        return Ok((0, Vec::new()));
    }
    let look = || {
        let file = std::fs::File::open(source)?;
        let found = file.metadata()?;
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head)?;
        Ok((found.len(), head))
    };
    look().map_err(|error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => Failed::permanent(format!("{source}: there is no such file")),
        _ => Failed::transient(format!("{source} cannot be read: {error}")),
    })
}

fn failed(source: &str, error: &probe::Error) -> Failed {
    let message = format!("{source}: {error}");
    match error {
        probe::Error::Unusable(_) => Failed::permanent(message),
        probe::Error::Failed(_) => Failed::transient(message),
    }
}
