//! What tasks commit: the files they made, with all that the playlists say about them.

use crate::ratio::Ratio;
use serde::{Deserialize, Serialize};

/// A file that is complete. `path` is relative to the folder of the execution that made it, and is the same in the
/// published generation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// One rendition of picture or sound, or a run of its segments that one task made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Track {
    /// `1080p`, `audio-en`: also the name of its folder.
    pub name: String,
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
