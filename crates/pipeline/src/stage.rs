//! The kinds of stages a transcoding job has.

use std::fmt;
use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StageKind {
    /// Fetches a file that a person named by its address.
    Ingest,
    /// Finds out what the file is.
    Probe,
    /// Decides everything that follows from that, and lists the tasks of the stages below.
    Plan,
    /// Encodes one chunk in the renditions of a group.
    Encode,
    /// As [`StageKind::Encode`], of a rendition that the stream can do without.
    EncodeOptional,
    /// Encodes one track of sound.
    Audio,
    /// Converts one track of text.
    Subtitles,
    /// Makes the small pictures.
    Thumbnails,
    /// Puts the generation together and proves it.
    Package,
    /// Compares one rendition with the source, for the report.
    Measure,
    /// Moves the generation to its final name.
    Publish,
}

impl StageKind {
    pub const ALL: [StageKind; 11] = [
        StageKind::Ingest,
        StageKind::Probe,
        StageKind::Plan,
        StageKind::Encode,
        StageKind::EncodeOptional,
        StageKind::Audio,
        StageKind::Subtitles,
        StageKind::Thumbnails,
        StageKind::Package,
        StageKind::Measure,
        StageKind::Publish,
    ];

    /// Also the capability of a worker that can do it.
    pub const fn as_str(self) -> &'static str {
        match self {
            StageKind::Ingest => "ingest",
            StageKind::Probe => "probe",
            StageKind::Plan => "plan",
            StageKind::Encode => "encode",
            StageKind::EncodeOptional => "encode_optional",
            StageKind::Audio => "audio",
            StageKind::Subtitles => "subtitles",
            StageKind::Thumbnails => "thumbnails",
            StageKind::Package => "package",
            StageKind::Measure => "measure",
            StageKind::Publish => "publish",
        }
    }

    /// Whether only a worker inside a server runs it. These stages decide what is published, read secrets such as the
    /// passwords of addresses, or return what nothing can check. A worker on another machine is never given one.
    pub const fn is_server_only(self) -> bool {
        match self {
            StageKind::Ingest
            | StageKind::Probe
            | StageKind::Plan
            | StageKind::Subtitles
            | StageKind::Thumbnails
            | StageKind::Package
            | StageKind::Measure
            | StageKind::Publish => true,
            StageKind::Encode | StageKind::EncodeOptional | StageKind::Audio => false,
        }
    }

    /// The kinds that only a server runs.
    pub fn server_only() -> impl Iterator<Item = StageKind> {
        Self::ALL.into_iter().filter(|kind| kind.is_server_only())
    }

    /// Whether it encodes pictures.
    pub const fn is_picture(self) -> bool {
        matches!(self, StageKind::Encode | StageKind::EncodeOptional)
    }
}

impl fmt::Display for StageKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is no stage of a transcoding job")]
pub struct UnknownStage;

impl FromStr for StageKind {
    type Err = UnknownStage;

    fn from_str(text: &str) -> Result<Self, UnknownStage> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(UnknownStage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_is_written() {
        for kind in StageKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        assert_eq!("encode ".parse::<StageKind>(), Err(UnknownStage));
    }

    #[test]
    fn only_encoding_leaves_the_server() {
        let elsewhere: Vec<_> = StageKind::ALL.into_iter().filter(|kind| !kind.is_server_only()).collect();

        assert_eq!(elsewhere, [StageKind::Encode, StageKind::EncodeOptional, StageKind::Audio]);
    }
}
