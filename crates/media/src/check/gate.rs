//! What our own output must be beyond what any stream must.

use super::finding::{Findings, Place};
use super::folder::{Astray, Folder};
use super::part::Kind;
use super::rendition::Rendition;
use super::rule;
use crate::manifest::{Artifact, Presentation};
use std::collections::{BTreeMap, HashSet};

/// More files than any stream of ours has.
const MAX_FILES: usize = 1_000_000;

/// What is known of a stream before it is looked at. The default, for streams of others: nothing.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// How many frames each rendition of picture has, by its name: the folder of its playlist.
    pub frames: BTreeMap<String, u64>,
    /// How long picture and sound last, in seconds.
    pub duration: Option<f64>,
    /// All files, relative to `below`. Empty: not known.
    pub artifacts: Vec<Artifact>,
    /// Where they are in the folder: empty, or a folder with `/` at its end.
    pub below: String,
    /// There are other files besides: not all are known.
    pub has_others: bool,
}

/// More than the record of any stream of ours takes.
const MAX_RECORD: u64 = 256 << 20;

impl Expect {
    /// What a generation of ours keeps a record of: its segments, with their hashes. Of others' streams, nothing.
    pub(super) fn recorded(folder: &Folder, playlist: &str) -> Self {
        let text = folder.read(playlist, super::playlist::MAX_BYTES).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        // A generation stands beside the playlist that leads to it, or is the folder itself.
        let uris = text.lines().filter(|line| !line.starts_with('#'));
        let places = uris.filter_map(|uri| uri.split_once('/')).map(|(place, _)| format!("{place}/"));
        let read = |place: String| {
            let name = folder.resolve("", &format!("{place}{}", Presentation::FILE)).ok()?;
            let record: Presentation = serde_json::from_slice(&folder.read(&name, MAX_RECORD).ok()?).ok()?;
            Some(Expect {
                artifacts: record.files().cloned().collect(),
                below: place,
                has_others: true,
                ..Expect::default()
            })
        };
        std::iter::once(String::new()).chain(places.take(1)).find_map(read).unwrap_or_default()
    }

    pub(super) fn is_own(&self) -> bool {
        !self.artifacts.is_empty() || !self.frames.is_empty()
    }

    /// Reads every file, and returns how many are as they were committed.
    pub(super) fn files(&self, folder: &Folder, findings: &mut Findings) -> u64 {
        let path = |artifact: &Artifact| format!("{}{}", self.below, artifact.path);
        let proved = self
            .artifacts
            .iter()
            .filter(|artifact| is_proved(artifact, path(artifact), folder, findings))
            .count();
        let listed: HashSet<_> = self.artifacts.iter().map(path).collect();
        let present = if listed.is_empty() || self.has_others {
            Vec::new()
        } else {
            folder.names(MAX_FILES).unwrap_or_default()
        };
        for name in present.iter().filter(|name| !listed.contains(name.as_str())) {
            findings.add(&rule::GATE_UNLISTED, Place::file(name.clone()), "nobody committed this file");
        }
        proved as u64
    }

    pub(super) fn renditions(&self, renditions: &[Rendition], findings: &mut Findings) {
        for (name, frames) in &self.frames {
            let playlist = renditions
                .iter()
                .find(|rendition| rendition.name == *name && !rendition.media.is_i_frames_only);
            match playlist.map(|rendition| (rendition, rendition.whole(Kind::Video))) {
                None => findings.add(&rule::GATE_RENDITION, Place::file(name), "the rendition is not there"),
                Some((rendition, Some(whole))) if whole.samples != *frames => {
                    let what = format!("{} frames, {frames} were planned", whole.samples);
                    findings.add(&rule::GATE_FRAMES, rendition.place(), what);
                }
                // What could not be measured was told before.
                Some(_) => {}
            }
        }
        let Some(duration) = self.duration else { return };
        for rendition in renditions {
            let whole = rendition.whole(Kind::Video).or_else(|| rendition.whole(Kind::Audio));
            let Some(whole) = whole else { continue };
            if (whole.duration - duration).abs() > whole.frame + 0.001 {
                let what = format!("{:.3} s, {duration:.3} s were planned", whole.duration);
                findings.add(&rule::GATE_DURATION, rendition.place(), what);
            }
        }
    }
}

fn is_proved(artifact: &Artifact, path: String, folder: &Folder, findings: &mut Findings) -> bool {
    let Artifact { bytes, sha256, .. } = artifact;
    let place = Place::file(path.clone());
    let name = match folder.resolve("", &path) {
        Ok(name) => name,
        Err(Astray::Missing | Astray::Outside) => {
            findings.add(&rule::GATE_MISSING, place, "the file was committed and is not there");
            return false;
        }
    };
    let found = folder.bytes(&name).unwrap_or(0);
    if found != *bytes {
        findings.add(&rule::GATE_SIZE, place, format!("{found} bytes, {bytes} were committed"));
        return false;
    }
    match folder.sha256(&name) {
        Ok(hash) if hash.eq_ignore_ascii_case(sha256) => true,
        Ok(hash) => {
            findings.add(&rule::GATE_HASH, place, format!("SHA-256 {hash}, {sha256} was committed"));
            false
        }
        Err(error) => {
            findings.add(&rule::GATE_MISSING, place, format!("the file cannot be read: {error}"));
            false
        }
    }
}
