//! Compares pictures and sound with the source: those of a generation before it is published, and those of a remote worker
//! before they are committed.

use super::Work;
use super::package::Parts;
use super::source::Input;
use super::tools::{Run, disk};
use crate::handler::Failed;
use crate::process::Reach;
use media::manifest::Track;
use media::plan::{AudioTrack, Picture, Piece, Plan};
use media::sample::{self, Distance, Excerpt, From, Spot};
use media::sound;
use media::source::{Source, Timing, Video};
use pipeline::{StageKind, TrackResult};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a few frames of a chunk; a file that cannot be entered in the middle is decoded from its beginning.
const PATIENCE: Duration = Duration::from_secs(60 * 60);

/// So many frames of each rendition are decoded by one command.
const SPOTS_AT_ONCE: usize = 4;

/// For decoding a few groups of pictures that a remote worker made, of whatever size: it may have made them to take long.
const PATIENCE_WITH_RENDITIONS: Duration = Duration::from_secs(5 * 60);

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

/// Compares frames of each chunk in each rendition that was made now with the source. What remote workers made was compared
/// before it was committed, and a lie that is found here would fail the job instead of its own execution.
pub(super) async fn compare(work: &Work<'_>, parts: &Parts, tree: &Path) -> Result<Option<Compared>, Failed> {
    let plan = &parts.plan;
    let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else { return Ok(None) };
    if work.job.payload.get("source").is_none() {
        // A job that an older version submitted, without the source in its payload: nothing of it can be compared.
        return Ok(None);
    }
    work.context.set_step("compare");
    let input = work.open().await?;
    let comparison = Comparison::new(work, plan, picture, video, &input, tree).await?;
    let is_new = |track: &&Track| picture.rungs.iter().any(|rung| rung.name == track.name);
    let tracks: Vec<&Track> = parts.presentation.video.iter().filter(is_new).collect();
    let (mut compared, mut warnings, mut worst) = (0, Vec::new(), Vec::new());
    let spots = sample::spots(picture, |below| rand::random_range(0..below.max(1)));
    for of_chunk in spots.chunk_by(|a, b| a.chunk == b.chunk) {
        let is_left = |track: &&Track| !parts.is_compared(track, of_chunk[0].frame, picture);
        let tracks: Vec<&Track> = tracks.iter().copied().filter(is_left).collect();
        if tracks.is_empty() {
            continue;
        }
        let made = comparison.renditions(&tracks, of_chunk).await?;
        for (spot, made) in of_chunk.iter().zip(made) {
            match comparison.nearest(*spot, &made).await? {
                None => {
                    let seconds = comparison.seconds(*spot);
                    warnings
                        .push(format!("the source could not be compared with the stream at {seconds:.1} s"));
                }
                Some(distances) => {
                    if let Some(other) = other_picture(&distances) {
                        return Err(comparison.refused(parts, tracks[other], *spot, distances[other]));
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

/// What a remote worker made is something else than its task was to make, in words; or it could not be compared.
pub(super) enum Unlike {
    Differs(String),
    Failed(Failed),
}

impl std::convert::From<Failed> for Unlike {
    fn from(failed: Failed) -> Self {
        Unlike::Failed(failed)
    }
}

/// Compares frames of each segment of one chunk, in each rendition, with the source. The files are below `tree`.
pub(super) async fn compare_chunk(work: &Work<'_>, made: &TrackResult, tree: &Path) -> Result<(), Unlike> {
    let (plan, piece): (Plan, Piece) = (work.result(StageKind::Plan.as_str())?, work.input()?);
    let (Some(picture), Some(video)) = (&plan.picture, &plan.source.video) else { return Ok(()) };
    let input = work.open().await?;
    let comparison = Comparison::new(work, &plan, picture, video, &input, tree).await?;
    let tracks: Vec<&Track> = made.tracks.iter().collect();
    let chunk = picture.chunks.iter().position(|chunk| chunk.number == piece.chunk.number);
    let random = |below: u64| rand::random_range(0..below.max(1));
    let spots = sample::spots_of_segments(picture, chunk.unwrap_or(usize::MAX), random);
    for spots in spots.chunks(SPOTS_AT_ONCE) {
        let made = comparison.try_renditions(&tracks, spots).await?;
        for (spot, made) in spots.iter().zip(made) {
            let Some(distances) = comparison.nearest(*spot, &made).await? else { continue };
            if let Some(other) = other_picture(&distances) {
                let (name, seconds) = (&tracks[other].name, comparison.seconds(*spot));
                return Err(Unlike::Differs(format!("{name} at {seconds:.1} s {}", how(distances[other]))));
            }
        }
    }
    Ok(())
}

/// Compares one track of sound with the source, whole. The files are below `tree`. Sound is compared here alone: the gate
/// proves that the published bytes are those that were committed, and the server's own workers are believed.
pub(super) async fn compare_sound(work: &Work<'_>, made: &TrackResult, tree: &Path) -> Result<(), Unlike> {
    let (plan, track): (Plan, AudioTrack) = (work.result(StageKind::Plan.as_str())?, work.input()?);
    let Some(files) = made.tracks.first() else { return Ok(()) };
    let scratch = scratch(work).await?;
    let (from, folder) = (empty_folder(&scratch, "excerpts")?, empty_folder(&scratch, "made")?);
    let (whole, to) = (from.join("whole.mp4"), folder.join("made.pcm"));
    sound::join(tree, files, &whole).map_err(|error| disk("reading", tree, &error))?;
    let (patience, bytes) = (sound_patience(&track), sound::bytes(&track));
    let run = Run::new("compare", sound::of_track(&track, &whole, &to), Reach::reading(&from));
    let exit = work.run_on_untrusted(run.in_folder(&folder).within(patience).writing(bytes)).await?;
    if !exit.is_some_and(|exit| exit.status.is_success()) {
        return Err(Unlike::Differs(format!("{} does not decode", track.name)));
    }
    let input = work.open().await?;
    let folder = empty_folder(&scratch, "source")?;
    let reference = folder.join("source.pcm");
    let argv = sound::of_source(&plan, &track, input.argument(), &reference);
    let run = Run::new("compare", argv, input.reach()).in_folder(&folder).within(PATIENCE).writing(bytes);
    input.unchanged(work.succeed(run).await)?;
    let channels = sound::channels(&track);
    let compared = work.blocking(move || {
        sound::difference(&reference, &to, channels).map_err(|error| disk("reading", &reference, &error))
    });
    match compared.await? {
        None => Ok(()),
        Some(found) => Err(Unlike::Differs(format!(
            "{} has other sound than the source from {} s on",
            track.name, found.second
        ))),
    }
}

/// Decoding sound is some hundred times faster than playing it.
fn sound_patience(track: &AudioTrack) -> Duration {
    let seconds = track.packets * u64::from(media::plan::AAC_FRAME) / u64::from(media::plan::AUDIO_RATE);
    Duration::from_secs(60 + seconds / 10)
}

fn other_picture(distances: &[Option<Distance>]) -> Option<usize> {
    distances.iter().position(|it| !it.is_some_and(Distance::is_same_picture))
}

fn how(found: Option<Distance>) -> String {
    match found {
        Some(Distance { error, variance }) => format!(
            "shows another picture than the source (squared error {error:.0}, the source varies by {variance:.0})"
        ),
        None => "has no frame there that decodes".into(),
    }
}

async fn scratch(work: &Work<'_>) -> Result<PathBuf, Failed> {
    let scratch = work.context.folder().await?.join("compared");
    std::fs::create_dir_all(&scratch).map_err(|error| disk("making", &scratch, &error))?;
    Ok(scratch)
}

/// A new folder for each run, so that nothing a run left behind is taken for the output of the next.
fn empty_folder(scratch: &Path, name: &str) -> Result<PathBuf, Failed> {
    let folder = scratch.join(name);
    let made = match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => std::fs::create_dir(&folder),
    };
    made.map_err(|error| disk("making", &folder, &error))?;
    Ok(folder)
}

impl<'a> Comparison<'a> {
    async fn new(
        work: &'a Work<'a>,
        plan: &'a Plan,
        picture: &'a Picture,
        video: &'a Video,
        input: &'a Input<'a>,
        tree: &'a Path,
    ) -> Result<Self, Failed> {
        let probed = work.result::<Source>(StageKind::Probe.as_str()).ok().and_then(|source| source.video);
        let timing = probed.map_or_else(|| video.timing.clone(), |video| video.timing);
        let scratch = scratch(work).await?;
        Ok(Comparison { work, plan, picture, video, timing, input, tree, scratch })
    }

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
        let folder = empty_folder(&self.scratch, "source")?;
        let to = folder.join("source.gray");
        let argument = self.input.argument();
        let argv = sample::of_source(self.plan, self.picture, self.video, spot, from, argument, &to);
        let run = Run::new("compare", argv, self.input.reach()).in_folder(&folder);
        let run = run.within(PATIENCE).writing(WRITES).taking(media::memory::decoding(self.video));
        self.input.unchanged(self.work.run_with_memory(run).await)?;
        let frames = std::fs::read(&to).unwrap_or_default();
        Ok(sample::is_whole(&frames, self.picture, spot).then_some(frames))
    }

    /// For each spot the frame of each rendition; empty where it does not decode.
    async fn renditions(&self, tracks: &[&Track], spots: &[Spot]) -> Result<Vec<Vec<Vec<u8>>>, Failed> {
        self.try_renditions(tracks, spots).await.map_err(|unlike| match unlike {
            Unlike::Differs(what) => Failed::transient(what),
            Unlike::Failed(failed) => failed,
        })
    }

    async fn try_renditions(&self, tracks: &[&Track], spots: &[Spot]) -> Result<Vec<Vec<Vec<u8>>>, Unlike> {
        let (from, folder) = (empty_folder(&self.scratch, "excerpts")?, empty_folder(&self.scratch, "made")?);
        let mut files = Vec::new();
        for spot in spots {
            for track in tracks {
                let file = from.join(format!("{:04}.mp4", files.len()));
                let frame = sample::excerpt(self.tree, track, self.picture, spot.frame, &file);
                let told = |error| {
                    Unlike::Differs(format!("{} at {:.1} s: {error}", track.name, self.seconds(*spot)))
                };
                files.push((file, frame.map_err(told)?));
            }
        }
        self.work.context.progress.beat();
        let excerpts: Vec<Excerpt<'_>> =
            files.iter().map(|(file, frame)| Excerpt { file, frame: *frame }).collect();
        let to = folder.join("made.gray");
        let argv = sample::of_renditions(&excerpts, &to);
        let run = Run::new("compare", argv, Reach::reading(&from)).in_folder(&folder);
        let run = run.within(PATIENCE_WITH_RENDITIONS).writing(WRITES);
        let memory = media::memory::decoding_tracks(tracks, spots.len());
        self.work.run_on_untrusted(run.taking(memory)).await?;
        let made = std::fs::read(&to).unwrap_or_default();
        let mut frames = made.chunks((sample::WIDTH * sample::HEIGHT) as usize).map(<[u8]>::to_vec);
        let mut row = || tracks.iter().map(|_| frames.next().unwrap_or_default()).collect();
        Ok(spots.iter().map(|_| row()).collect())
    }

    /// Says what is wrong, and reports what its maker committed.
    fn refused(&self, parts: &Parts, track: &Track, spot: Spot, found: Option<Distance>) -> Failed {
        let maker = parts.maker_of(track, spot.frame, self.picture);
        let by = maker.as_ref().map_or_else(String::new, |maker| format!(", made by execution {maker},"));
        let how = how(found);
        let chunk = self.picture.chunks.get(spot.chunk).map_or(0, |chunk| chunk.number);
        if let Some(maker) = &maker {
            self.work.refuse_output(maker, &format!("{} in chunk {chunk} {how}", track.name));
        }
        Failed::permanent(format!(
            "nothing was published: {} in chunk {chunk} at {:.1} s{by} {how}; retranscode the video to make it again",
            track.name,
            self.seconds(spot),
        ))
    }
}
