//! What a person may choose about the output. Everything has a default that just works.

use crate::encoder::{Codec, Family};
use crate::ladder::{self, Step};
use serde::{Deserialize, Serialize};

/// As a file gives them (`--settings FILE`), and as a job's spec carries them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Each rung is made in each of them.
    pub codecs: Vec<Codec>,
    /// The encoder's own word for how hard it tries. Each encoder has its default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
    /// Which encoders make the picture.
    pub encoder: Family,
    /// A segment's length; made of whole groups of pictures of `gop_seconds` each.
    pub segment_seconds: f64,
    pub gop_seconds: f64,
    /// How many tasks are expected to run side by side; chunks are sized for it.
    pub parallel: u32,
    /// Tracks with more than two channels are also kept as they are, beside the stereo that is always made.
    pub surround: bool,
    pub thumbnails: bool,
    /// Also a plain file to download.
    pub mp4: bool,
    /// Also a manifest for DASH players.
    pub dash: bool,
    /// Also compare each rung with the source.
    pub measure: bool,
    #[serde(rename = "rung")]
    pub rungs: Vec<Step>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            codecs: vec![Codec::H264],
            preset: None,
            encoder: Family::Software,
            segment_seconds: 6.0,
            gop_seconds: 2.0,
            parallel: 1,
            surround: false,
            thumbnails: true,
            mp4: false,
            dash: false,
            measure: false,
            rungs: ladder::standard(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Bad {
    #[error("no codec is given; choose among h264, hevc and av1")]
    NoCodec,
    #[error("the codec {0} is given twice")]
    CodecTwice(Codec),
    #[error("`{name}` is {value}; it may be {least} to {most}")]
    OutOfRange { name: &'static str, value: f64, least: f64, most: f64 },
    #[error("segment_seconds is {segment}, which is not a multiple of gop_seconds, {gop}")]
    UnevenSegments { segment: f64, gop: f64 },
    #[error("the preset `{0}` is not usable; a preset is one word of letters and digits")]
    Preset(String),
    #[error("the ladder has no rung")]
    NoRung,
    #[error("the rung name `{0}` is not usable; use 1 to 32 letters, digits, `-` and `_`")]
    RungName(String),
    #[error("two rungs are called `{0}`")]
    RungTwice(String),
}

impl Settings {
    pub fn check(&self) -> Result<(), Bad> {
        let mut seen = Vec::new();
        for codec in &self.codecs {
            if seen.contains(codec) {
                return Err(Bad::CodecTwice(*codec));
            }
            seen.push(*codec);
        }
        if seen.is_empty() {
            return Err(Bad::NoCodec);
        }
        within("segment_seconds", self.segment_seconds, 1.0, 60.0)?;
        within("gop_seconds", self.gop_seconds, 0.5, 20.0)?;
        within("parallel", self.parallel.into(), 1.0, 100_000.0)?;
        let groups = self.segment_seconds / self.gop_seconds;
        if (groups - groups.round()).abs() > 1e-6 || groups < 0.5 {
            return Err(Bad::UnevenSegments { segment: self.segment_seconds, gop: self.gop_seconds });
        }
        if let Some(preset) = &self.preset
            && !(1..=32).contains(&preset.len()) | !preset.chars().all(|c| c.is_ascii_alphanumeric())
        {
            return Err(Bad::Preset(preset.clone()));
        }
        self.check_rungs()
    }

    fn check_rungs(&self) -> Result<(), Bad> {
        if self.rungs.is_empty() {
            return Err(Bad::NoRung);
        }
        for (at, rung) in self.rungs.iter().enumerate() {
            let is_usable = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            if !(1..=32).contains(&rung.name.len()) || !rung.name.chars().all(is_usable) {
                return Err(Bad::RungName(rung.name.clone()));
            }
            if self.rungs[..at].iter().any(|other| other.name == rung.name) {
                return Err(Bad::RungTwice(rung.name.clone()));
            }
            within("height", rung.height.into(), 16.0, 8640.0)?;
            within("kbps", rung.kbps.into(), 10.0, 1_000_000.0)?;
            within("crf", rung.crf.unwrap_or(20).into(), 0.0, 63.0)?;
        }
        Ok(())
    }
}

fn within(name: &'static str, value: f64, least: f64, most: f64) -> Result<(), Bad> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(Bad::OutOfRange { name, value, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absurd_is_refused_with_its_reason() {
        let refused = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };

        assert_eq!(Settings::default().check(), Ok(()));
        assert!(refused(|s| s.codecs.clear()).contains("no codec"));
        assert!(refused(|s| s.codecs = vec![Codec::Av1, Codec::Av1]).contains("twice"));
        assert!(refused(|s| s.segment_seconds = f64::NAN).contains("segment_seconds"));
        assert!(refused(|s| s.segment_seconds = 5.0).contains("not a multiple"));
        assert!(refused(|s| s.preset = Some("slow -y".into())).contains("one word"));
        assert!(refused(|s| s.rungs.clear()).contains("no rung"));
        assert!(refused(|s| s.rungs[0].name = "../x".into()).contains("not usable"));
        assert!(refused(|s| s.rungs[1].name = s.rungs[0].name.clone()).contains("two rungs"));
    }
}
