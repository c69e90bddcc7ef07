//! One track of sound, whole: encoded in chunks, it would have a gap at each seam.

use super::encode::{count_bytes, cutting};
use super::tools::Run;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::Measure;
use media::command;
use media::mp4::{CutAudio, cut_audio};
use media::plan::{AAC_FRAME, AUDIO_RATE, AudioTrack, Plan};
use pipeline::TrackResult;

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let input = work.open().await?;
        let (plan, track): (Plan, AudioTrack) = (work.result("plan")?, work.input()?);
        let microseconds = track.packets * u64::from(AAC_FRAME) * 1_000_000 / u64::from(AUDIO_RATE);
        let measure = Measure { read: media::progress::out_time_us, whole: microseconds };
        let argv = command::audio(&plan, &track, input.argument());
        let bytes = plan.duration() * f64::from(track.kbps) * 1000.0 / 8.0;
        let run = Run::new("audio", argv, input.reach()).measured(measure).writing(bytes as u64);
        input.unchanged(work.succeed(run).await)?;

        work.context.set_step("cut");
        let folder = work.context.folder().await?.to_owned();
        let (file, made) = (folder.join(format!("{}.mp4", track.name)), folder.join("made"));
        let cut = cut(&plan, &track);
        let sound = work.blocking({
            let made = made.clone();
            move || cut_audio(&file, &made, &cut).map_err(|error| cutting(&cut.name, &error))
        });
        let tracks = vec![sound.await?];
        count_bytes(&work, &tracks);
        outcome(&TrackResult { execution: work.keep(made).await?, tracks, is_compared: false })
    })
}

fn cut(plan: &Plan, track: &AudioTrack) -> CutAudio {
    let clock = plan.picture.as_ref().map_or(AUDIO_RATE, |picture| picture.timescale);
    let ends = plan.boundaries();
    let begins = std::iter::once(0.0).chain(ends.iter().take(ends.len().saturating_sub(1)).copied());
    CutAudio {
        name: track.name.clone(),
        priming: command::PRIMING,
        packets: track.packets,
        starts: begins.map(|seconds| (seconds * f64::from(clock)).round() as u64).collect(),
        clock,
    }
}
