//! One track of text, as WebVTT along the segments of the picture.

use super::tools::disk;
use super::{FromSource, Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::command;
use media::manifest::{Artifact, Subtitles};
use media::plan::{Plan, SubtitleTrack};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A track of text, and the execution whose folder it is in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Texts {
    pub execution: String,
    pub subtitles: Subtitles,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let FromSource { source } = work.payload()?;
        let (plan, track): (Plan, SubtitleTrack) = (work.result("plan")?, work.input()?);
        let folder = work.context.folder().await?.to_owned();
        let (file, made) = (folder.join(format!("{}.vtt", track.name)), folder.join("made"));
        work.succeed("subtitles", command::subtitles(&plan, &track, &source), None).await?;
        let subtitles = work.blocking({
            let made = made.clone();
            move || write(&file, &made, &plan, &track)
        });
        let subtitles = subtitles.await?;
        outcome(&Texts { execution: work.keep(made).await?, subtitles })
    })
}

fn write(file: &Path, made: &Path, plan: &Plan, track: &SubtitleTrack) -> Result<Subtitles, Failed> {
    let _ = (file, made, plan, track);
    Err(Failed::permanent("subtitles are not made yet"))
}
