//! One chunk of the picture, in the rungs of a group, from one decoding.

use super::tools::Run;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::Measure;
use media::manifest::Track;
use media::mp4::{self, Cut, cut};
use media::plan::{Picture, Piece, Plan};
use media::{command, memory};
use pipeline::TrackResult;
use std::path::{Path, PathBuf};
use std::time::Instant;
use telemetry::metrics::ENCODE_SPEED;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, mut piece): (Plan, Piece) = (work.result("plan")?, work.input()?);
        piece.chunk.seek = piece.chunk.seek.and_then(|seconds| more_careful(seconds, work.job.attempt));
        let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else {
            return Err(Failed::permanent("there is no picture in the plan to encode"));
        };
        let argv = command::encode(&plan, picture, video, &piece, input.argument());
        let measure = Measure { read: media::progress::frame, whole: piece.chunk.frames() };
        let begun = Instant::now();
        let seconds = piece.chunk.frames() as f64 / picture.manner.rate.to_f64();
        let kbps: f64 = picture.rungs_of_group(&piece.group).map(|rung| f64::from(rung.max_kbps)).sum();
        let bytes = (seconds * kbps * 1000.0 / 8.0) as u64;
        let run = Run::new("encode", argv, input.reach()).measured(measure).writing(bytes);
        let run = run.taking(memory::encoding(picture, video, &piece));
        input.unchanged(work.succeed(run).await)?;
        ENCODE_SPEED.observe([piece.group.codec.as_str()], seconds / begun.elapsed().as_secs_f64());

        work.context.set_step("cut");
        let folder = work.context.folder().await?.to_owned();
        let cuts = cuts(picture, &piece);
        let made = folder.join("made");
        let tracks = work.blocking({
            let made = made.clone();
            move || cut_all(&folder, &made, &cuts)
        });
        let tracks = tracks.await?;
        count_bytes(&work, &tracks);
        outcome(&TrackResult { execution: work.keep(made).await?, tracks, is_compared: false })
    })
}

/// A file whose index misleads may have let the last attempt begin too late: begin earlier, and at last at the beginning.
fn more_careful(seek: f64, attempt: u32) -> Option<f64> {
    match attempt {
        0 | 1 => Some(seek),
        2 => Some(seek - 10.0),
        _ => None,
    }
}

fn cuts(picture: &Picture, piece: &Piece) -> Vec<Cut> {
    let cut = |rung: &media::ladder::Rung| Cut {
        name: rung.name.clone(),
        first_frame: piece.chunk.first_frame,
        frames: piece.chunk.frames(),
        frames_per_segment: picture.segment_frames,
        first_segment: piece.chunk.first_segment,
        ticks_per_frame: picture.frame_ticks,
        delay: piece.group.codec.delay(),
    };
    picture.rungs_of_group(&piece.group).map(cut).collect()
}

fn cut_all(folder: &Path, made: &Path, cuts: &[Cut]) -> Result<Vec<Track>, Failed> {
    let one = |of: &Cut| {
        let file: PathBuf = folder.join(format!("{}.mp4", of.name));
        let track = cut(&file, made, of).map_err(|error| cutting(&of.name, &error))?;
        // Its samples are in the segments now, and a disk may be small.
        std::fs::remove_file(&file).map_err(|error| super::tools::disk("removing", &file, &error))?;
        Ok(track)
    };
    cuts.iter().map(one).collect()
}

pub(super) fn cutting(name: &str, error: &mp4::Error) -> Failed {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
    match source {
        Some(source) => super::tools::disk("cutting", Path::new(name), source),
        None => Failed::transient(format!("{name} did not come out as planned: {error}")),
    }
}

pub(super) fn count_bytes(work: &Work<'_>, tracks: &[Track]) {
    let segments = tracks.iter().flat_map(|track| &track.segments).map(|segment| segment.file.bytes);
    work.context.count_bytes(0, segments.sum());
}
