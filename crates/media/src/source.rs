//! A video file as Vodmill understands it: what `probe` commits and everything after it builds on.

use crate::ratio::Ratio;
use serde::{Deserialize, Serialize};

/// Time zero of all output is the first frame of the picture, or of the sound where there is no picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Source {
    /// ffprobe's name of the container, such as `mov,mp4,m4a,3gp,3g2,mj2`.
    pub container: String,
    pub bytes: u64,
    /// Where the file as a whole begins on its own clock, in seconds: what `-ss` counts from.
    #[serde(default)]
    pub start: f64,
    pub video: Option<Video>,
    pub audio: Vec<Audio>,
    pub subtitles: Vec<Subtitle>,
    pub chapters: Vec<Chapter>,
    /// What a person should know, a sentence each: "the sound ends 0.4 s before the picture".
    pub notes: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Video {
    /// Its number among all streams of the file.
    pub stream: u32,
    pub codec: String,
    /// As it is to be shown: upright and with square pixels. May be odd.
    pub width: u32,
    pub height: u32,
    /// Degrees clockwise by which ffmpeg will turn the coded picture: 0, 90, 180 or 270.
    pub rotation: u16,
    pub sample_aspect: Ratio,
    pub pixel_format: String,
    pub bit_depth: u8,
    pub color: Color,
    pub is_interlaced: bool,
    pub timing: Timing,
}

/// Where the frames are in time, and the even grid they are put on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Of the stream's timestamps.
    pub time_base: Ratio,
    /// The first frame's timestamp, in `time_base`: zero of the output.
    pub first: i64,
    /// Frames per second of the output; at most 60.
    pub rate: Ratio,
    /// How many frames the output has: the grid covers the picture's whole duration.
    pub frames: u64,
    /// How many of them, at the end, repeat the last frame because the sound goes on.
    pub held: u64,
    /// How many frames the source has.
    pub source_frames: u64,
    /// Whether each frame of the source is one of the output, and the other way round.
    pub is_one_to_one: bool,
    /// By how much, at most, a frame is decoded before it is shown, in seconds. A seek must aim so much earlier.
    pub reorder_seconds: f64,
    /// Whether the file can be entered in the middle with timestamps that can be trusted. If not, it is encoded in one
    /// piece.
    pub can_seek: bool,
    /// When the key frames are decoded, in seconds on the file's own clock: for containers that know no key frames, where
    /// a seek lands anywhere. Empty for others; a plan has no more need of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<f64>,
    /// Where containers that know their key frames can be entered: from each of these times on, in seconds on the file's
    /// own clock, every frame can be had by decoding from the key frame there; and behind it is no other for a
    /// while (`timeline`). A plan has no more need of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Color {
    pub range: DynamicRange,
    /// ffmpeg's names; `None` where the file says nothing.
    pub primaries: Option<String>,
    pub transfer: Option<String>,
    pub matrix: Option<String>,
    pub is_full_range: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DynamicRange {
    Sdr,
    /// HDR10, and Dolby Vision with a base layer that is HDR10.
    Pq,
    Hlg,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Audio {
    pub stream: u32,
    pub codec: String,
    pub channels: u16,
    /// ffmpeg's name, such as `5.1(side)`.
    pub layout: Option<String>,
    pub sample_rate: u32,
    /// A BCP 47 tag where the file's can be turned into one, else `und`.
    pub language: String,
    pub title: Option<String>,
    pub is_default: bool,
    /// In seconds on the file's own clock.
    pub start: f64,
    pub duration: f64,
    /// How many the file has. `None` where a version that did not count them looked at it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subtitle {
    pub stream: u32,
    pub codec: String,
    pub language: String,
    pub title: Option<String>,
    pub is_default: bool,
    pub is_forced: bool,
    /// Text becomes WebVTT; pictures are left out, with a note.
    pub is_text: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chapter {
    /// Seconds from the beginning of the output.
    pub start: f64,
    pub end: f64,
    pub title: String,
}

impl Timing {
    /// Of the whole output, in seconds.
    pub fn duration(&self) -> f64 {
        self.frames as f64 / self.rate.to_f64()
    }

    /// Without what the last frame is held for, in seconds.
    pub fn picture_duration(&self) -> f64 {
        self.frames.saturating_sub(self.held) as f64 / self.rate.to_f64()
    }

    /// The first frame's time on the file's own clock, in seconds.
    pub fn first_seconds(&self) -> f64 {
        self.first as f64 * self.time_base.to_f64()
    }

    /// The last entry from which on frame `number` of the output can be had.
    pub fn entry_for(&self, number: u64) -> Option<f64> {
        // A frame within half a frame of a slot is shown there; a quarter leaves room for rounding.
        let shown = self.first_seconds() + (number as f64 + 0.25) / self.rate.to_f64();
        let after = self.entries.partition_point(|entry| *entry <= shown);
        after.checked_sub(1).map(|at| self.entries[at])
    }
}

impl Source {
    /// On the file's own clock, in seconds: where the output begins.
    pub fn zero(&self) -> f64 {
        match (&self.video, self.audio.first()) {
            (Some(video), _) => video.timing.first_seconds(),
            (None, Some(audio)) => audio.start,
            (None, None) => 0.0,
        }
    }

    /// Of the output, in seconds.
    pub fn duration(&self) -> f64 {
        match &self.video {
            Some(video) => video.timing.duration(),
            None => self.audio.iter().map(|audio| audio.duration).fold(0.0, f64::max),
        }
    }
}
