//! How much memory a command of ffmpeg takes, estimated from what it is to do: by frames it keeps, and their size.
//!
//! Measured with the presets that are used by default: with a thread each, x264, x265 and SVT-AV1 keep some 120 to 130
//! frames of their picture, for looking ahead, and a decoder with the filters behind it some 30.

use crate::encoder::Codec;
use crate::manifest::{Shape, Track};
use crate::plan::{Picture, Piece, Plan};
use crate::source::Video;

/// Frames of its own size that an encoder keeps.
const KEPT_BY_ENCODER: u64 = 150;

/// More threads work on more frames at once.
const KEPT_BY_THREAD: u64 = 10;

/// Frames of the source's size that decoder and filters keep.
const KEPT_BY_DECODER: u64 = 40;

/// The program itself.
const PROGRAM: u64 = 128 << 20;

/// What an encoder takes however small its picture is.
const ENCODER: u64 = 16 << 20;
const SVT_AV1: u64 = 192 << 20;

/// For encoding one piece, in bytes.
pub fn encoding(picture: &Picture, video: &Video, piece: &Piece) -> u64 {
    let frames = KEPT_BY_ENCODER + KEPT_BY_THREAD * u64::from(picture.manner.threads);
    let own = match piece.group.codec {
        Codec::H264 | Codec::Hevc => ENCODER,
        Codec::Av1 => SVT_AV1,
    };
    let rungs = picture.rungs_of_group(&piece.group);
    let encoders: u64 =
        rungs.map(|rung| own.saturating_add(frame(rung.width, rung.height, 1).saturating_mul(frames))).sum();
    decoding(video).saturating_add(encoders)
}

/// For decoding the source, in bytes.
pub fn decoding(video: &Video) -> u64 {
    let depth = if video.bit_depth > 8 { 2 } else { 1 };
    PROGRAM.saturating_add(frame(video.width, video.height, depth).saturating_mul(KEPT_BY_DECODER))
}

/// For decoding the first and the last segment of every rendition at once, in bytes.
pub fn checking(plan: &Plan) -> u64 {
    let rungs = plan.picture.iter().flat_map(|picture| &picture.rungs);
    let decoders = rungs.map(|rung| 2 * KEPT_BY_DECODER * frame(rung.width, rung.height, 1));
    PROGRAM.saturating_add(decoders.sum())
}

/// For decoding frames of these tracks at so many places at once, in bytes.
pub fn decoding_tracks(tracks: &[&Track], places: usize) -> u64 {
    let one = |track: &&Track| match track.shape {
        Shape::Video { width, height, .. } => KEPT_BY_DECODER * frame(width, height, 1),
        Shape::Audio { .. } => 0,
    };
    let all: u64 = tracks.iter().map(one).sum();
    PROGRAM.saturating_add(all.saturating_mul(places as u64))
}

/// With half the colour in each direction, as what is encoded; the source may have more, which the factor above allows.
fn frame(width: u32, height: u32, bytes_per_sample: u64) -> u64 {
    u64::from(width) * u64::from(height) * 3 / 2 * bytes_per_sample
}
