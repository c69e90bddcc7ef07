//! What a check comes to.

use super::finding::Finding;
use super::part::Kind;
use super::rendition::{Container, Rendition};
use super::rule::Level;
use crate::manifest::Artifact;
use serde::Serialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    pub is_good: bool,
    /// The playlist that was opened, relative to the folder.
    pub playlist: String,
    /// Errors first.
    pub findings: Vec<Finding>,
    pub measured: Measured,
}

#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    pub renditions: Vec<Measures>,
    /// Files that are as they were committed.
    pub files_proved: u64,
    /// Segments that were decoded.
    pub decoded: u64,
}

/// One rendition.
#[derive(Debug, Clone, Serialize)]
pub struct Measures {
    pub name: String,
    pub playlist: String,
    pub kind: &'static str,
    /// All its codecs, as CODECS lists them.
    pub codec: String,
    pub width: Option<u32>,
    pub height: Option<u32>,
    pub channels: Option<u16>,
    pub frame_rate: Option<f64>,
    /// In seconds; as promised where it could not be measured.
    pub duration: f64,
    /// Pictures, or packets of sound.
    pub frames: u64,
    pub segments: u64,
    pub bytes: u64,
    /// Bits per second.
    pub average_bitrate: u64,
    pub peak_bitrate: u64,
}

impl Verdict {
    /// No errors; warnings are no errors.
    pub fn is_good(&self) -> bool {
        self.errors() == 0
    }

    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.level == Level::Error).count()
    }

    pub fn warnings(&self) -> usize {
        self.findings.len() - self.errors()
    }

    /// What is kept beside a commit to show later that the stream was checked, and how: small whatever its size.
    /// `artifacts` are those the check expected; `tools` are names and versions.
    pub fn proof(&self, artifacts: &[Artifact], tools: &BTreeMap<String, String>) -> Value {
        let renditions: BTreeMap<_, _> = self
            .measured
            .renditions
            .iter()
            .map(|measures| {
                let counts = json!({
                    "kind": measures.kind,
                    "segments": measures.segments,
                    "frames": measures.frames,
                    "seconds": (measures.duration * 1000.0).round() / 1000.0,
                    "average": measures.average_bitrate,
                    "peak": measures.peak_bitrate,
                });
                (&measures.playlist, counts)
            })
            .collect();
        let warnings = self.findings.iter().filter(|finding| finding.level == Level::Warning);
        json!({
            "is_good": self.is_good(),
            "rules": super::RULES.len(),
            "errors": self.errors(),
            "warnings": warnings.map(|finding| finding.rule).collect::<std::collections::BTreeSet<_>>(),
            "renditions": renditions,
            "files": self.measured.files_proved,
            "decoded": self.measured.decoded,
            "manifest": manifest_hash(artifacts),
            "tools": tools,
        })
    }
}

/// Of the list of files, whatever its order.
fn manifest_hash(artifacts: &[Artifact]) -> String {
    let mut lines: Vec<_> =
        artifacts.iter().map(|file| format!("{} {} {}\n", file.sha256, file.bytes, file.path)).collect();
    lines.sort_unstable();
    hex::encode(Sha256::digest(lines.concat()))
}

impl Measures {
    pub(super) fn of(rendition: &Rendition) -> Self {
        let video = rendition.description(Kind::Video);
        let audio = rendition.description(Kind::Audio);
        let whole = rendition.whole(if video.is_some() { Kind::Video } else { Kind::Audio });
        let (average_bitrate, peak_bitrate) = rendition.bitrates().unwrap_or_default();
        let codecs: Vec<_> = rendition.tracks.iter().filter_map(|track| track.codec.clone()).collect();
        Measures {
            name: rendition.name.clone(),
            playlist: rendition.playlist.clone(),
            kind: kind(rendition),
            codec: codecs.join(","),
            width: video.and_then(|track| track.size).map(|size| size.0),
            height: video.and_then(|track| track.size).map(|size| size.1),
            channels: audio.and_then(|track| track.channels),
            frame_rate: whole.filter(|_| video.is_some()).map(|whole| (whole.rate * 1000.0).round() / 1000.0),
            duration: whole.map_or_else(|| rendition.promised(), |whole| whole.duration),
            frames: whole.map_or(0, |whole| whole.samples),
            segments: rendition.media.segments.len() as u64,
            bytes: rendition.bytes(),
            average_bitrate,
            peak_bitrate,
        }
    }
}

fn kind(rendition: &Rendition) -> &'static str {
    match (rendition.has(Kind::Video), rendition.has(Kind::Audio)) {
        _ if rendition.media.is_i_frames_only => "i_frames",
        _ if rendition.container == Container::WebVtt => "subtitles",
        (true, true) => "muxed",
        (true, false) => "video",
        (false, true) => "audio",
        (false, false) => "unknown",
    }
}
