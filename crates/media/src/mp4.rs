//! Fragmented MP4: read with suspicion, written to the tick.
//!
//! ffmpeg encodes a chunk into one plain fragmented file; [`cut`] and [`cut_audio`] write from it the segments that are
//! published. Nothing is trusted on the way in: sizes are checked before memory is taken, and media data is copied,
//! never held.
//!
//! | file | what |
//! | --- | --- |
//! | `bytes` | a slice read from front to back, and the boxes in it |
//! | `codec` | a sample entry's configuration, and its name for playlists |
//! | `movie` | `moov`: the tracks and their defaults |
//! | `fragment` | `moof`: the samples |
//! | `read` | a file, box by box |
//! | `write` | the init segment, and fragments |
//! | `output` | a file that is hashed while it is written |
//! | `segment` | a segment while it is written |
//! | `cut`, `cut_audio` | a whole file into segments |

mod bytes;
mod codec;
mod cut;
mod cut_audio;
mod fragment;
mod movie;
mod output;
mod read;
mod segment;
mod write;

pub use codec::Entry;
pub use cut::{Cut, cut};
pub use cut_audio::{CutAudio, cut_audio};
pub use fragment::Sample;
pub use movie::{Kind, Movie, Track};
pub use read::{Fragment, Reader};

use std::io;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("not a usable MP4 file: {0}")]
    Malformed(String),
    #[error("{0} is not a codec that can be packaged")]
    Codec(String),
    #[error("{found} frames where {expected} were expected")]
    Frames { found: u64, expected: u64 },
    #[error("{found} packets of sound where {expected} were expected")]
    Packets { found: u64, expected: u64 },
    #[error("frame {frame} lasts {found} ticks, not {expected}")]
    Uneven { frame: u64, found: u64, expected: u64 },
    #[error("frame {frame} begins a segment but is no key frame")]
    NoKeyFrame { frame: u64 },
    #[error("the pictures from key frame {frame} to the next are not a closed group")]
    OpenGop { frame: u64 },
    #[error("there is a hole in the sound after packet {packet}")]
    Hole { packet: u64 },
    #[error("reading or writing media")]
    Io(#[from] io::Error),
}

fn malformed(why: impl Into<String>) -> Error {
    Error::Malformed(why.into())
}
