//! What Vodmill knows of video: how to ask ffprobe, what to tell ffmpeg, and how to prove what came out.
//!
//! Nothing here knows of a queue, and nothing here starts a process: a function makes the arguments of a command, or
//! reads what a command left behind. Who runs it, within which limits, is the worker's business.
//!
//! | file | what |
//! | --- | --- |
//! | [`source`] | a video file as Vodmill understands it; [`probe`] finds it out, [`timeline`] from the times of its frames |
//! | [`mp4`] | ffmpeg's files cut into the segments that are published; [`manifest`] is what is then known of them |
//! | [`playlist`], [`master`], [`dash`] | what players are told of them: HLS for a track, HLS for all of them, and DASH |

pub mod dash;
pub mod manifest;
pub mod master;
pub mod mp4;
pub mod playlist;
pub mod probe;
pub mod ratio;
pub mod source;
pub mod timeline;
