//! Small pictures for the seek bar, and one to show before playing.

use super::tools::{Run, disk};
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::Artifact;
use media::plan::{Plan, Thumbnails};
use media::vtt;
use media::{command, memory};
use pipeline::ThumbnailResult;
use std::path::Path;

/// In bytes: a few hundred of the smallest.
const ALL_PICTURES: u64 = 64 << 20;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, thumbnails): (Plan, Thumbnails) = (work.result("plan")?, work.input()?);
        let Some(video) = &plan.source.video else {
            return Err(Failed::permanent("there is no picture to make smaller"));
        };
        let folder = work.context.folder().await?.to_owned();
        let made = folder.join("made");
        let argv = command::thumbnails(&plan, &thumbnails, video, input.argument());
        let run = Run::new("thumbnails", argv, input.reach()).writing(ALL_PICTURES);
        let run = run.taking(memory::decoding(video));
        input.unchanged(work.succeed(run).await)?;
        let duration = plan.duration();
        let files = work.blocking({
            let made = made.clone();
            move || collect(&folder, &made, &thumbnails, duration)
        });
        let files = files.await?;
        outcome(&ThumbnailResult { execution: work.keep(made).await?, files })
    })
}

fn collect(
    folder: &Path,
    made: &Path,
    thumbnails: &Thumbnails,
    duration: f64,
) -> Result<Vec<Artifact>, Failed> {
    let sheets: Vec<String> = (1..=thumbnails.sheets()).map(ThumbnailResult::sheet).collect();
    let index = vtt::thumbnails(thumbnails, duration);
    let place = |name: &str| -> Result<Artifact, Failed> {
        let to = made.join(name);
        std::fs::rename(folder.join(name), &to).map_err(|error| disk("keeping", &to, &error))?;
        Artifact::of(made, name).map_err(|error| disk("reading", &to, &error))
    };
    let write = || {
        std::fs::create_dir_all(made)?;
        std::fs::write(folder.join(ThumbnailResult::INDEX), index)
    };
    write().map_err(|error| disk("writing", made, &error))?;
    sheets
        .iter()
        .map(String::as_str)
        .chain([ThumbnailResult::POSTER, ThumbnailResult::INDEX])
        .map(place)
        .collect()
}
