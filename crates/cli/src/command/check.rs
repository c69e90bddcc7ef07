use crate::settings::{Settings, Usage};
use crate::{Done, output};
use anyhow::Context;
use media::check::{Check, Decode, Error, Level, Measures, Outcome, Verdict};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use worker::process::{self, Guard, Progress, Reach};

/// Check an HLS stream against the rules of HLS and of Apple
///
/// Reads every playlist and segment, compares what is promised with what is there (files, times, key frames, codecs,
/// bitrates), and decodes the first and the last segment of each rendition with ffmpeg. The stream may be anybody's:
/// fragmented MP4 or MPEG-TS, sound apart or muxed; one made by vodmill is also held to the hashes it was published with.
/// Nothing outside of its folder is read, and nothing is written to it.
///
/// Errors are broken rules that players may fail on; warnings are advice. Each finding ends with the name of its rule.
/// Exits with 0 when there is no error, 1 when there is, 2 when there is no stream at PATH.
#[derive(clap::Args)]
pub struct Args {
    /// The stream: its folder, or a playlist in it
    path: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// For two segments of each rendition: far more than any takes.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let verdict = tokio::select! {
            verdict = verdict(&self.path, settings.guard()) => verdict?,
            interrupted = tokio::signal::ctrl_c() => {
                interrupted?;
                return Ok(Done::Interrupted);
            }
        };
        match self.json {
            true => output::json(&verdict)?,
            false => print(&verdict),
        }
        Ok(if verdict.is_good() { Done::Yes } else { Done::No })
    }
}

async fn verdict(path: &Path, guard: Guard) -> anyhow::Result<Verdict> {
    let scratch = tempfile::tempdir().context("making a folder for segments to decode")?;
    let (path, folder) = (path.to_owned(), scratch.path().to_owned());
    let prepared = tokio::task::spawn_blocking(move || {
        let check = Check::open_any(&path).map_err(usage)?;
        let decodes = check.decodes(&folder).context("copying segments to decode")?;
        anyhow::Ok((check, decodes))
    });
    let (mut check, decodes) = prepared.await??;
    for decode in &decodes {
        check.decoded(decode, &run(decode, scratch.path(), &guard).await?);
    }
    Ok(check.verdict())
}

/// Whoever asks for a stream that is not there can mend that.
fn usage(error: Error) -> anyhow::Error {
    match error {
        Error::Io { .. } => error.into(),
        Error::NotFound(_) | Error::NoPlaylist(_) | Error::Ambiguous(_) => Usage(error.to_string()).into(),
    }
}

async fn run(decode: &Decode, folder: &Path, guard: &Guard) -> anyhow::Result<Outcome> {
    let mut command = process::Command::new(decode.argv.iter().cloned(), folder);
    command.timeout = Some(PATIENCE);
    command.guard = guard.clone();
    command.reach = Some(Reach::reading(folder));
    let exit = process::run(&command, &Progress::default(), CancellationToken::new()).await;
    let exit = exit.context("decoding segments")?;
    Ok(Outcome { is_success: exit.status.is_success(), stderr: exit.stderr_tail })
}

fn print(verdict: &Verdict) {
    let rows: Vec<_> = verdict.measured.renditions.iter().map(row).collect();
    if !rows.is_empty() {
        output::table(
            ["rendition", "kind", "codec", "size", "length", "frames", "segments", "average", "peak"],
            &rows,
        );
    }
    for (level, title, colour) in [(Level::Error, "errors", "31"), (Level::Warning, "warnings", "33")] {
        let mut found = verdict.findings.iter().filter(|finding| finding.level == level).peekable();
        if found.peek().is_some() {
            output::raw_line(&format!("\n{}", painted(title, colour)));
        }
        for finding in found {
            output::line(&format!("  {}: {}  [{}]", finding.place, finding.message, finding.rule));
        }
    }
    output::raw_line(&format!("\n{}", conclusion(verdict)));
}

fn conclusion(verdict: &Verdict) -> String {
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (errors, warnings) = (verdict.errors(), verdict.warnings());
    match (errors, warnings) {
        (0, 0) => painted("ok", "32"),
        (0, _) => format!("{}, {}", painted("ok", "32"), count(warnings, "warning")),
        _ => painted(&format!("{}, {}", count(errors, "error"), count(warnings, "warning")), "31"),
    }
}

fn row(measures: &Measures) -> [String; 9] {
    let size = match (measures.width, measures.height, measures.frame_rate) {
        (Some(width), Some(height), Some(rate)) => format!("{width}×{height} {rate}/s"),
        (Some(width), Some(height), None) => format!("{width}×{height}"),
        _ => measures.channels.map_or("-".into(), |count| format!("{count} ch")),
    };
    let unless_zero = |count: u64| output::or_dash((count > 0).then_some(count));
    let rate = |bits: u64| if bits > 0 { format!("{} kb/s", bits.div_ceil(1000)) } else { "-".into() };
    [
        measures.name.clone(),
        measures.kind.replace('_', "-"),
        if measures.codec.is_empty() { "-".into() } else { measures.codec.clone() },
        size,
        format!("{:.3} s", measures.duration),
        unless_zero(measures.frames),
        measures.segments.to_string(),
        rate(measures.average_bitrate),
        rate(measures.peak_bitrate),
    ]
}

/// In colour on a terminal whose owner does not mind.
fn painted(text: &str, colour: &str) -> String {
    let is_wanted =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    if is_wanted { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.into() }
}
