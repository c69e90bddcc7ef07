//! What our own output must be beyond what any stream must.

use super::finding::{Findings, Place};
use super::folder::{Astray, Folder, Name, Range};
use super::part::{Kind, Part};
use super::rendition::{Container, Rendition};
use super::rule;
use crate::manifest::{Artifact, Presentation};
use crate::mp4;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::{Read, Seek, SeekFrom};

/// More files than any stream of ours has.
const MAX_FILES: usize = 1_000_000;

/// What is known of a stream before it is looked at. The default, for streams of others: nothing.
#[derive(Debug, Clone, Default)]
pub struct Expect {
    /// How many frames each rendition of picture has, by its name: the folder of its playlist.
    pub frames: BTreeMap<String, u64>,
    /// When each rendition begins to be shown or heard, in seconds, by its name.
    pub begins: BTreeMap<String, f64>,
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
                Some((rendition, _)) => shown(rendition, findings),
            }
        }
        for rendition in renditions {
            let whole = rendition.whole(Kind::Video).or_else(|| rendition.whole(Kind::Audio));
            let (Some(begin), Some(whole)) = (self.begins.get(&rendition.name), whole) else { continue };
            if (whole.start - begin).abs() > whole.frame + 0.001 {
                let what = format!("it begins at {:.3} s, {begin:.3} s were planned", whole.start);
                findings.add(&rule::GATE_BEGIN, rendition.place(), what);
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

/// Our encoders' frames of a segment are shown in the time of that segment, their pixels are square, and they are upright.
fn shown(rendition: &Rendition, findings: &mut Findings) {
    if rendition.description(Kind::Video).is_some_and(|it| !it.has_square_pixels) {
        findings.add(&rule::GATE_PIXELS, rendition.place(), "its pixels are not square");
    }
    for at in 0..rendition.files.len() {
        if let Some((name, init, _)) = rendition.init_of(at)
            && init.tracks.iter().any(|track| track.is_turned)
        {
            let what = "players are told to turn or to mirror the picture";
            findings.add(&rule::GATE_TURNED, Place::file(name.clone()).segment(at), what);
            break;
        }
    }
    let shift = rendition.description(Kind::Video).map_or(0.0, |it| it.shift);
    let parts = rendition.parts.iter().enumerate();
    let runs = parts.filter_map(|(at, part)| Some((at, part.as_ref()?.run(Kind::Video)?)));
    for (at, run) in runs {
        let moved = run.seconds(run.first_shown - run.start) + shift;
        let late = run.seconds(run.last_shown_until - run.end) + shift;
        if moved.abs().max(late.abs()) > run.frame() / 2.0 {
            let what = format!("its frames are shown {moved:.3} s late, and until {late:.3} s after its end");
            findings.add(&rule::GATE_SHOWN, rendition.segment_place(at), what);
        }
    }
}

/// What describes the samples of a segment takes less than this, and this for each sample.
const MOST_DESCRIBING: u64 = 64 << 10;
const MOST_OF_A_SAMPLE: u64 = 64;

const MAX_INIT: u64 = 256 << 10;

impl Expect {
    /// What a rendition was planned to be, where that is known.
    fn planned(&self, name: &str) -> Option<mp4::Kind> {
        if self.frames.contains_key(name) {
            return Some(mp4::Kind::Video);
        }
        (!self.frames.is_empty() || self.begins.contains_key(name)).then_some(mp4::Kind::Audio)
    }

    /// Another track in an init segment or in a segment would go to every viewer, and nobody compares it with the source.
    pub(super) fn tracks(&self, rendition: &Rendition, findings: &mut Findings) {
        if rendition.container != Container::Fmp4 || rendition.media.is_i_frames_only {
            return;
        }
        let planned = self.planned(&rendition.name);
        for (at, part) in rendition.parts.iter().enumerate() {
            let Some((name, init, _)) = rendition.init_of(at) else { continue };
            let is_planned = match init.movie.tracks.as_slice() {
                [only] => planned.is_none_or(|kind| only.kind == kind),
                _ => false,
            };
            if !is_planned || part.as_ref().is_some_and(|part| part.runs.len() != 1) {
                let tracks = init.movie.tracks.len();
                let kind = match planned {
                    Some(mp4::Kind::Video) => "picture",
                    Some(_) => "sound",
                    None => "its kind",
                };
                let what = format!("its init segment {name} has {tracks} tracks; one of {kind} was planned");
                findings.add(&rule::GATE_TRACKS, rendition.segment_place(at), what);
                return;
            }
        }
    }
}

/// Bytes that are neither picture nor sound would go to every viewer, unseen by whoever compares pictures.
pub(super) fn content(folder: &Folder, rendition: &Rendition, findings: &mut Findings) {
    if rendition.container != Container::Fmp4 || rendition.media.is_i_frames_only {
        return;
    }
    let mut inits = BTreeSet::new();
    for (at, (file, part)) in rendition.files.iter().zip(&rendition.parts).enumerate() {
        let samples = |part: &Part| part.runs.iter().map(|run| run.samples).sum::<u64>();
        let most = |part: &Part| part.payload + MOST_DESCRIBING + samples(part) * MOST_OF_A_SAMPLE;
        if let Some(part) = part.as_ref().filter(|part| part.bytes > most(part)) {
            let what = format!("{} of {} bytes are no samples", part.bytes - part.payload, part.bytes);
            findings.add(&rule::GATE_CONTENT, rendition.segment_place(at), what);
        }
        let range = rendition.media.segments.get(at).and_then(|segment| segment.range);
        if let Some(what) = file.as_ref().and_then(|file| other_box(folder, file, range, SEGMENT)) {
            findings.add(&rule::GATE_CONTENT, rendition.segment_place(at), what);
        }
        let Some((name, _, range)) = rendition.init_of(at) else { continue };
        if !inits.insert(name.clone()) {
            continue;
        }
        let is_large = range.is_none() && folder.bytes(name).is_ok_and(|bytes| bytes > MAX_INIT);
        let what = is_large.then(|| "it is larger than any init segment".to_owned());
        if let Some(what) = what.or_else(|| other_box(folder, name, range, INIT)) {
            findings.add(&rule::GATE_CONTENT, Place::file(name.clone()), what);
        }
    }
}

const INIT: &[&[u8; 4]] = &[b"ftyp", b"moov"];
const SEGMENT: &[&[u8; 4]] = &[b"styp", b"sidx", b"moof", b"mdat"];

/// The first box of a file that is none of these, in words.
fn other_box(folder: &Folder, name: &Name, range: Option<Range>, known: &[&[u8; 4]]) -> Option<String> {
    let mut window = folder.window(name, range).ok()?;
    let (end, mut at) = (window.size(), 0);
    while at < end {
        let mut head = [0; 8];
        window.seek(SeekFrom::Start(at)).ok()?;
        if window.read_exact(&mut head).is_err() {
            return Some(format!("it ends within a box, at byte {at}"));
        }
        let [a, b, c, d, kind @ ..] = head;
        let size = u64::from(u32::from_be_bytes([a, b, c, d]));
        if size < 8 || !known.contains(&&kind) {
            let kind = String::from_utf8_lossy(&kind).escape_default().to_string();
            return Some(format!("it has a box `{kind}` of {size} bytes at byte {at}"));
        }
        at += size;
    }
    None
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
