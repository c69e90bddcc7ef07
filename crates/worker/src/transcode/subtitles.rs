//! One track of text, as WebVTT along the segments of the picture.

use super::tools::{Run, disk};
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::{Artifact, Subtitles};
use media::plan::{Plan, SubtitleTrack};
use media::{command, vtt};
use pipeline::SubtitleResult;
use std::fs;
use std::path::Path;

/// In bytes; a film has a hundred kilobytes of it.
const LONGEST_TEXT: u64 = 16 << 20;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, track): (Plan, SubtitleTrack) = (work.result("plan")?, work.input()?);
        let folder = work.context.folder().await?.to_owned();
        let (file, made) = (folder.join(format!("{}.vtt", track.name)), folder.join("made"));
        let argv = command::subtitles(&plan, &track, input.argument());
        let run = Run::new("subtitles", argv, input.reach()).writing(LONGEST_TEXT);
        input.unchanged(work.succeed(run).await)?;
        let subtitles = work.blocking({
            let made = made.clone();
            move || write(&file, &made, &plan, &track)
        });
        let subtitles = subtitles.await?;
        outcome(&SubtitleResult { execution: work.keep(made).await?, subtitles })
    })
}

fn write(file: &Path, made: &Path, plan: &Plan, track: &SubtitleTrack) -> Result<Subtitles, Failed> {
    let text = fs::read(file).map_err(|error| disk("reading", file, &error))?;
    let delay = (command::subtitle_delay(plan) * 1000.0).round() as i64;
    let cues = vtt::earlier(vtt::parse(&String::from_utf8_lossy(&text)), delay);
    let save = |path: String, text: &str| {
        let to = made.join(&path);
        fs::write(&to, text).map_err(|error| disk("writing", &to, &error))?;
        Artifact::of(made, &path).map_err(|error| disk("reading", &to, &error))
    };
    let folder = made.join(&track.name);
    fs::create_dir_all(&folder).map_err(|error| disk("making", &folder, &error))?;
    let segments = vtt::segments(&cues, &plan.boundaries());
    let segments =
        segments.iter().enumerate().map(|(at, text)| save(Subtitles::segment_path(&track.name, at), text));
    Ok(Subtitles {
        name: track.name.clone(),
        language: track.language.clone(),
        title: track.title.clone(),
        is_default: track.is_default,
        is_forced: track.is_forced,
        segments: segments.collect::<Result<_, _>>()?,
        whole: save(Subtitles::whole_path(&track.name), &vtt::whole(&cues))?,
    })
}
