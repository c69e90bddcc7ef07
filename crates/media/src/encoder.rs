//! Codecs, the encoders that make them, and how each is told the same thing.

use crate::ladder::Rung;
use crate::ratio::Ratio;
use pipeline::Name;
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Codec {
    H264,
    Hevc,
    Av1,
}

/// Who encodes: the processor, or a kind of hardware.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Software,
    /// Hardware that is there when a job is submitted, else the processor. Whoever submits decides; undecided, it is as
    /// [`Family::Software`].
    Auto,
    Nvenc,
    Qsv,
    Vaapi,
    Videotoolbox,
}

impl Codec {
    pub const ALL: [Codec; 3] = [Codec::H264, Codec::Hevc, Codec::Av1];

    pub const fn as_str(self) -> &'static str {
        match self {
            Codec::H264 => "h264",
            Codec::Hevc => "hevc",
            Codec::Av1 => "av1",
        }
    }

    /// How MP4 calls it, with parameter sets in the init segment alone or also in the samples.
    pub const fn sample_entries(self) -> &'static [&'static str] {
        match self {
            Codec::H264 => &["avc1", "avc3"],
            Codec::Hevc => &["hvc1", "hev1"],
            Codec::Av1 => &["av01"],
        }
    }

    /// About the same to the eye in each.
    pub const fn default_crf(self) -> u8 {
        match self {
            Codec::H264 => 22,
            Codec::Hevc => 25,
            Codec::Av1 => 34,
        }
    }

    /// By how many frames decoding runs ahead of showing, at most.
    pub const fn delay(self) -> u32 {
        match self {
            Codec::H264 | Codec::Hevc => 2,
            Codec::Av1 => 0,
        }
    }

    /// How much of H.264's bitrate it needs for the same picture.
    pub const fn thrift(self) -> f64 {
        match self {
            Codec::H264 => 1.0,
            Codec::Hevc => 0.7,
            Codec::Av1 => 0.6,
        }
    }
}

impl Family {
    pub const HARDWARE: [Family; 4] = [Family::Nvenc, Family::Qsv, Family::Vaapi, Family::Videotoolbox];

    pub const fn as_str(self) -> &'static str {
        match self {
            Family::Software => "software",
            Family::Auto => "auto",
            Family::Nvenc => "nvenc",
            Family::Qsv => "qsv",
            Family::Vaapi => "vaapi",
            Family::Videotoolbox => "videotoolbox",
        }
    }

    /// ffmpeg's name of the encoder, which is also the capability of a worker that has it.
    pub fn with_software() -> impl Iterator<Item = Family> {
        [Family::Software].into_iter().chain(Family::HARDWARE)
    }

    pub fn encoder(self, codec: Codec) -> String {
        match (self, codec) {
            (Family::Software | Family::Auto, Codec::H264) => "libx264".into(),
            (Family::Software | Family::Auto, Codec::Hevc) => "libx265".into(),
            (Family::Software | Family::Auto, Codec::Av1) => "libsvtav1".into(),
            (hardware, codec) => format!("{codec}_{hardware}"),
        }
    }
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What all rungs of a plan have in common.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manner {
    pub family: Family,
    pub preset: Option<String>,
    /// Frames from one picture that stands alone to the next; never more, never fewer.
    pub gop: u32,
    pub rate: Ratio,
    /// Of each encoder.
    pub threads: u32,
}

/// Where an encoder begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begins {
    AtFirst,
    /// With another's frames before its own.
    Midway,
}

/// The arguments that make `rung` of what comes out of the filter graph.
pub fn arguments(rung: &Rung, manner: &Manner, begins: Begins) -> Vec<String> {
    let encoder = manner.family.encoder(rung.codec);
    let mut args = words(["-c:v", &encoder]);
    match (manner.family, rung.codec) {
        (Family::Software | Family::Auto, Codec::H264) => x264(&mut args, rung, manner, begins),
        (Family::Software | Family::Auto, Codec::Hevc) => x265(&mut args, rung, manner, begins),
        (Family::Software | Family::Auto, Codec::Av1) => svtav1(&mut args, rung, manner),
        (family, _) => hardware(&mut args, family, rung, manner),
    }
    if rung.codec == Codec::Hevc {
        args.extend(words(["-tag:v", "hvc1"]));
    }
    args
}

/// How long the decoder's buffer may be, in seconds of the largest bitrate.
const BUFFER_SECONDS: f64 = 1.5;

/// How much of the buffer is full where a chunk takes over. Encoders think 0.9 of it if they are not told, which is true at
/// the beginning of a video; where the bitrate is at its limit it is about this much, and a chunk that believed
/// otherwise would overshoot.
const FULL_MIDWAY: f64 = 0.6;

fn buffer_kbit(rung: &Rung) -> u32 {
    (f64::from(rung.max_kbps) * BUFFER_SECONDS) as u32
}

fn x264(args: &mut Vec<String>, rung: &Rung, manner: &Manner, begins: Begins) {
    let preset = manner.preset.as_deref().unwrap_or("fast");
    let gop = manner.gop.to_string();
    args.extend(words(["-preset", preset, "-profile:v", "high", "-pix_fmt", "yuv420p"]));
    args.extend(words(["-crf", &rung.crf.to_string()]));
    args.extend(capped(rung));
    if begins == Begins::Midway {
        let kbit = (f64::from(buffer_kbit(rung)) * FULL_MIDWAY) as u32;
        args.extend(words(["-rc_init_occupancy", &kilo(kbit)]));
    }
    args.extend(words(["-g", &gop, "-keyint_min", &gop, "-sc_threshold", "0"]));
    args.extend(words(["-threads", &manner.threads.to_string()]));
}

/// Without `info` the first chunk and the others have one init segment: x265 would write into it what it was told.
fn x265(args: &mut Vec<String>, rung: &Rung, manner: &Manner, begins: Begins) {
    let preset = manner.preset.as_deref().unwrap_or("fast");
    let (gop, threads) = (manner.gop, manner.threads);
    let pools = if threads == 1 { "none".into() } else { threads.to_string() };
    let full = match begins {
        Begins::AtFirst => String::new(),
        Begins::Midway => format!("vbv-init={FULL_MIDWAY}:"),
    };
    let params = format!(
        "keyint={gop}:min-keyint={gop}:scenecut=0:open-gop=0:repeat-headers=0:vbv-maxrate={}:vbv-bufsize={}:{full}\
         pools={pools}:frame-threads={threads}:info=0:log-level=error",
        rung.max_kbps,
        buffer_kbit(rung),
    );
    args.extend(words(["-preset", preset, "-pix_fmt", "yuv420p", "-crf", &rung.crf.to_string()]));
    args.extend(words(["-x265-params", &params]));
}

fn svtav1(args: &mut Vec<String>, rung: &Rung, manner: &Manner) {
    let preset = manner.preset.as_deref().unwrap_or("8");
    let params = format!("scd=0:lp={}:mbr={}", manner.threads, rung.max_kbps);
    args.extend(words(["-preset", preset, "-pix_fmt", "yuv420p", "-crf", &rung.crf.to_string()]));
    args.extend(words(["-g", &manner.gop.to_string(), "-svtav1-params", &params]));
}

/// None of these could be tried where this was written; a trial frame decides whether one is used at all.
fn hardware(args: &mut Vec<String>, family: Family, rung: &Rung, manner: &Manner) {
    let (gop, quality) = (manner.gop.to_string(), rung.crf.to_string());
    args.extend(match family {
        Family::Nvenc => {
            let preset = manner.preset.as_deref().unwrap_or("p5");
            words(["-preset", preset, "-rc", "vbr", "-cq", &quality, "-no-scenecut", "1", "-forced-idr", "1"])
        }
        Family::Qsv => words(["-global_quality", &quality, "-forced_idr", "1"]),
        Family::Vaapi => {
            words(["-rc_mode", "QVBR", "-global_quality", &quality, "-b:v", &kilo(rung.max_kbps / 2)])
        }
        Family::Videotoolbox => words(["-allow_sw", "0", "-b:v", &kilo(rung.max_kbps * 2 / 3)]),
        Family::Software | Family::Auto => Vec::new(),
    });
    args.extend(capped(rung));
    args.extend(words(["-g", &gop, "-keyint_min", &gop]));
}

fn capped(rung: &Rung) -> Vec<String> {
    words(["-maxrate", &kilo(rung.max_kbps), "-bufsize", &kilo(buffer_kbit(rung))])
}

fn kilo(kbps: u32) -> String {
    format!("{kbps}k")
}

/// What the filter graph must end with before this family's encoders take the picture.
pub const fn upload(family: Family) -> Option<&'static str> {
    match family {
        Family::Vaapi => Some("format=nv12,hwupload"),
        Family::Software | Family::Auto | Family::Nvenc | Family::Qsv | Family::Videotoolbox => None,
    }
}

/// What must stand before the inputs.
pub fn device(family: Family) -> Vec<String> {
    match family {
        Family::Vaapi => words(["-vaapi_device", "/dev/dri/renderD128"]),
        Family::Software | Family::Auto | Family::Nvenc | Family::Qsv | Family::Videotoolbox => Vec::new(),
    }
}

/// Encodes one frame, told what it will be told in earnest: only what really works is believed.
pub fn trial(family: Family, codec: Codec) -> Vec<String> {
    let rate = Ratio { num: 25, den: 1 };
    let manner = Manner { family, preset: None, gop: 50, rate, threads: 1 };
    let crf = codec.default_crf();
    let rung = Rung {
        name: Name::nearest("trial"),
        codec,
        width: 256,
        height: 256,
        crf,
        max_kbps: 500,
        optional: false,
    };
    let mut args = words(["ffmpeg", "-nostdin", "-hide_banner", "-v", "error"]);
    args.extend(device(family));
    args.extend(words(["-f", "lavfi", "-i", "color=black:size=256x256:rate=25", "-frames:v", "1"]));
    args.extend(upload(family).into_iter().flat_map(|filter| words(["-vf", filter])));
    args.extend(arguments(&rung, &manner, Begins::AtFirst));
    args.extend(words(["-f", "null", "-"]));
    args
}

pub(crate) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(String::from).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(family: Family, codec: Codec, threads: u32) -> String {
        told_where_it_begins(family, codec, threads, Begins::AtFirst)
    }

    fn told_where_it_begins(family: Family, codec: Codec, threads: u32, begins: Begins) -> String {
        let rung = Rung {
            name: "720p".parse().unwrap(),
            codec,
            width: 1280,
            height: 720,
            crf: 23,
            max_kbps: 2000,
            optional: false,
        };
        let rate = Ratio { num: 25, den: 1 };
        arguments(&rung, &Manner { family, preset: None, gop: 50, rate, threads }, begins).join(" ")
    }

    #[test]
    fn every_encoder_is_told_where_pictures_stand_alone_and_how_much_it_may_take() {
        for family in Family::with_software() {
            for codec in Codec::ALL {
                let told = told(family, codec, 1);
                assert!(told.contains("-g 50") || told.contains("keyint=50"), "{told}");
                assert!(told.contains("2000"), "{told}");
                assert!(told.starts_with(&format!("-c:v {}", family.encoder(codec))), "{told}");
            }
        }
    }

    #[test]
    fn a_trial_says_what_encoding_will_say() {
        for family in Family::with_software() {
            for codec in Codec::ALL {
                let said = |told: &str| {
                    told.split(' ').filter(|word| word.starts_with('-')).collect::<Vec<_>>().join(" ")
                };
                let trial = trial(family, codec).join(" ");
                assert!(said(&trial).contains(&said(&told(family, codec, 1))), "{trial}");
            }
        }
    }

    #[test]
    fn software_encoders_use_as_many_threads_as_they_are_given() {
        assert!(told(Family::Software, Codec::H264, 2).contains("-threads 2"));
        assert!(told(Family::Software, Codec::Hevc, 1).contains("pools=none:frame-threads=1"));
        assert!(told(Family::Software, Codec::Av1, 2).contains("lp=2"));
    }

    #[test]
    fn only_an_encoder_that_takes_over_is_told_how_full_the_buffer_is() {
        let told = |codec, begins| told_where_it_begins(Family::Software, codec, 1, begins);

        assert!(told(Codec::H264, Begins::Midway).contains("-bufsize 3000k -rc_init_occupancy 1800k"));
        assert!(told(Codec::Hevc, Begins::Midway).contains("vbv-bufsize=3000:vbv-init=0.6:"));
        for codec in [Codec::H264, Codec::Hevc] {
            assert!(!told(codec, Begins::AtFirst).contains("init"), "{codec}");
        }
    }
}
