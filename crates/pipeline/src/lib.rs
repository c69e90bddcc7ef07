//! The transcoding job: its stages, the names they use, and what each stage returns.
//!
//! Workers on other machines send these types over the network. Everything here checks itself when it is read, so a value
//! of one of these types can be used as a path or as an argument.
//!
//! | file | what |
//! | --- | --- |
//! | [`stage`] | the kinds of stages, and which of them only a server runs |
//! | [`name`] | names and relative paths that cannot lead out of their folder |
//! | [`manifest`] | tracks, segments and files, with all that the playlists say about them |
//! | [`result`] | what the stages return, and the comparison with what was planned |
//!
//! To add a stage: add it to [`StageKind`]; the compiler lists the places that have to know it.

pub mod codec;
pub mod manifest;
pub mod name;
pub mod ratio;
pub mod result;
pub mod stage;

pub use name::{BadName, FilePath, Name};
pub use result::{BadResult, SubtitleResult, ThumbnailResult, TrackResult};
pub use stage::StageKind;
