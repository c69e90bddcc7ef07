//! The complete generation: every track, every playlist, in one folder, and the proof that it is what was planned.

use super::subtitles::Texts;
use super::thumbnails::Pictures;
use super::tools::disk;
use super::{Tracks, Work, carry, gate, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::{Artifact, Presentation, Shape, Sound, Track};
use media::plan::Plan;
use media::{command, dash, master, playlist, vtt};
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
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Packaged {
    pub execution: String,
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
        let Payload { generation, carry, output } = work.payload()?;
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
        let judged = gate::judge(&work, &parts, &tree, &files).await?;
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
    pictures: Vec<Pictures>,
    /// What is not shown because it could not be made, in sentences.
    left_out: Vec<String>,
    /// The file behind each path of the generation.
    sources: HashMap<String, PathBuf>,
}

impl Parts {
    async fn gather(work: &Work<'_>) -> Result<Self, Failed> {
        let plan: Plan = work.result("plan")?;
        let (mut encoded, sounds): (Vec<Tracks>, Vec<Tracks>) =
            (work.results("encode")?, work.results("audio")?);
        encoded.extend(work.results_if_any("encode_optional")?);
        once_each(&mut encoded);
        let left_out = leave_out(&plan, &mut encoded);
        let (texts, pictures): (Vec<Texts>, Vec<Pictures>) =
            (work.results("subtitles")?, work.results("thumbnails")?);
        let mut makers: HashMap<String, (String, Artifact)> = HashMap::new();
        let mut found = |execution: &str, file: &Artifact| {
            makers.entry(file.path.clone()).or_insert_with(|| (execution.into(), file.clone()));
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
        let presentation = Presentation {
            video: join(&plan, encoded)?,
            audio: sounds
                .into_iter()
                .flat_map(|made| made.tracks)
                .filter_map(|track| sound(&plan, track))
                .collect(),
            subtitles: texts.into_iter().map(|text| text.subtitles).collect(),
        };
        let wanted: Vec<_> = makers.into_values().collect();
        let files = work.tools.depot.bring(work.context, &wanted).await?;
        let path = |(execution, file): (String, Artifact)| {
            let path = files.folder(&execution).join(&file.path);
            (file.path, path)
        };
        let sources = wanted.into_iter().map(path).collect();
        Ok(Parts { plan, presentation, pictures, left_out, sources })
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
        for file in &files {
            let (from, to) = (self.sources.get(&file.path), tree.join(&file.path));
            let from = from.ok_or_else(|| Failed::permanent(format!("nothing was made of {}", file.path)))?;
            files::link(from, &to).map_err(|error| disk("packaging", &to, &error))?;
        }
        let mut texts: Vec<(String, String)> = Vec::new();
        for track in tracks {
            texts.push((format!("{}/{}", track.name, playlist::MEDIA), playlist::media(track)));
        }
        for track in video {
            texts.push((format!("{}/{}", track.name, playlist::I_FRAMES), playlist::i_frames(track)));
        }
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
            files::replace(&to, text.as_bytes()).map_err(|error| disk("packaging", &to, &error))?;
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

/// A worker of a version that knows no groups makes all rungs of each piece: the first of each is as good as the others.
fn once_each(encoded: &mut [Tracks]) {
    let mut seen = HashSet::new();
    for made in encoded {
        made.tracks.retain(|track| {
            let first = track.segments.first().map(|segment| segment.number);
            seen.insert((track.name.clone(), first))
        });
    }
}

/// Takes out every optional rung of which a chunk could not be made; says which.
fn leave_out(plan: &Plan, encoded: &mut [Tracks]) -> Vec<String> {
    let Some(picture) = &plan.picture else { return Vec::new() };
    let count =
        |name: &str| encoded.iter().flat_map(|made| &made.tracks).filter(|it| it.name == name).count();
    let whole = picture.chunks.len();
    let broken: Vec<(String, usize)> = picture
        .optional_rungs()
        .map(|rung| (rung.name.clone(), count(&rung.name)))
        .filter(|(_, made)| *made < whole)
        .collect();
    for made in encoded {
        made.tracks.retain(|track| !broken.iter().any(|(name, _)| *name == track.name));
    }
    let tell = |(name, made): (String, usize)| {
        format!("{name} is left out: {made} of its {whole} pieces could be made, and it is optional")
    };
    broken.into_iter().map(tell).collect()
}

/// The chunks of each rung that is shown, as one track.
fn join(plan: &Plan, encoded: Vec<Tracks>) -> Result<Vec<Track>, Failed> {
    let mut runs: BTreeMap<String, Vec<Track>> = BTreeMap::new();
    for track in encoded.into_iter().flat_map(|made| made.tracks) {
        runs.entry(track.name.clone()).or_default().push(track);
    }
    let rungs = plan.picture.iter().flat_map(|picture| &picture.rungs);
    rungs
        .map(|rung| (rung, runs.remove(&rung.name).unwrap_or_default()))
        .filter(|(rung, runs)| !rung.optional || !runs.is_empty())
        .map(|(rung, runs)| {
            Track::join(runs).map_err(|error| Failed::permanent(format!("{}: {error}", rung.name)))
        })
        .collect()
}

fn sound(plan: &Plan, track: Track) -> Option<Sound> {
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
        name: track.name.clone(),
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
    work.succeed("mp4", command::progressive(video.as_deref(), audio.as_deref()), None).await?;
    let (file, to) = (work.context.folder().await?.join("video.mp4"), tree.join("video.mp4"));
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

    fn made(execution: &str, rungs: &[&str], segment: u32) -> Tracks {
        let file = |path: String| Artifact { path, bytes: 1, sha256: String::new() };
        let track = |name: &&str| Track {
            name: (*name).into(),
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
        Tracks { execution: execution.into(), tracks: rungs.iter().map(track).collect() }
    }

    #[test]
    fn rungs_that_an_older_worker_made_twice_are_taken_once() {
        let mut encoded =
            vec![made("a", &["1080p"], 0), made("b", &["1080p"], 1), made("old", &["1080p", "720p"], 0)];

        once_each(&mut encoded);

        let kept = |made: &Tracks| made.tracks.iter().map(|track| track.name.clone()).collect::<Vec<_>>();
        assert_eq!(
            encoded.iter().map(kept).collect::<Vec<_>>(),
            [vec!["1080p"], vec!["1080p"], vec!["720p"]]
        );
    }
}
