//! The complete generation: every track, every playlist, in one folder, and the proof that it is what was planned.

use super::source::FromSource;
use super::tools::{Run, disk};
use super::{Work, carry, compare, gate, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::process::Reach;
use files::Tree;
use media::check::Place;
use media::manifest::{Artifact, Presentation, Shape, Sound, Track, Unjoinable};
use media::plan::{Picture, Piece, Plan, Thumbnails};
use media::{command, dash, master, playlist, vtt};
use pipeline::{BadResult, FilePath, Name, StageKind, SubtitleResult, ThumbnailResult, TrackResult};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

#[derive(Serialize, Deserialize)]
pub(super) struct Payload {
    /// What the generation will be called below its output folder.
    pub generation: String,
    /// The folder of the generation whose other rungs are shown on beside those made now. Default: none are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<String>,
    /// Where generations of this video go.
    #[serde(default)]
    pub output: String,
    /// What the pictures are compared with. A job of an older version has none.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub source: Option<FromSource>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Packaged {
    pub execution: FilePath,
    /// In a bucket: where the generation is already, but for what players open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// In seconds.
    #[serde(default)]
    pub duration: f64,
    /// All of the generation.
    pub files: Vec<Artifact>,
    /// What the folder above has to say to show this generation.
    pub indexes: Vec<Index>,
    pub renditions: Vec<wire::Rendition>,
    /// What the gate has seen.
    pub proof: Value,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Index {
    pub name: String,
    pub text: String,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let Payload { generation, carry, output, .. } = work.payload()?;
        let generation = work.generation(&generation);
        let mut parts = Parts::gather(&work).await?;
        if let Some(folder) = carry {
            parts = parts.carry(&work, &folder).await?;
        }
        let tree = work.context.folder().await?.join("made");
        let indexes = parts.indexes(&format!("{generation}/"))?;
        let written = work.blocking({
            let (tree, parts) = (tree.clone(), parts.clone());
            move || parts.write(&tree)
        });
        let mut files = written.await?;
        if parts.plan.settings.mp4 {
            files.push(progressive(&work, &parts.presentation, &tree).await?);
        }
        let mut judged = gate::judge(&work, &parts, &tree, &files).await?;
        if let Some(compared) = compare::compare(&work, &parts, &tree).await? {
            judged.proof["compared"] = compared.proof;
            judged.warnings.extend(compared.warnings);
        }
        let kept = work.keep_tree(tree, &files, &output, &generation).await?;
        outcome(&Packaged {
            duration: parts.plan.duration(),
            renditions: parts.renditions(),
            execution: kept.execution,
            folder: kept.folder,
            files,
            indexes,
            proof: judged.proof,
            warnings: parts.left_out.into_iter().chain(judged.warnings).collect(),
        })
    })
}

/// Everything the generation is made of, and where it lies.
#[derive(Clone)]
pub(super) struct Parts {
    pub plan: Plan,
    pub presentation: Presentation,
    pictures: Vec<ThumbnailResult>,
    /// What is not shown because it could not be made, in sentences.
    left_out: Vec<String>,
    /// The folder in which each file of the generation lies under its path.
    sources: HashMap<FilePath, PathBuf>,
    /// The execution that made each file of this generation.
    makers: HashMap<FilePath, FilePath>,
    /// Executions whose pictures were compared with the source before they were committed.
    compared: HashSet<FilePath>,
}

impl Parts {
    async fn gather(work: &Work<'_>) -> Result<Self, Failed> {
        let plan: Plan = work.result("plan")?;
        let mut encoded = pictures(work, StageKind::Encode, &plan, plan.pieces())?;
        if work.job.results.contains_key(StageKind::EncodeOptional.as_str()) {
            encoded.extend(pictures(work, StageKind::EncodeOptional, &plan, plan.optional_pieces())?);
        }
        once_each(&mut encoded);
        let sounds = committed(work, StageKind::Audio, &plan.audio, |made: &mut TrackResult, track| {
            made.check(&made.execution, &[plan.expected_sound(track)])
        })?;
        let left_out = leave_out(&plan, &mut encoded);
        let segments = plan.boundaries().len();
        let texts =
            committed(work, StageKind::Subtitles, &plan.subtitles, |made: &mut SubtitleResult, track| {
                made.check(&track.name, segments)
            })?;
        let planned: Vec<&Thumbnails> = plan.thumbnails.iter().collect();
        let pictures =
            committed(work, StageKind::Thumbnails, &planned, |made: &mut ThumbnailResult, planned| {
                made.check(planned.sheets())
            })?;
        let mut makers: HashMap<FilePath, (FilePath, Artifact)> = HashMap::new();
        let mut found = |execution: &FilePath, file: &Artifact| {
            makers.entry(file.path.clone()).or_insert_with(|| (execution.clone(), file.clone()));
        };
        for made in encoded.iter().chain(&sounds) {
            made.tracks.iter().flat_map(Track::files).for_each(|file| found(&made.execution, file));
        }
        for text in &texts {
            text.subtitles.files().for_each(|file| found(&text.execution, file));
        }
        for made in &pictures {
            made.files.iter().for_each(|file| found(&made.execution, file));
        }
        let compared = encoded.iter().filter(|made| made.is_compared).map(|made| made.execution.clone());
        let compared = compared.collect();
        let maker_of = |file: &str| makers.get(file).map(|(execution, _)| execution);
        let presentation = Presentation {
            video: join(&plan, encoded).map_err(|(rung, error)| unlike(work, &rung, &error, maker_of))?,
            audio: sounds
                .into_iter()
                .flat_map(|made| made.tracks)
                .filter_map(|track| sound(&plan, track))
                .collect(),
            subtitles: texts.into_iter().map(|text| text.subtitles).collect(),
        };
        let wanted: Vec<_> = makers.into_values().collect();
        let makers = wanted.iter().map(|(execution, file)| (file.path.clone(), execution.clone())).collect();
        let files = work.tools.depot.bring(work.context, &wanted).await?;
        let path = |(execution, file): (FilePath, Artifact)| {
            let folder = files.folder(&execution);
            (file.path, folder)
        };
        let sources = wanted.into_iter().map(path).collect();
        Ok(Parts { plan, presentation, pictures, left_out, sources, makers, compared })
    }

    /// The execution that made this frame of a track.
    pub fn maker_of(&self, track: &Track, frame: u64, picture: &Picture) -> Option<FilePath> {
        let time = frame.saturating_mul(picture.frame_ticks.into());
        let segment = track.segments.iter().rev().find(|segment| segment.start <= time)?;
        self.makers.get(&segment.file.path).cloned()
    }

    /// Whether this frame of a track was made by a remote worker, and its chunk compared before it was committed. The gate
    /// proves that the bytes are still those.
    pub fn is_compared(&self, track: &Track, frame: u64, picture: &Picture) -> bool {
        self.maker_of(track, frame, picture).is_some_and(|maker| self.compared.contains(&maker))
    }

    /// The execution that made what a finding is about, if it is known.
    pub fn maker_at(&self, place: &Place) -> Option<FilePath> {
        let file: FilePath = place.file.parse().ok()?;
        if let Some(maker) = self.makers.get(&file) {
            return Some(maker.clone());
        }
        // A playlist, of which segments have makers.
        let (folder, _) = place.file.split_once('/')?;
        let sounds = self.presentation.audio.iter().map(|sound| &sound.track);
        let track = self.presentation.video.iter().chain(sounds).find(|track| track.name == *folder)?;
        let number = usize::try_from(place.segment?).ok()?.checked_sub(1)?;
        self.makers.get(&track.segments.get(number)?.file.path).cloned()
    }

    /// Adds what is taken over from the generation in `folder`.
    async fn carry(mut self, work: &Work<'_>, folder: &str) -> Result<Self, Failed> {
        let here = work.bring_generation(folder, &[carry::FILE]).await?;
        let carried = work.blocking({
            let (here, presentation) = (here.clone(), self.presentation.clone());
            move || carry::read(&here, &presentation)
        });
        let carried = carried.await?;
        work.bring_files(folder, &here, carried.iter().flat_map(Track::files)).await?;
        self.sources.extend(carry::files(&here, &carried));
        carry::merge(&mut self.presentation.video, carried);
        Ok(self)
    }

    /// Lays the generation out in `tree`, its master playlist last.
    fn write(&self, tree: &Path) -> Result<Vec<Artifact>, Failed> {
        let Presentation { video, audio, subtitles } = &self.presentation;
        let tracks = video.iter().chain(audio.iter().map(|sound| &sound.track));
        let mut files: Vec<Artifact> = tracks.clone().flat_map(Track::files).cloned().collect();
        files.extend(subtitles.iter().flat_map(|text| text.files()).cloned());
        files.extend(self.pictures.iter().flat_map(|made| &made.files).cloned());
        let own = Tree::make(tree).map_err(|error| disk("making", tree, &error))?;
        for file in &files {
            let (from, path) = (self.sources.get(&file.path), file.path.as_str());
            let from = from.ok_or_else(|| Failed::permanent(format!("nothing was made of {path}")))?;
            let linked = Tree::open(from).and_then(|from| own.link(&from, path, path));
            linked.map_err(|error| disk("packaging", &from.join(path), &error))?;
        }
        let mut texts = playlists(&self.presentation);
        let boundaries = self.plan.boundaries();
        for text in subtitles {
            let listed = playlist::subtitles(&boundaries, &text.segments);
            texts.push((format!("{}/{}", text.name, playlist::MEDIA), listed));
        }
        if !self.plan.source.chapters.is_empty() {
            texts.push(("chapters.vtt".into(), vtt::chapters(&self.plan.source.chapters)));
        }
        let all = serde_json::to_string(&self.presentation);
        texts.push((carry::FILE.into(), all.map_err(|error| Failed::permanent(error.to_string()))?));
        texts.extend(self.indexes("")?.into_iter().rev().map(|index| (index.name, index.text)));
        for (path, text) in texts {
            let to = tree.join(&path);
            own.create_new(&path, text.as_bytes()).map_err(|error| disk("packaging", &to, &error))?;
            files.push(Artifact::of(tree, &path).map_err(|error| disk("reading", &to, &error))?);
        }
        Ok(files)
    }

    /// What players open, for a folder from which `prefix` leads to the generation.
    fn indexes(&self, prefix: &str) -> Result<Vec<Index>, Failed> {
        let master = Index { name: "master.m3u8".into(), text: master::master(&self.presentation, prefix) };
        let mut indexes = vec![master];
        if self.plan.settings.dash {
            let text = dash::mpd(&self.presentation, prefix).map_err(|error| {
                Failed::permanent(format!("no manifest for DASH can be written: {error}"))
            })?;
            indexes.push(Index { name: "manifest.mpd".into(), text });
        }
        Ok(indexes)
    }

    fn renditions(&self) -> Vec<wire::Rendition> {
        let Presentation { video, audio, .. } = &self.presentation;
        video.iter().chain(audio.iter().map(|sound| &sound.track)).map(rendition).collect()
    }
}

/// The playlists of picture and sound, by their paths.
pub(super) fn playlists(of: &Presentation) -> Vec<(String, String)> {
    let sounds = of.audio.iter().map(|sound| &sound.track);
    let media = |track: &Track| (format!("{}/{}", track.name, playlist::MEDIA), playlist::media(track));
    let i_frames =
        |track: &Track| (format!("{}/{}", track.name, playlist::I_FRAMES), playlist::i_frames(track));
    of.video.iter().chain(sounds).map(media).chain(of.video.iter().map(i_frames)).collect()
}

/// What the tasks of a stage have committed, without those that were given up. Each result is compared again with what
/// was planned for its task, whatever was compared when it was committed.
fn committed<T: DeserializeOwned, P>(
    work: &Work<'_>,
    stage: StageKind,
    planned: &[P],
    check: impl Fn(&mut T, &P) -> Result<(), BadResult>,
) -> Result<Vec<T>, Failed> {
    let results = work.job.results.get(stage.as_str()).ok_or_else(|| super::missing(stage.as_str()))?;
    if results.len() > planned.len() {
        return Err(Failed::permanent(format!("stage `{stage}` has more tasks than were planned")));
    }
    let results = results.iter().zip(planned).enumerate().filter(|(_, (result, _))| !result.is_null());
    results
        .map(|(at, (result, planned))| {
            let mut made: T = work.parse(result, stage.as_str())?;
            let told = |bad| {
                Failed::permanent(format!(
                    "task {at} of stage `{stage}` did not make what was planned: {bad}"
                ))
            };
            check(&mut made, planned).map_err(told).map(|()| made)
        })
        .collect()
}

fn pictures(
    work: &Work<'_>,
    stage: StageKind,
    plan: &Plan,
    pieces: Vec<Piece>,
) -> Result<Vec<TrackResult>, Failed> {
    let Some(picture) = &plan.picture else { return Ok(Vec::new()) };
    committed(work, stage, &pieces, |made: &mut TrackResult, piece| {
        let expected = picture.expected(piece);
        // A worker of a version that knows no groups makes all rungs of each piece.
        made.tracks.retain(|track| expected.iter().any(|expected| expected.name == track.name));
        made.check(&made.execution, &expected)
    })
}

/// A worker of a version that knows no groups makes all rungs of each piece: the first of each is as good as the others.
fn once_each(encoded: &mut [TrackResult]) {
    let mut seen = HashSet::new();
    for made in encoded {
        made.tracks.retain(|track| {
            let first = track.segments.first().map(|segment| segment.number);
            seen.insert((track.name.clone(), first))
        });
    }
}

/// Takes out every optional rung of which a chunk could not be made; says which.
fn leave_out(plan: &Plan, encoded: &mut [TrackResult]) -> Vec<String> {
    let Some(picture) = &plan.picture else { return Vec::new() };
    let count =
        |name: &str| encoded.iter().flat_map(|made| &made.tracks).filter(|it| it.name == name).count();
    let whole = picture.chunks.len();
    let broken: Vec<(Name, usize)> = picture
        .optional_rungs()
        .map(|rung| (rung.name.clone(), count(&rung.name)))
        .filter(|(_, made)| *made < whole)
        .collect();
    for made in encoded {
        made.tracks.retain(|track| !broken.iter().any(|(name, _)| *name == track.name));
    }
    let tell = |(name, made): (Name, usize)| {
        format!("{name} is left out: {made} of its {whole} pieces could be made, and it is optional")
    };
    broken.into_iter().map(tell).collect()
}

/// The chunks of each rung that is shown, as one track.
fn join(plan: &Plan, encoded: Vec<TrackResult>) -> Result<Vec<Track>, (Name, Unjoinable)> {
    let mut runs: BTreeMap<Name, Vec<Track>> = BTreeMap::new();
    for track in encoded.into_iter().flat_map(|made| made.tracks) {
        runs.entry(track.name.clone()).or_default().push(track);
    }
    let rungs = plan.picture.iter().flat_map(|picture| &picture.rungs);
    rungs
        .map(|rung| (rung, runs.remove(&rung.name).unwrap_or_default()))
        .filter(|(rung, runs)| !rung.optional || !runs.is_empty())
        .map(|(rung, runs)| Track::join(runs).map_err(|error| (rung.name.clone(), error)))
        .collect()
}

/// Chunks do not fit together. The output of the one that does not follow those before it has to be made again.
fn unlike<'a>(
    work: &Work<'_>,
    rung: &Name,
    error: &Unjoinable,
    maker_of: impl Fn(&str) -> Option<&'a FilePath>,
) -> Failed {
    let what = format!("{rung}: {error}");
    match error.segment_path().and_then(|path| maker_of(&path)) {
        None => Failed::permanent(what),
        Some(maker) => {
            work.refuse_output(maker, &what);
            Failed::permanent(format!(
                "{what}; it was made by execution {maker}; `vodmill job retry` makes it again"
            ))
        }
    }
}

pub(super) fn sound(plan: &Plan, track: Track) -> Option<Sound> {
    let planned = plan.audio.iter().find(|planned| planned.name == track.name)?;
    Some(Sound {
        track,
        language: planned.language.clone(),
        title: planned.title.clone(),
        is_default: planned.is_default,
    })
}

fn rendition(track: &Track) -> wire::Rendition {
    let (width, height) = match track.shape {
        Shape::Video { width, height, .. } => (Some(width.into()), Some(height.into())),
        Shape::Audio { .. } => (None, None),
    };
    wire::Rendition {
        name: track.name.to_string(),
        codec: track.codec.clone(),
        width,
        height,
        bandwidth: i64::try_from(master::peak_bandwidth(track)).ok(),
        bytes: i64::try_from(track.files().map(|file| file.bytes).sum::<u64>()).unwrap_or(i64::MAX),
    }
}

/// The best picture and the sound a player would choose, as one file.
async fn progressive(work: &Work<'_>, of: &Presentation, tree: &Path) -> Result<Artifact, Failed> {
    let playlist_of = |name: &str| tree.join(name).join(playlist::MEDIA).to_string_lossy().into_owned();
    let best = of.video.iter().find(|track| track.codec.starts_with("avc1")).or(of.video.first());
    let sound = of.audio.iter().find(|sound| sound.is_default).or(of.audio.first());
    let video = best.map(|track| playlist_of(&track.name));
    let audio = sound.map(|sound| playlist_of(&sound.track.name));
    // Not where the parts are: it may read those, and write none of them.
    let folder = work.context.folder().await?.join("mp4");
    tokio::fs::create_dir_all(&folder).await.map_err(|error| disk("making", &folder, &error))?;
    let bytes = best.into_iter().chain(sound.map(|sound| &sound.track)).flat_map(Track::files);
    let bytes: u64 = bytes.map(|file| file.bytes).sum();
    let argv = command::progressive(video.as_deref(), audio.as_deref());
    let run = Run::new("mp4", argv, Reach::reading(tree)).in_folder(&folder).writing(bytes);
    work.succeed(run).await?;
    let (file, to) = (folder.join("video.mp4"), tree.join("video.mp4"));
    let tree = tree.to_owned();
    work.blocking(move || {
        std::fs::rename(&file, &to).map_err(|error| disk("keeping", &to, &error))?;
        Artifact::of(&tree, "video.mp4").map_err(|error| disk("reading", &to, &error))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use media::manifest::Segment;
    use media::ratio::Ratio;

    fn made(execution: &str, rungs: &[&str], segment: u32) -> TrackResult {
        let file = |path: String| Artifact { path: path.parse().unwrap(), bytes: 1, sha256: String::new() };
        let track = |name: &&str| Track {
            name: name.parse().unwrap(),
            codec: "avc1".into(),
            timescale: 25,
            shape: Shape::Video { width: 2, height: 2, frame_rate: Ratio { num: 25, den: 1 } },
            init: file(format!("{name}/init.mp4")),
            later_inits: Vec::new(),
            segments: vec![Segment {
                file: file(format!("{name}/{segment}.m4s")),
                number: segment,
                start: 0,
                duration: 1,
                samples: 1,
                key_frames: Vec::new(),
            }],
        };
        TrackResult {
            execution: execution.parse().unwrap(),
            tracks: rungs.iter().map(track).collect(),
            is_compared: false,
        }
    }

    #[test]
    fn rungs_that_an_older_worker_made_twice_are_taken_once() {
        let mut encoded =
            vec![made("a", &["1080p"], 0), made("b", &["1080p"], 1), made("old", &["1080p", "720p"], 0)];

        once_each(&mut encoded);

        let kept = |made: &TrackResult| made.tracks.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
        assert_eq!(
            encoded.iter().map(kept).collect::<Vec<_>>(),
            [vec!["1080p"], vec!["1080p"], vec!["720p"]]
        );
    }
}
