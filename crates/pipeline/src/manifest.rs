//! What tasks commit: the files they made, with all that the playlists say about them.

use crate::codec;
use crate::name::{FilePath, Name};
use crate::ratio::Ratio;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// All that one video consists of, for the playlists that list everything.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Presentation {
    pub video: Vec<Track>,
    pub audio: Vec<Sound>,
    pub subtitles: Vec<Subtitles>,
}

impl Presentation {
    /// Where a generation keeps it, in its own folder: what its playlists say, for those who make the next one, or want
    /// to know whether it is still what it was.
    pub const FILE: &str = "presentation.json";

    /// Everything that must be published for it, except playlists.
    pub fn files(&self) -> impl Iterator<Item = &Artifact> {
        let tracks = self.video.iter().chain(self.audio.iter().map(|sound| &sound.track));
        tracks.flat_map(Track::files).chain(self.subtitles.iter().flat_map(Subtitles::files))
    }
}

/// A track of sound, and what the source says about it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sound {
    pub track: Track,
    /// A BCP 47 tag; `und` where nobody knows.
    pub language: String,
    /// For people.
    pub title: String,
    pub is_default: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtitles {
    /// Also the name of its folder.
    pub name: Name,
    pub language: String,
    /// For people.
    pub title: String,
    pub is_default: bool,
    /// Whether it only translates what everyone must understand, such as signs.
    pub is_forced: bool,
    /// All cues in one WebVTT file.
    pub whole: Artifact,
    /// One for each segment of the picture.
    pub segments: Vec<Artifact>,
}

impl Subtitles {
    /// The file of all cues.
    pub fn whole_path(track: &str) -> String {
        format!("{track}/subtitles.vtt")
    }

    /// Numbers count from 0, names from 1.
    pub fn segment_path(track: &str, number: usize) -> String {
        format!("{track}/seg-{:05}.vtt", number + 1)
    }

    /// Everything that must be published for it, except its playlist.
    pub fn files(&self) -> impl Iterator<Item = &Artifact> {
        std::iter::once(&self.whole).chain(&self.segments)
    }
}

/// A file that is complete. `path` is relative to the folder of the execution that made it, and is the same in the
/// published generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub path: FilePath,
    pub bytes: u64,
    pub sha256: String,
}

/// One rendition of picture or sound, or a run of its segments that one task made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// `1080p`, `audio-en`: also the name of its folder.
    pub name: Name,
    /// As RFC 6381 wants it: `avc1.64001f`.
    pub codec: String,
    /// Ticks per second of all times below.
    pub timescale: u32,
    pub shape: Shape,
    pub init: Artifact,
    /// Where an encoder chose other parameters for a later run of segments: rare, and empty else. In order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub later_inits: Vec<LaterInit>,
    pub segments: Vec<Segment>,
}

/// An init segment that takes the place of the one before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaterInit {
    /// The number of the first segment it is for.
    pub from: u32,
    pub file: Artifact,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    Video { width: u32, height: u32, frame_rate: Ratio },
    Audio { channels: u16, sample_rate: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    pub file: Artifact,
    /// Counted over the whole track, from 0.
    pub number: u32,
    /// When it begins on the output's clock.
    pub start: u64,
    pub duration: u64,
    /// How many frames of picture or packets of sound.
    pub samples: u32,
    /// Where its pictures that need no other are: for the I-frame playlist. Empty for sound.
    pub key_frames: Vec<KeyFrame>,
}

/// The bytes of a segment from the beginning of a fragment to the end of its first picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyFrame {
    pub start: u64,
    pub offset: u64,
    pub bytes: u64,
}

impl Artifact {
    /// A file that is finished: reads it through.
    pub fn of(folder: &Path, path: &str) -> io::Result<Self> {
        let path: FilePath =
            path.parse().map_err(|bad| io::Error::new(io::ErrorKind::InvalidFilename, bad))?;
        let mut file = File::open(folder.join(&path))?;
        let (mut digest, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 1 << 16]);
        loop {
            let read = file.read(&mut block)?;
            if read == 0 {
                return Ok(Artifact { path, bytes, sha256: hex::encode(digest.finalize()) });
            }
            digest.update(&block[..read]);
            bytes += read as u64;
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unjoinable {
    #[error("there is nothing to join")]
    Nothing,
    #[error("{track}: the {what} of segment {segment} differs from that of the segments before")]
    Differs { track: Name, what: &'static str, segment: u32 },
    #[error("{track}: segment {found} comes where segment {expected} should")]
    Order { track: Name, found: u32, expected: u32 },
    #[error("{track}: segment {segment} begins at {found}, the one before it ends at {expected}")]
    Seam { track: Name, segment: u32, found: u64, expected: u64 },
}

impl Unjoinable {
    /// The file of the segment that does not follow those before it.
    pub fn segment_path(&self) -> Option<String> {
        match self {
            Unjoinable::Nothing => None,
            Unjoinable::Differs { track, segment, .. }
            | Unjoinable::Order { track, found: segment, .. }
            | Unjoinable::Seam { track, segment, .. } => Some(Track::segment_path(track, *segment)),
        }
    }
}

impl Track {
    /// The file of the init segment of a run that begins with this segment.
    pub fn init_path(track: &str, first_segment: u32) -> String {
        match first_segment {
            0 => format!("{track}/init.mp4"),
            number => format!("{track}/init-{:05}.mp4", u64::from(number) + 1),
        }
    }

    /// Numbers count from 0, names from 1.
    pub fn segment_path(track: &str, number: u32) -> String {
        format!("{track}/seg-{:05}.m4s", u64::from(number) + 1)
    }

    /// One track of the runs that several tasks made, which must follow each other in number and, to the tick, in
    /// time. An init segment that repeats the one before it is dropped. The codec is what a player needs for all of them.
    pub fn join(runs: Vec<Track>) -> Result<Track, Unjoinable> {
        let mut runs = runs.into_iter();
        let mut joined = runs.next().ok_or(Unjoinable::Nothing)?;
        for run in runs {
            joined.codec = joined.check_alike(&run)?;
            let from = run.segments.first().map_or(0, |segment| segment.number);
            let inits = std::iter::once(LaterInit { from, file: run.init }).chain(run.later_inits);
            for init in inits.filter(|_| !run.segments.is_empty()) {
                let last = joined.later_inits.last().map_or(&joined.init, |last| &last.file);
                if last.sha256 != init.file.sha256 {
                    joined.later_inits.push(init);
                }
            }
            joined.segments.extend(run.segments);
        }
        joined.check_seams()?;
        Ok(joined)
    }

    /// The codec of both.
    fn check_alike(&self, run: &Track) -> Result<String, Unjoinable> {
        let codec = codec::for_both(&self.codec, &run.codec);
        let same = [
            ("name", self.name == run.name),
            ("codec", codec.is_some()),
            ("timescale", self.timescale == run.timescale),
            ("shape", self.shape == run.shape),
        ];
        let segment = run.segments.first().map_or(0, |segment| segment.number);
        match same.iter().find(|(_, is_same)| !is_same) {
            Some(&(what, _)) => Err(Unjoinable::Differs { track: self.name.clone(), what, segment }),
            None => Ok(codec.unwrap_or_default()),
        }
    }

    fn check_seams(&self) -> Result<(), Unjoinable> {
        let track = || self.name.clone();
        for pair in self.segments.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            let (found, expected) = (after.number, before.number.saturating_add(1));
            if found != expected {
                return Err(Unjoinable::Order { track: track(), found, expected });
            }
            let (found, expected) = (after.start, before.start.saturating_add(before.duration));
            if found != expected {
                return Err(Unjoinable::Seam { track: track(), segment: after.number, found, expected });
            }
        }
        Ok(())
    }

    /// The init segment that this segment needs.
    pub fn init_of(&self, segment: &Segment) -> &Artifact {
        let later = self.later_inits.iter().rev().find(|init| init.from <= segment.number);
        later.map_or(&self.init, |init| &init.file)
    }

    /// Everything that must be published for this track, except playlists.
    pub fn files(&self) -> impl Iterator<Item = &Artifact> {
        let inits = std::iter::once(&self.init).chain(self.later_inits.iter().map(|init| &init.file));
        inits.chain(self.segments.iter().map(|segment| &segment.file))
    }

    /// When its last segment ends, in ticks.
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(0, |last| last.start.saturating_add(last.duration))
    }

    /// When its last segment ends.
    pub fn seconds(&self) -> f64 {
        self.end() as f64 / f64::from(self.timescale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(path: String, sha256: &str) -> Artifact {
        Artifact { path: path.parse().unwrap(), bytes: 1000, sha256: sha256.into() }
    }

    /// Segments of 100 ticks.
    fn run(numbers: std::ops::Range<u32>, init: &str) -> Track {
        let segment = |number: u32| Segment {
            file: artifact(format!("a/seg-{number}"), "-"),
            number,
            start: u64::from(number) * 100,
            duration: 100,
            samples: 10,
            key_frames: Vec::new(),
        };
        Track {
            name: "a".parse().unwrap(),
            codec: "mp4a.40.2".into(),
            timescale: 50,
            shape: Shape::Audio { channels: 2, sample_rate: 50 },
            init: artifact(format!("a/init-{}", numbers.start), init),
            later_inits: Vec::new(),
            segments: numbers.map(segment).collect(),
        }
    }

    #[test]
    fn runs_that_follow_each_other_become_one_track_with_one_init() {
        let joined = Track::join(vec![run(0..2, "x"), run(2..3, "x"), run(3..6, "x")]).unwrap();

        assert_eq!(joined.segments.len(), 6);
        assert_eq!(joined.later_inits, []);
        assert_eq!(joined.end(), 600);
        assert_eq!(joined.seconds(), 12.0);
    }

    #[test]
    fn an_init_that_differs_is_kept_from_its_segment_on() {
        let joined =
            Track::join(vec![run(0..2, "x"), run(2..4, "y"), run(4..5, "y"), run(5..6, "x")]).unwrap();

        let inits: Vec<_> = joined.segments.iter().map(|s| &*joined.init_of(s).path).collect();
        assert_eq!(inits, ["a/init-0", "a/init-0", "a/init-2", "a/init-2", "a/init-2", "a/init-5"]);
        assert_eq!(joined.files().count(), 3 + 6);
    }

    #[test]
    fn the_codec_of_runs_is_what_a_player_needs_for_all() {
        let with = |codec: &str, numbers| Track { codec: codec.into(), ..run(numbers, codec) };
        let joined = Track::join(vec![
            with("avc1.64001e", 0..2),
            with("avc1.42c01f", 2..3),
            with("avc1.64001e", 3..4),
        ]);

        assert_eq!(joined.unwrap().codec, "avc1.64001f");
    }

    #[test]
    fn holes_repeats_and_strangers_are_refused() {
        let mut late = run(2..3, "x");
        late.segments[0].start += 1;
        let mut stranger = run(2..3, "x");
        stranger.codec = "opus".into();
        let track = || "a".parse().unwrap();

        let join = |second| Track::join(vec![run(0..2, "x"), second]).unwrap_err();
        assert_eq!(join(run(3..4, "x")), Unjoinable::Order { track: track(), found: 3, expected: 2 });
        assert_eq!(join(run(1..4, "x")), Unjoinable::Order { track: track(), found: 1, expected: 2 });
        assert_eq!(join(late), Unjoinable::Seam { track: track(), segment: 2, found: 201, expected: 200 });
        assert_eq!(join(stranger), Unjoinable::Differs { track: track(), what: "codec", segment: 2 });
        assert_eq!(Track::join(Vec::new()), Err(Unjoinable::Nothing));
        assert_eq!(join(run(3..4, "x")).segment_path().unwrap(), "a/seg-00004.m4s");
    }
}
