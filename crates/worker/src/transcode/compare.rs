//! The pictures of a generation beside those of its source, before it is published.

use super::Work;
use super::package::Parts;
use super::source::Input;
use super::tools::{Run, disk};
use crate::handler::Failed;
use crate::process::Reach;
use media::manifest::Track;
use media::plan::{Picture, Plan};
use media::sample::{self, Distance, Excerpt, From, Spot};
use media::source::{Source, Timing, Video};
use pipeline::{FilePath, StageKind};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a few frames of a chunk; a file that cannot be entered in the middle is decoded from its beginning.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// In bytes: small pictures, beside the excerpts that are there already.
const WRITES: u64 = 64 << 20;

/// What was compared: kept with the proof.
pub(super) struct Compared {
    pub proof: Value,
    pub warnings: Vec<String>,
}

struct Comparison<'a> {
    work: &'a Work<'a>,
    plan: &'a Plan,
    picture: &'a Picture,
    video: &'a Video,
    /// As the probe found it, where this stage was given that: with the places where the file can be entered.
    timing: Timing,
    input: &'a Input<'a>,
    tree: &'a Path,
    scratch: PathBuf,
}

/// Compares frames of each chunk in each rendition that was made now with the source.
pub(super) async fn compare(work: &Work<'_>, parts: &Parts, tree: &Path) -> Result<Option<Compared>, Failed> {
    let plan = &parts.plan;
    let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else { return Ok(None) };
    if work.job.payload.get("source").is_none() {
        // A job that an older version submitted.
        return Ok(None);
    }
    work.context.set_step("compare");
    let input = work.open().await?;
    let probed = work.result::<Source>(StageKind::Probe.as_str()).ok().and_then(|source| source.video);
    let scratch = work.context.folder().await?.join("compared");
    std::fs::create_dir_all(&scratch).map_err(|error| disk("making", &scratch, &error))?;
    let timing = probed.map_or_else(|| video.timing.clone(), |video| video.timing);
    let comparison = Comparison { work, plan, picture, video, timing, input: &input, tree, scratch };
    let is_new = |track: &&Track| picture.rungs.iter().any(|rung| rung.name == track.name);
    let tracks: Vec<&Track> = parts.presentation.video.iter().filter(is_new).collect();
    let (mut compared, mut warnings, mut worst) = (0, Vec::new(), Vec::new());
    let spots = sample::spots(picture, |below| rand::random_range(0..below.max(1)));
    for of_chunk in spots.chunk_by(|a, b| a.chunk == b.chunk) {
        let made = comparison.renditions(&tracks, of_chunk).await?;
        for (spot, made) in of_chunk.iter().zip(made) {
            match comparison.nearest(*spot, &made).await? {
                None => {
                    let seconds = comparison.seconds(*spot);
                    warnings
                        .push(format!("the source could not be compared with the stream at {seconds:.1} s"));
                }
                Some(distances) => {
                    let other = distances.iter().position(|it| !it.is_some_and(Distance::is_same_picture));
                    if let Some(other) = other {
                        let refused = comparison.refused(parts, tracks[other], *spot, distances[other]);
                        return Err(refused.await);
                    }
                    compared += distances.len();
                    worst.extend(distances.into_iter().flatten().map(|distance| distance.error));
                }
            }
        }
    }
    let worst = worst.into_iter().fold(0.0, f64::max);
    Ok(Some(Compared { proof: json!({ "frames": compared, "largest_error": worst }), warnings }))
}

impl Comparison<'_> {
    fn seconds(&self, spot: Spot) -> f64 {
        spot.frame as f64 / self.picture.manner.rate.to_f64()
    }

    /// How far each rendition is from the source at a spot; none if the file gives no frames there, which is no worker's
    /// doing. A damaged file may give other pictures when it is entered at another place, so it is also decoded from where the
    /// encoder began.
    async fn nearest(&self, spot: Spot, made: &[Vec<u8>]) -> Result<Option<Vec<Option<Distance>>>, Failed> {
        let mut found = None;
        for from in sample::entries(self.picture, &self.timing, spot) {
            let Some(source) = self.try_source(spot, from).await? else { continue };
            let distances: Vec<Option<Distance>> =
                made.iter().map(|made| sample::distances(&source, made).first().copied()).collect();
            let is_same = distances.iter().all(|it| it.is_some_and(Distance::is_same_picture));
            found = Some(distances);
            if is_same {
                break;
            }
        }
        Ok(found)
    }

    async fn try_source(&self, spot: Spot, from: From) -> Result<Option<Vec<u8>>, Failed> {
        let to = self.scratch.join("source.gray");
        let argument = self.input.argument();
        let argv = sample::of_source(self.plan, self.picture, self.video, spot, from, argument, &to);
        let _ = std::fs::remove_file(&to);
        let run = Run::new("compare", argv, self.input.reach()).in_folder(&self.scratch);
        self.input.unchanged(self.work.run(run.within(PATIENCE).writing(WRITES)).await)?;
        let frames = std::fs::read(&to).unwrap_or_default();
        Ok(sample::is_whole(&frames, self.picture, spot).then_some(frames))
    }

    /// For each spot the frame of each rendition; empty where it does not decode.
    async fn renditions(&self, tracks: &[&Track], spots: &[Spot]) -> Result<Vec<Vec<Vec<u8>>>, Failed> {
        let mut files = Vec::new();
        for spot in spots {
            for track in tracks {
                let file = self.scratch.join(format!("{:04}.mp4", files.len()));
                let frame = sample::excerpt(self.tree, track, self.picture, spot.frame, &file);
                let told = |error| {
                    Failed::transient(format!("{} at {:.1} s: {error}", track.name, self.seconds(*spot)))
                };
                files.push((file, frame.map_err(told)?));
            }
        }
        self.work.context.progress.beat();
        let excerpts: Vec<Excerpt<'_>> =
            files.iter().map(|(file, frame)| Excerpt { file, frame: *frame }).collect();
        let to = self.scratch.join("made.gray");
        let _ = std::fs::remove_file(&to);
        let argv = sample::of_renditions(&excerpts, &to);
        let run = Run::new("compare", argv, Reach::reading(&self.scratch)).in_folder(&self.scratch);
        self.work.run(run.within(PATIENCE).writing(WRITES)).await?;
        let made = std::fs::read(&to).unwrap_or_default();
        let mut frames = made.chunks((sample::WIDTH * sample::HEIGHT) as usize).map(<[u8]>::to_vec);
        let mut row = || tracks.iter().map(|_| frames.next().unwrap_or_default()).collect();
        Ok(spots.iter().map(|_| row()).collect())
    }

    /// Says what is wrong, and removes what its maker committed: who tries again gets it made again.
    async fn refused(&self, parts: &Parts, track: &Track, spot: Spot, found: Option<Distance>) -> Failed {
        let maker = parts.maker_of(track, spot.frame, self.picture);
        let by = maker.as_ref().map_or_else(String::new, |maker| format!(", made by execution {maker},"));
        let how = match found {
            Some(Distance { error, variance }) => format!(
                "shows another picture than the source (squared error {error:.0}, the source varies by {variance:.0})"
            ),
            None => "has no frame there that decodes".into(),
        };
        let chunk = self.picture.chunks.get(spot.chunk).map_or(0, |chunk| chunk.number);
        if let Some(maker) = maker {
            self.discard(&maker).await;
        }
        Failed::permanent(format!(
            "nothing was published: {} in chunk {chunk} at {:.1} s{by} {how}; retranscode the video to make it again",
            track.name,
            self.seconds(spot),
        ))
    }

    async fn discard(&self, maker: &FilePath) {
        if let Err(error) = self.work.tools.depot.discard(maker).await {
            tracing::warn!("cannot remove what execution {maker} made: {error}; the janitor will");
        }
    }
}
