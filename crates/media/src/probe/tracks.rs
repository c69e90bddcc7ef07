//! Which streams become tracks, and what is said of each.

use super::packets::Extent;
use super::report::{Report, Stream};
use super::{Unusable, language};
use crate::ratio::Ratio;
use crate::source::{Audio, Subtitle};

/// More tracks than this are not made.
const MOST_AUDIO: usize = 32;

/// A start in the header that differs from the first packet's by no more than an encoder's delay is the better one, in
/// seconds.
const PRIMING: f64 = 0.2;

/// The streams to work on, by their place in the report.
#[derive(Debug, Default)]
pub struct Chosen {
    pub video: Option<usize>,
    pub audio: Vec<usize>,
    pub notes: Vec<String>,
}

impl Chosen {
    /// Of the pictures that are no cover: the default one, else the largest. All sound that ffmpeg understands.
    pub fn of(report: &Report) -> Result<Self, Unusable> {
        let streams = || report.streams.iter().enumerate().filter(|(_, stream)| stream.index.is_some());
        if streams().any(|(_, stream)| is_encrypted(stream)) {
            return Err(Unusable::Encrypted);
        }
        let videos: Vec<(usize, &Stream)> = streams().filter(|(_, stream)| stream.is("video")).collect();
        let sounds: Vec<(usize, &Stream)> = streams().filter(|(_, stream)| stream.is("audio")).collect();
        let (covers, pictures): (Vec<_>, Vec<_>) =
            videos.into_iter().partition(|(_, stream)| is_cover(stream));

        let mut chosen = Chosen { video: choose(&pictures)?, ..Chosen::default() };
        match (chosen.video, sounds.is_empty()) {
            (None, true) if covers.is_empty() => return Err(Unusable::NoStreams),
            (None, true) => return Err(Unusable::CoverOnly),
            (None | Some(_), _) => chosen.hear(&sounds)?,
        }
        chosen.remark(pictures.len(), covers.len(), report);
        Ok(chosen)
    }

    fn hear(&mut self, sounds: &[(usize, &Stream)]) -> Result<(), Unusable> {
        for (at, stream) in sounds {
            match unheard(stream) {
                None if self.audio.len() < MOST_AUDIO => self.audio.push(*at),
                None => self
                    .notes
                    .push(format!("stream {} is one sound too many and is left out", number(stream))),
                Some(reason) => self.notes.push(format!("stream {} ({reason}) is left out", number(stream))),
            }
        }
        match sounds.first() {
            Some((_, first)) if self.audio.is_empty() && self.video.is_none() => match first.codec() {
                Some(_) => Err(Unusable::NoSound),
                None => Err(Unusable::UnknownCodec { what: "sound", codec: codec_label(first) }),
            },
            _ => Ok(()),
        }
    }

    fn remark(&mut self, pictures: usize, covers: usize, report: &Report) {
        match pictures {
            0 | 1 => {}
            2 => self.notes.push("another picture stream is left out".into()),
            _ => self.notes.push(format!("{} other picture streams are left out", pictures - 1)),
        }
        if covers > 0 {
            self.notes.push("the cover picture is left out".into());
        }
        for subtitle in report.streams.iter().filter_map(subtitle).filter(|subtitle| !subtitle.is_text) {
            let Subtitle { stream, codec, language, .. } = subtitle;
            self.notes.push(format!(
                "subtitles of stream {stream} ({codec}, {language}) are not text and are left out"
            ));
        }
    }
}

/// The default picture, else the largest, among those whose codec is known.
fn choose(pictures: &[(usize, &Stream)]) -> Result<Option<usize>, Unusable> {
    let known = pictures.iter().filter(|(_, stream)| stream.codec().is_some());
    let best =
        known.max_by_key(|(at, stream)| (stream.has("default"), stream.area(), std::cmp::Reverse(*at)));
    match (best, pictures.first()) {
        (Some((at, _)), _) => Ok(Some(*at)),
        (None, Some((_, stream))) => {
            Err(Unusable::UnknownCodec { what: "picture", codec: codec_label(stream) })
        }
        (None, None) => Ok(None),
    }
}

fn is_cover(stream: &Stream) -> bool {
    stream.has("attached_pic") || stream.has("timed_thumbnails")
}

fn is_encrypted(stream: &Stream) -> bool {
    let is_media = stream.is("video") || stream.is("audio");
    let tag = stream.codec_tag_string.as_deref().unwrap_or_default();
    let is_marked = |data: &serde_json::Map<String, serde_json::Value>| {
        data.get("side_data_type")
            .and_then(|kind| kind.as_str())
            .is_some_and(|kind| kind.starts_with("Encryption"))
    };
    is_media
        && (matches!(tag, "encv" | "enca" | "drmi" | "drms") || stream.side_data_list.iter().any(is_marked))
}

/// Why a stream of sound cannot be used.
fn unheard(stream: &Stream) -> Option<String> {
    match (stream.codec(), stream.channels, stream.sample_rate) {
        (None, _, _) => Some(format!("sound coded as {}, which is unknown", codec_label(stream))),
        (Some(_), Some(1..), Some(1..)) => None,
        (Some(codec), _, _) => Some(format!("{codec} sound that cannot be decoded")),
    }
}

/// A name for a codec that ffprobe has none for.
fn codec_label(stream: &Stream) -> String {
    match stream.codec_tag_string.as_deref() {
        Some("vvc1" | "vvi1") => "VVC (H.266)".into(),
        Some("evc1") => "EVC".into(),
        Some("lvc1") => "LCEVC".into(),
        Some("apv1") => "APV".into(),
        Some("ac-4") => "Dolby AC-4".into(),
        Some("mha1" | "mhm1") => "MPEG-H 3D Audio".into(),
        Some(tag) if !tag.is_empty() && !tag.starts_with('[') => format!("`{tag}`"),
        _ => stream.codec_name.clone().unwrap_or_else(|| "something without a name".into()),
    }
}

fn number(stream: &Stream) -> u32 {
    stream.index.unwrap_or(0)
}

pub fn audio(stream: &Stream, extent: &Extent, time_base: Ratio) -> Audio {
    let tick = time_base.to_f64();
    let (first, end) = (extent.start as f64 * tick, extent.end as f64 * tick);
    // What the decoder drops of the first packet is in the header's start, not in the packet's time.
    let start =
        stream.start_time.filter(|start| (start - first).abs() < PRIMING && *start < end).unwrap_or(first);
    Audio {
        stream: number(stream),
        codec: stream.codec().unwrap_or_default().into(),
        channels: stream.channels.unwrap_or(0),
        layout: stream.channel_layout.clone().filter(|layout| layout != "unknown"),
        sample_rate: stream.sample_rate.unwrap_or(0),
        language: language::tag(stream.tag("language")),
        title: title(stream),
        is_default: stream.has("default"),
        start,
        duration: (end - start).max(0.0),
        packets: Some(extent.packets),
    }
}

pub fn subtitle(stream: &Stream) -> Option<Subtitle> {
    let codec = stream.codec().filter(|_| stream.is("subtitle"))?;
    Some(Subtitle {
        stream: stream.index?,
        codec: codec.into(),
        language: language::tag(stream.tag("language")),
        title: title(stream),
        is_default: stream.has("default"),
        is_forced: stream.has("forced"),
        is_text: is_text(codec),
    })
}

/// The codecs that ffmpeg turns into text. Teletext and TTML it does not, in a common build.
fn is_text(codec: &str) -> bool {
    matches!(
        codec,
        "subrip"
            | "srt"
            | "ass"
            | "ssa"
            | "webvtt"
            | "mov_text"
            | "text"
            | "eia_608"
            | "sami"
            | "realtext"
            | "microdvd"
            | "stl"
            | "jacosub"
            | "mpl2"
            | "pjs"
            | "subviewer"
            | "subviewer1"
            | "vplayer"
    )
}

/// `handler_name` does not count: programs write it, not people.
fn title(stream: &Stream) -> Option<String> {
    stream.tag("title").map(|title| title.chars().filter(|c| !c.is_control()).take(200).collect())
}
