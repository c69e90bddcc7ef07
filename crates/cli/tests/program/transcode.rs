//! `vodmill transcode` from end to end: media made with ffmpeg goes through the program as a person runs it, and what
//! comes out is played by another ffmpeg and measured.
//!
//! | file | what |
//! | --- | --- |
//! | [`studio`] | makes sources, and runs the program on them |
//! | [`stream`] | what came out: its playlists, and what is seen and heard when it is played |
//! | `exact` | no frame is lost or doubled, at any seam, from any container |
//! | `picture`, `time`, `sound`, `text` | the oddities of files, by what they touch |
//! | `outputs` | what a person may ask for |
//! | `refusals`, `limits` | what cannot become a stream, and what asks for too much |
//!
//! To add an oddity: make the source in a test named for the rule (`docs/input.md` states it), and say what must be
//! seen. [`stream::Stream::play`] checks for every stream what holds for all of them.

mod exact;
mod limits;
mod outputs;
mod picture;
mod refusals;
mod sound;
pub mod stream;
pub mod studio;
mod text;
mod time;
