//! What the stages return, and whether it is what was planned.
//!
//! A worker on another machine may send anything. A result is used only if it describes exactly the files that its task
//! was to make.

use crate::codec::Demand;
use crate::manifest::{Artifact, Segment, Shape, Subtitles, Track};
use crate::name::{FilePath, Name};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What `encode`, `encode_optional` and `audio` return: tracks, and the execution whose folder they are in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrackResult {
    pub execution: FilePath,
    pub tracks: Vec<Track>,
    /// The server compared it with the source before it was committed. The server alone sets this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_compared: bool,
}

/// What `subtitles` returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubtitleResult {
    pub execution: FilePath,
    pub subtitles: Subtitles,
}

/// What `thumbnails` returns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ThumbnailResult {
    pub execution: FilePath,
    pub files: Vec<Artifact>,
}

/// Why a result is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadResult {
    #[error("the result names execution {0}, not its own")]
    Execution(FilePath),
    #[error("the result has the tracks {found}; planned are {planned}")]
    Tracks { found: String, planned: String },
    #[error("{track}: {what}")]
    Track { track: Name, what: String },
    #[error("{track}: the codec {codec} is not of a common profile and at most of level {}.{}", level / 10, level % 10)]
    Demand { track: Name, codec: String, level: u32 },
    #[error("{0} is in the result twice")]
    FileTwice(FilePath),
    #[error("{0} is in the result and was not uploaded with this size and hash")]
    NotUploaded(FilePath),
    #[error("{0} was uploaded and is not in the result")]
    NotInResult(String),
}

/// What a task of picture or sound was to make.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpectedTrack {
    pub name: Name,
    /// The sample entry, with which the codec's name begins: `avc1`. One of them.
    pub codecs: &'static [&'static str],
    /// The highest level that its picture needs, in tenths. Sound has none.
    pub most_level: Option<u32>,
    pub timescale: u32,
    pub shape: Shape,
    /// What its encoder is to keep to over a few seconds.
    pub max_kbps: u32,
    pub segments: ExpectedSegments,
}

/// An encoder exceeds its rate by less than this factor, and never by that of these seconds at once.
const MOST_EXCESS: f64 = 4.0;
const BUFFER_SECONDS: f64 = 4.0;

/// Samples of a packet of AAC.
const PACKET_TICKS: u64 = 1024;

/// More than any init segment has.
const INIT_BYTES: u64 = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub enum ExpectedSegments {
    /// Frames of the same length, in segments of the same length.
    Even { first_segment: u32, first_frame: u64, frames: u64, per_segment: u32, ticks: u32 },
    /// Packets that follow each other from time 0, in at most so many segments.
    Packets { packets: u64, most_segments: usize },
}

/// A file as it was uploaded: its size and its hash in hex.
pub type Uploaded<'a> = HashMap<&'a str, (u64, &'a str)>;

impl TrackResult {
    /// Compares the result with what was planned for its task.
    pub fn check(&self, execution: &str, expected: &[ExpectedTrack]) -> Result<(), BadResult> {
        own(&self.execution, execution)?;
        let names = |names: Vec<&str>| names.join(", ");
        let mut wanted: Vec<&ExpectedTrack> = expected.iter().collect();
        for track in &self.tracks {
            let Some(at) = wanted.iter().position(|wanted| wanted.name == track.name) else {
                return Err(BadResult::Tracks {
                    found: names(self.tracks.iter().map(|track| track.name.as_str()).collect()),
                    planned: names(expected.iter().map(|track| track.name.as_str()).collect()),
                });
            };
            wanted.swap_remove(at).check(track)?;
        }
        match wanted.is_empty() {
            true => Ok(()),
            false => Err(BadResult::Tracks {
                found: names(self.tracks.iter().map(|track| track.name.as_str()).collect()),
                planned: names(expected.iter().map(|track| track.name.as_str()).collect()),
            }),
        }
    }

    /// Whether every player of the codec plays the tracks. A worker on another machine chooses nothing that the plan did not
    /// ask for: a rendition has one entry in the master playlist, and one chunk would keep players from all of it.
    pub fn check_demands(&self, expected: &[ExpectedTrack]) -> Result<(), BadResult> {
        for track in &self.tracks {
            let planned = expected.iter().find(|planned| planned.name == track.name);
            let Some((planned, level)) = planned.and_then(|it| Some((it, it.most_level?))) else { continue };
            let fits = Demand::parse(&track.codec).is_some_and(|demand| {
                planned.codecs.first() == Some(&demand.entry)
                    && demand.is_common_profile()
                    && demand.level <= level
            });
            if !fits {
                let (track, codec) = (track.name.clone(), track.codec.clone());
                return Err(BadResult::Demand { track, codec, level });
            }
        }
        Ok(())
    }

    pub fn files(&self) -> impl Iterator<Item = &Artifact> {
        self.tracks.iter().flat_map(Track::files)
    }
}

impl SubtitleResult {
    /// Compares the result with the track it was to convert, in so many segments.
    pub fn check(&self, track: &Name, segments: usize) -> Result<(), BadResult> {
        let wrong = |what| BadResult::Track { track: track.clone(), what };
        let made = &self.subtitles;
        if made.name != *track || made.segments.len() != segments {
            return Err(wrong(format!("found {} with {} segments", made.name, made.segments.len())));
        }
        named(&made.whole, &Subtitles::whole_path(track)).map_err(wrong)?;
        let mut numbered = made.segments.iter().enumerate();
        numbered.try_for_each(|(at, file)| named(file, &Subtitles::segment_path(track, at)).map_err(wrong))
    }
}

impl ThumbnailResult {
    pub const POSTER: &str = "poster.jpg";
    pub const INDEX: &str = "thumbnails.vtt";

    /// The name of a sheet; numbers count from 1.
    pub fn sheet(number: u32) -> String {
        format!("sprite-{number}.jpg")
    }

    /// Compares the result with so many sheets of small pictures.
    pub fn check(&self, sheets: u32) -> Result<(), BadResult> {
        let wrong = |what| BadResult::Track { track: Name::nearest("thumbnails"), what };
        let names = (1..=sheets).map(Self::sheet).chain([Self::POSTER.into(), Self::INDEX.into()]);
        let names: Vec<String> = names.collect();
        if names.len() != self.files.len() {
            return Err(wrong(format!("{} files; planned are {}", self.files.len(), names.len())));
        }
        self.files.iter().zip(&names).try_for_each(|(file, name)| named(file, name).map_err(wrong))
    }
}

fn own(named: &FilePath, execution: &str) -> Result<(), BadResult> {
    match *named == *execution {
        true => Ok(()),
        false => Err(BadResult::Execution(named.clone())),
    }
}

/// Compares the files of a result with those that were uploaded: each once, with the same size and hash, and no others.
pub fn check_files<'a>(
    files: impl Iterator<Item = &'a Artifact>,
    uploaded: &Uploaded<'_>,
) -> Result<(), BadResult> {
    let mut left = uploaded.clone();
    for file in files {
        if !uploaded.contains_key(file.path.as_str()) {
            return Err(BadResult::NotUploaded(file.path.clone()));
        }
        let Some((bytes, sha256)) = left.remove(file.path.as_str()) else {
            return Err(BadResult::FileTwice(file.path.clone()));
        };
        if bytes != file.bytes || !sha256.eq_ignore_ascii_case(&file.sha256) {
            return Err(BadResult::NotUploaded(file.path.clone()));
        }
    }
    match left.keys().min() {
        Some(more) => Err(BadResult::NotInResult((*more).to_owned())),
        None => Ok(()),
    }
}

impl ExpectedTrack {
    fn check(&self, track: &Track) -> Result<(), BadResult> {
        let wrong = |what: String| BadResult::Track { track: self.name.clone(), what };
        let kind = track.codec.split('.').next().unwrap_or_default();
        let is_codec = |codec: &&str| *codec == kind || *codec == track.codec;
        if !self.codecs.iter().any(is_codec) || !is_codec_name(&track.codec) {
            return Err(wrong(format!("the codec is not {}", self.codecs.join(" or "))));
        }
        if (track.timescale, track.shape) != (self.timescale, self.shape) {
            return Err(wrong(format!(
                "it is {:?} at {} ticks a second; planned is {:?} at {}",
                track.shape, track.timescale, self.shape, self.timescale
            )));
        }
        if !track.later_inits.is_empty() {
            return Err(wrong("it has several init segments; a task makes one".into()));
        }
        let first = track.segments.first().map_or(0, |segment| segment.number);
        named(&track.init, &Track::init_path(&self.name, first)).map_err(wrong)?;
        for segment in &track.segments {
            named(&segment.file, &Track::segment_path(&self.name, segment.number)).map_err(wrong)?;
            key_frames(segment).map_err(wrong)?;
            let (bytes, most) = (segment.file.bytes, self.most_bytes(segment));
            if bytes > most {
                let number = segment.number;
                return Err(wrong(format!(
                    "segment {number} has {bytes} bytes; at its bitrate, {most} are the most"
                )));
            }
        }
        self.segments.check(&track.segments).map_err(wrong)
    }
}

impl ExpectedTrack {
    /// How many files the track has, and how many bytes in all: more are not taken.
    pub fn most(&self) -> (usize, u64) {
        let (segments, ticks) = match self.segments {
            ExpectedSegments::Even { frames, per_segment, ticks, .. } => {
                (frames.div_ceil(per_segment.max(1).into()), frames.saturating_mul(ticks.into()))
            }
            ExpectedSegments::Packets { packets, most_segments } => {
                (most_segments as u64, packets.saturating_mul(PACKET_TICKS))
            }
        };
        let seconds = ticks as f64 / f64::from(self.timescale.max(1)) + segments as f64 * BUFFER_SECONDS;
        let bytes = (f64::from(self.max_kbps) * 125.0 * seconds * MOST_EXCESS) as u64;
        let files = usize::try_from(segments).unwrap_or(usize::MAX).saturating_add(1);
        (files, bytes.saturating_add(INIT_BYTES))
    }

    fn most_bytes(&self, segment: &Segment) -> u64 {
        let seconds = segment.duration as f64 / f64::from(self.timescale.max(1)) + BUFFER_SECONDS;
        (f64::from(self.max_kbps) * 125.0 * seconds * MOST_EXCESS) as u64
    }
}

impl ExpectedSegments {
    fn check(&self, segments: &[Segment]) -> Result<(), String> {
        match *self {
            ExpectedSegments::Even { first_segment, first_frame, frames, per_segment, ticks } => {
                let (per_segment, ticks) = (u64::from(per_segment.max(1)), u64::from(ticks));
                let count = frames.div_ceil(per_segment);
                if segments.len() as u64 != count {
                    return Err(format!("{} segments; planned are {count}", segments.len()));
                }
                for (at, segment) in (0u64..).zip(segments) {
                    let before = at * per_segment;
                    let samples = per_segment.min(frames - before);
                    let expected = (
                        u64::from(first_segment) + at,
                        (first_frame + before).saturating_mul(ticks),
                        samples.saturating_mul(ticks),
                        samples,
                    );
                    if times(segment) != expected {
                        return Err(differs(segment, expected));
                    }
                    if segment.key_frames.first().is_none_or(|key| key.start != segment.start) {
                        return Err(format!("segment {} does not begin with a key frame", segment.number));
                    }
                }
                Ok(())
            }
            ExpectedSegments::Packets { packets, most_segments } => {
                let found: u64 = segments.iter().map(|segment| u64::from(segment.samples)).sum();
                if found != packets || segments.is_empty() || segments.len() > most_segments {
                    return Err(format!(
                        "{found} packets in {} segments; planned are {packets} packets in at most {most_segments}",
                        segments.len()
                    ));
                }
                let mut end = 0;
                for (at, segment) in (0u64..).zip(segments) {
                    if (u64::from(segment.number), segment.start) != (at, end) || segment.duration == 0 {
                        return Err(format!("segment {} does not follow the one before it", segment.number));
                    }
                    end = segment.start.saturating_add(segment.duration);
                }
                Ok(())
            }
        }
    }
}

fn times(segment: &Segment) -> (u64, u64, u64, u64) {
    (segment.number.into(), segment.start, segment.duration, segment.samples.into())
}

fn differs(segment: &Segment, (number, start, duration, samples): (u64, u64, u64, u64)) -> String {
    let Segment { number: n, start: s, duration: d, samples: c, .. } = segment;
    format!(
        "segment {n} begins at {s}, lasts {d} and has {c} frames; planned is segment {number} at {start}, {duration} long, with {samples}"
    )
}

fn named(file: &Artifact, path: &str) -> Result<(), String> {
    let is_hash = file.sha256.len() == 64 && file.sha256.bytes().all(|byte| byte.is_ascii_hexdigit());
    match (file.path == *path, is_hash && file.bytes > 0) {
        (true, true) => Ok(()),
        (true, false) => Err(format!("{path} has no size or no hash")),
        (false, _) => Err(format!("it has {} where {path} is planned", file.path)),
    }
}

/// They follow each other inside their segment's file.
fn key_frames(segment: &Segment) -> Result<(), String> {
    let (mut time, mut offset) = (segment.start, 0);
    for key in &segment.key_frames {
        let end = key.offset.checked_add(key.bytes).filter(|end| *end <= segment.file.bytes);
        let is_inside = key.start >= time && key.start < segment.start.saturating_add(segment.duration);
        match end {
            Some(end) if is_inside && key.offset >= offset && key.bytes > 0 => {
                (time, offset) = (key.start, end);
            }
            _ => return Err(format!("segment {} has a key frame outside of it", segment.number)),
        }
    }
    Ok(())
}

/// It is written into playlists.
fn is_codec_name(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::manifest::KeyFrame;
    use crate::ratio::Ratio;

    const SHAPE: Shape = Shape::Video { width: 640, height: 360, frame_rate: Ratio { num: 25, den: 1 } };

    fn artifact(path: &str) -> Artifact {
        Artifact { path: path.parse().unwrap(), bytes: 100, sha256: "ab".repeat(32) }
    }

    /// The second chunk: segments 2 and 3 of four frames each, and one frame in segment 4.
    fn expected() -> ExpectedTrack {
        ExpectedTrack {
            name: "360p".parse().unwrap(),
            codecs: &["avc1", "avc3"],
            most_level: Some(31),
            timescale: 12_800,
            shape: SHAPE,
            max_kbps: 800,
            segments: ExpectedSegments::Even {
                first_segment: 2,
                first_frame: 8,
                frames: 9,
                per_segment: 4,
                ticks: 512,
            },
        }
    }

    fn made() -> TrackResult {
        let segment = |number: u32, samples: u32| {
            let start = u64::from(number) * 4 * 512;
            Segment {
                file: artifact(&format!("360p/seg-{:05}.m4s", number + 1)),
                number,
                start,
                duration: u64::from(samples) * 512,
                samples,
                key_frames: vec![KeyFrame { start, offset: 24, bytes: 50 }],
            }
        };
        let track = Track {
            name: "360p".parse().unwrap(),
            codec: "avc1.64001f".into(),
            timescale: 12_800,
            shape: SHAPE,
            init: artifact("360p/init-00003.mp4"),
            later_inits: Vec::new(),
            segments: vec![segment(2, 4), segment(3, 4), segment(4, 1)],
        };
        TrackResult { execution: "1-2.1".parse().unwrap(), tracks: vec![track], is_compared: false }
    }

    fn refused(change: impl Fn(&mut Track)) -> String {
        let mut made = made();
        change(&mut made.tracks[0]);
        made.check("1-2.1", &[expected()]).unwrap_err().to_string()
    }

    #[test]
    fn a_codec_asks_no_more_of_players_than_was_planned() {
        let demands = |codec: &str| {
            let mut made = made();
            made.tracks[0].codec = codec.into();
            made.check_demands(&[expected()])
        };

        for codec in ["avc1.64001f", "avc1.42c00d", "avc1.4d401e"] {
            assert_eq!(demands(codec), Ok(()), "{codec}");
        }
        for codec in ["avc1.640020", "avc1.640033", "avc1.f4001f", "avc3.64001f", "avc1", "hvc1.1.6.L30"] {
            assert!(demands(codec).is_err(), "{codec}");
        }
    }

    #[test]
    fn what_was_planned_is_taken_and_nothing_else() {
        assert_eq!(made().check("1-2.1", &[expected()]), Ok(()));
        assert!(made().check("1-2.2", &[expected()]).is_err(), "another execution's");
        assert!(made().check("1-2.1", &[]).is_err(), "an unplanned track");
        let two = [expected(), ExpectedTrack { name: "240p".parse().unwrap(), ..expected() }];
        assert!(made().check("1-2.1", &two).is_err(), "a track is missing");
        let mut twice = made();
        twice.tracks.push(twice.tracks[0].clone());
        assert!(twice.check("1-2.1", &[expected()]).is_err(), "a track twice");
    }

    #[test]
    fn each_lie_about_a_track_is_named() {
        for (what, told) in [
            ("another chunk", refused(|track| track.segments.iter_mut().for_each(|it| it.number += 1))),
            ("another time", refused(|track| track.segments[1].start += 512)),
            ("a segment less", refused(|track| drop(track.segments.pop()))),
            ("more frames", refused(|track| track.segments[2].samples += 1)),
            (
                "another file",
                refused(|track| track.segments[0].file.path = "240p/seg-00003.m4s".parse().unwrap()),
            ),
            ("another init", refused(|track| track.init.path = "360p/init.mp4".parse().unwrap())),
            ("another codec", refused(|track| track.codec = "hvc1.1".into())),
            ("a codec that ends a line", refused(|track| track.codec = "avc1.\"\n#EXT-X".into())),
            ("another size", refused(|track| track.shape = Shape::Audio { channels: 2, sample_rate: 1 })),
            ("another clock", refused(|track| track.timescale += 1)),
            ("no hash", refused(|track| track.init.sha256 = "../..".into())),
            ("more bytes than its bitrate allows", refused(|track| track.segments[1].file.bytes = 10 << 20)),
            ("no key frame", refused(|track| track.segments[0].key_frames.clear())),
            (
                "a key frame beyond the file",
                refused(|track| track.segments[0].key_frames[0].bytes = u64::MAX),
            ),
        ] {
            assert!(told.starts_with("360p: "), "{what}: {told}");
        }
    }

    #[test]
    fn sound_has_its_packets_one_after_the_other() {
        let packets = |packets, most_segments| ExpectedSegments::Packets { packets, most_segments };
        let segment = |number: u32, start, samples| Segment {
            file: artifact("a/b"),
            number,
            start,
            duration: u64::from(samples) * 1024,
            samples,
            key_frames: Vec::new(),
        };
        let made = [segment(0, 0, 3), segment(1, 3072, 2)];

        assert_eq!(packets(5, 2).check(&made), Ok(()));
        assert!(packets(6, 2).check(&made).is_err(), "a packet less");
        assert!(packets(5, 1).check(&made).is_err(), "a segment more");
        assert!(packets(5, 2).check(&[segment(0, 0, 3), segment(1, 3000, 2)]).is_err(), "they overlap");
        assert!(packets(5, 2).check(&[segment(1, 0, 5)]).is_err(), "another number");
        assert!(packets(0, 2).check(&[]).is_err());
    }

    #[test]
    fn files_are_those_that_were_uploaded() {
        let (a, b) = (artifact("x/a"), artifact("x/b"));
        let hash = "AB".repeat(32);
        let both: Uploaded<'_> = [("x/a", (100, hash.as_str())), ("x/b", (100, hash.as_str()))].into();
        let check =
            |files: &[&Artifact], uploaded: &Uploaded<'_>| check_files(files.iter().copied(), uploaded);

        assert_eq!(check(&[&a, &b], &both), Ok(()));
        assert_eq!(check(&[&a], &both), Err(BadResult::NotInResult("x/b".into())));
        assert_eq!(check(&[&a, &a, &b], &both), Err(BadResult::FileTwice(a.path.clone())));
        let other: Uploaded<'_> = [("x/a", (99, hash.as_str()))].into();
        assert_eq!(check(&[&a], &other), Err(BadResult::NotUploaded(a.path.clone())));
        assert_eq!(check(&[&b], &other), Err(BadResult::NotUploaded(b.path.clone())));
    }
}
