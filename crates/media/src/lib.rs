//! What Vodmill knows of video: how to ask ffprobe, what to tell ffmpeg, and how to prove what came out.
//!
//! Nothing here knows of a queue, and nothing here starts a process: a function makes the arguments of a command, or
//! reads what a command left behind. Who runs it, within which limits, is the worker's business.
//!
//! | file | what |
//! | --- | --- |
//! | [`source`] | a video file as Vodmill understands it; [`probe`] finds it out, [`timeline`] from the times of its frames |
//! | [`settings`], [`plan`] | what a person may choose, and everything that follows from it; [`ladder`] chooses the sizes, [`chunk`] what is encoded at once |
//! | [`limits`], [`memory`] | how much of one file is taken on, and how much memory that takes |
//! | [`command`] | command lines of ffmpeg; [`picture`] writes their filters, [`encoder`] their codecs, [`progress`] reads how far they are |
//! | [`mp4`] | ffmpeg's files cut into the segments that are published; [`manifest`] is what is then known of them |
//! | [`playlist`], [`master`], [`dash`] | what players are told of them: HLS for a track, HLS for all of them, and DASH |
//! | [`check`] | whether a stream, ours or another's, is what it says |
//! | [`sample`], [`sound`] | frames and sound of a rendition compared with those of the source |
//! | [`vtt`] | subtitles along the segments, and the index of thumbnails |

pub mod check;
pub mod chunk;
pub mod command;
pub mod dash;
pub mod encoder;
pub mod kind;
pub mod ladder;
mod level;
pub mod limits;
pub mod master;
pub mod memory;
pub mod mp4;
pub mod picture;
pub mod plan;
pub mod playlist;
pub mod probe;
pub mod progress;
pub mod sample;
pub mod settings;
pub mod sound;
pub mod source;
pub mod timeline;
pub mod vtt;

pub use pipeline::{manifest, ratio};
