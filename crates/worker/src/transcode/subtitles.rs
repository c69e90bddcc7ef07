//! One track of text, as WebVTT along the segments of the picture.

use super::tools::disk;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::{Artifact, Subtitles};
use media::plan::{Plan, SubtitleTrack};
use media::{command, vtt};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;

/// A track of text, and the execution whose folder it is in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Texts {
    pub execution: String,
    pub subtitles: Subtitles,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, track): (Plan, SubtitleTrack) = (work.result("plan")?, work.input()?);
        let folder = work.context.folder().await?.to_owned();
        let (file, made) = (folder.join(format!("{}.vtt", track.name)), folder.join("made"));
        let argv = command::subtitles(&plan, &track, input.argument());
        input.unchanged(work.succeed("subtitles", argv, None).await)?;
        let subtitles = work.blocking({
            let made = made.clone();
            move || write(&file, &made, &plan, &track)
        });
        let subtitles = subtitles.await?;
        outcome(&Texts { execution: work.keep(made).await?, subtitles })
    })
}

fn write(file: &Path, made: &Path, plan: &Plan, track: &SubtitleTrack) -> Result<Subtitles, Failed> {
    let text = fs::read(file).map_err(|error| disk("reading", file, &error))?;
    let delay = (command::subtitle_delay(plan) * 1000.0).round() as i64;
    let cues = vtt::earlier(vtt::parse(&String::from_utf8_lossy(&text)), delay);
    let save = |name: &str, text: &str| {
        let path = format!("{}/{name}", track.name);
        let to = made.join(&path);
        fs::write(&to, text).map_err(|error| disk("writing", &to, &error))?;
        Artifact::of(made, &path).map_err(|error| disk("reading", &to, &error))
    };
    let folder = made.join(&track.name);
    fs::create_dir_all(&folder).map_err(|error| disk("making", &folder, &error))?;
    let segments = vtt::segments(&cues, &plan.boundaries());
    let segments = segments.iter().enumerate().map(|(at, text)| save(&vtt::segment_name(at), text));
    Ok(Subtitles {
        name: track.name.clone(),
        language: track.language.clone(),
        title: track.title.clone(),
        is_default: track.is_default,
        is_forced: track.is_forced,
        segments: segments.collect::<Result<_, _>>()?,
        whole: save(vtt::WHOLE, &vtt::whole(&cues))?,
    })
}
