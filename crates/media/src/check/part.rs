//! What the media in one segment come to, whatever container they are in.

use serde::Serialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Video,
    Audio,
}

/// A segment as it was measured.
#[derive(Debug)]
pub struct Part {
    pub bytes: u64,
    /// How many of them are samples of picture or sound.
    pub payload: u64,
    /// One for each track.
    pub runs: Vec<Run>,
}

impl Part {
    /// The picture, or else the sound: what the segment's duration is measured by.
    pub fn main(&self) -> Option<&Run> {
        self.run(Kind::Video).or_else(|| self.run(Kind::Audio))
    }

    pub fn run(&self, kind: Kind) -> Option<&Run> {
        self.runs.iter().find(|run| run.kind == kind)
    }
}

/// The samples of one track in one segment. Times are in ticks of the track.
#[derive(Debug)]
pub struct Run {
    pub kind: Kind,
    pub track: u32,
    pub timescale: u32,
    /// When the first sample is decoded.
    pub start: i128,
    /// When the last one's time is over.
    pub end: i128,
    pub first_shown: i128,
    pub last_shown_until: i128,
    pub samples: u64,
    pub shortest: u64,
    pub longest: u64,
    pub begins_with_key: bool,
    /// When its key frames are decoded.
    pub keys: Vec<i128>,
    /// How much later than expected a sample within the segment was.
    pub jump: Option<i128>,
}

/// A sample as a [`Run`] needs it.
pub struct Sample {
    pub decoded: i128,
    pub shown: i128,
    pub duration: u64,
    pub is_key: bool,
}

impl Run {
    pub fn begin(kind: Kind, track: u32, timescale: u32, first: &Sample) -> Self {
        Run {
            kind,
            track,
            timescale,
            start: first.decoded,
            end: first.decoded,
            first_shown: first.shown,
            last_shown_until: first.shown,
            samples: 0,
            shortest: first.duration,
            longest: first.duration,
            begins_with_key: first.is_key,
            keys: Vec::new(),
            jump: None,
        }
    }

    pub fn add(&mut self, sample: &Sample) {
        if sample.decoded != self.end && self.jump.is_none() {
            self.jump = Some(sample.decoded - self.end);
        }
        self.end = sample.decoded + i128::from(sample.duration);
        self.first_shown = self.first_shown.min(sample.shown);
        self.last_shown_until = self.last_shown_until.max(sample.shown + i128::from(sample.duration));
        self.samples += 1;
        self.shortest = self.shortest.min(sample.duration);
        self.longest = self.longest.max(sample.duration);
        if sample.is_key && self.kind == Kind::Video {
            self.keys.push(sample.decoded);
        }
    }

    pub fn seconds(&self, ticks: i128) -> f64 {
        ticks as f64 / f64::from(self.timescale)
    }

    pub fn duration(&self) -> f64 {
        self.seconds(self.end - self.start)
    }

    /// The longest sample, in seconds: as exact as its times can be asked to be.
    pub fn frame(&self) -> f64 {
        self.seconds(self.longest.into())
    }
}

/// What a track is, as far as playlists repeat it.
#[derive(Debug, Clone, Default)]
pub struct Description {
    pub is_video: bool,
    /// As RFC 6381 wants it, where it is known exactly.
    pub codec: Option<String>,
    pub size: Option<(u32, u32)>,
    pub channels: Option<u16>,
    /// As far as the file says.
    pub has_square_pixels: bool,
    /// Players are told to turn or mirror it.
    pub is_turned: bool,
    /// SDR, PQ or HLG, where the file says it.
    pub range: Option<&'static str>,
    /// By how much an edit list moves what is shown, in seconds; mostly to the front.
    pub shift: f64,
}
