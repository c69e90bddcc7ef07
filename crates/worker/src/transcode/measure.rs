//! How near a rung comes to the source.

use super::package::Packaged;
use super::tools::Run;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::Measure;
use media::ladder::Rung;
use media::plan::Plan;
use media::{command, memory, playlist};
use pipeline::Name;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Likeness {
    pub rung: Name,
    pub ssim: Option<f64>,
    /// In decibels; none for pictures that are equal.
    pub psnr: Option<f64>,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, rung): (Plan, Rung) = (work.result("plan")?, work.input()?);
        let packaged: Packaged = work.result("package")?;
        let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else {
            return Err(Failed::permanent("there is no picture to compare"));
        };
        if !packaged.renditions.iter().any(|made| made.name == rung.name) {
            // Optional, and left out.
            return outcome(&Likeness { rung: rung.name, ssim: None, psnr: None });
        }
        let playlist = work.packaged(&packaged, &rung.name).await?.join(playlist::MEDIA);
        let argv =
            command::measure(&plan, picture, video, &rung, &playlist.to_string_lossy(), input.argument());
        let measure = Measure { read: media::progress::frame, whole: picture.frames };
        let mut reach = input.reach();
        reach.reads.extend(playlist.parent().map(Into::into));
        let run = Run::new("measure", argv, reach).measured(measure).taking(2 * memory::decoding(video));
        let exit = input.unchanged(work.succeed(run).await)?;
        let (ssim, psnr) = command::likeness(&exit.stderr_tail);
        outcome(&Likeness { rung: rung.name, ssim, psnr })
    })
}
