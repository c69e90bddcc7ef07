//! The plan: everything that is decided before a frame is encoded, so that tasks need only follow it.

use crate::chunk::{self, Chunk};
use crate::encoder::{Codec, Manner};
use crate::ladder::{self, Rung, Skipped};
use crate::level;
use crate::ratio::Ratio;
use crate::settings::Settings;
use crate::source::{Audio, Source};
use pipeline::Name;
use pipeline::manifest::Shape;
use pipeline::result::{ExpectedSegments, ExpectedTrack};
use serde::{Deserialize, Serialize};
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub source: Source,
    pub settings: Settings,
    /// What there is to see, if there is.
    pub picture: Option<Picture>,
    pub audio: Vec<AudioTrack>,
    pub subtitles: Vec<SubtitleTrack>,
    pub thumbnails: Option<Thumbnails>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Picture {
    pub rungs: Vec<Rung>,
    pub skipped: Vec<Skipped>,
    pub manner: Manner,
    /// Ticks a second, and ticks a frame: a frame's time is a whole number of them.
    pub timescale: u32,
    pub frame_ticks: u32,
    pub frames: u64,
    /// In a segment; the last one may have fewer.
    pub segment_frames: u32,
    /// Whole segments each; they are encoded independently of each other.
    pub chunks: Vec<Chunk>,
    /// What is encoded together. A plan of an older version has none: see [`Picture::groups`].
    #[serde(default)]
    groups: Vec<Group>,
}

/// Rungs of a codec that one task makes of a chunk, from one decoding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub codec: Codec,
    /// Default: all that are not optional, for those are made alone, to fail alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rungs: Vec<Name>,
}

/// What one encoding task does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Piece {
    pub chunk: Chunk,
    #[serde(flatten)]
    pub group: Group,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AudioTrack {
    /// Unique within a plan, and the name of its folder.
    pub name: Name,
    pub stream: u32,
    pub language: String,
    /// For people.
    pub title: String,
    pub is_default: bool,
    pub channels: u16,
    pub kbps: u32,
    /// Packets of [`AAC_FRAME`] samples at [`AUDIO_RATE`].
    pub packets: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubtitleTrack {
    pub name: Name,
    pub stream: u32,
    pub language: String,
    pub title: String,
    pub is_default: bool,
    pub is_forced: bool,
}

/// A contact sheet or several, of pictures taken at even intervals.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thumbnails {
    pub seconds: f64,
    pub count: u32,
    pub width: u32,
    pub height: u32,
    pub columns: u32,
    pub rows: u32,
}

pub const AUDIO_RATE: u32 = 48_000;
pub const AAC_FRAME: u32 = 1024;

/// Of each encoder. One costs the least, and with more x264 does not make the same bytes of the same pictures twice.
const THREADS: u32 = 1;

/// Pixels in a second: a picture of 1920 × 1080 every four seconds, and every fifth of a second.
const SLOWEST_ENCODING: f64 = 500_000.0;
const SLOWEST_DECODING: f64 = 10_000_000.0;

pub fn make(mut source: Source, settings: Settings) -> Plan {
    let picture = source.video.as_ref().map(|video| {
        let timing = &video.timing;
        let (rungs, skipped) =
            ladder::choose(&settings.rungs, video.width, video.height, timing.rate, &settings.codecs);
        let gop = (timing.rate.to_f64() * settings.gop_seconds).round().max(1.0) as u32;
        let segment_frames = gop * (settings.segment_seconds / settings.gop_seconds).round().max(1.0) as u32;
        let chunks = chunk::divide(timing, segment_frames, settings.parallel);
        let (timescale, frame_ticks) = ticks(timing.rate);
        let preset = settings.preset.clone();
        Picture {
            skipped,
            manner: Manner { family: settings.encoder, preset, gop, rate: timing.rate, threads: THREADS },
            timescale,
            frame_ticks,
            frames: timing.frames,
            segment_frames,
            groups: groups(&rungs, &settings.codecs, (settings.parallel as usize).div_ceil(chunks.len())),
            rungs,
            chunks,
        }
    });
    if let Some(video) = &mut source.video {
        video.timing.keys.clear();
        video.timing.entries.clear();
    }
    let audio = audio_tracks(&source, settings.surround);
    let subtitles = subtitle_tracks(&source);
    let thumbnails = settings.thumbnails.then(|| thumbnails(&source)).flatten();
    Plan { source, settings, picture, audio, subtitles, thumbnails }
}

impl Plan {
    /// Of the output, in seconds.
    pub fn duration(&self) -> f64 {
        self.source.duration()
    }

    /// Of each group all chunks, group after group.
    pub fn pieces(&self) -> Vec<Piece> {
        let Some(picture) = &self.picture else { return Vec::new() };
        picture.groups(&self.settings.codecs).iter().flat_map(|group| picture.pieces_of(group)).collect()
    }

    /// As [`Plan::pieces`], of what is optional.
    pub fn optional_pieces(&self) -> Vec<Piece> {
        let Some(picture) = &self.picture else { return Vec::new() };
        let alone = |rung: &Rung| Group { codec: rung.codec, rungs: vec![rung.name.clone()] };
        picture.optional_rungs().flat_map(|rung| picture.pieces_of(&alone(rung))).collect()
    }

    /// How long a slow machine takes for a piece: far longer than any that is of use.
    pub fn encoding_patience(&self, piece: &Piece) -> Duration {
        let Some(picture) = &self.picture else { return Duration::ZERO };
        let pixels = |width: u32, height: u32| f64::from(width) * f64::from(height);
        let made: f64 =
            picture.rungs_of_group(&piece.group).map(|rung| pixels(rung.width, rung.height)).sum();
        let source = self.source.video.as_ref().map_or(0.0, |video| pixels(video.width, video.height));
        // A file that cannot be entered in the middle is decoded from its beginning.
        let seconds = piece.chunk.frames() as f64 * made / SLOWEST_ENCODING
            + piece.chunk.end_frame as f64 * source / SLOWEST_DECODING;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// As [`Plan::encoding_patience`], for a track of sound.
    pub fn sound_patience(&self) -> Duration {
        Duration::try_from_secs_f64(self.duration()).unwrap_or(Duration::MAX)
    }

    /// What the task of this track has to return.
    pub fn expected_sound(&self, track: &AudioTrack) -> ExpectedTrack {
        ExpectedTrack {
            name: track.name.clone(),
            codecs: &["mp4a.40.2"],
            most_level: None,
            timescale: AUDIO_RATE,
            shape: Shape::Audio { channels: if track.channels > 2 { 6 } else { 2 }, sample_rate: AUDIO_RATE },
            max_kbps: track.kbps,
            segments: ExpectedSegments::Packets {
                packets: track.packets,
                most_segments: self.boundaries().len(),
            },
        }
    }

    /// Where segments end, in seconds: of picture and sound alike.
    pub fn boundaries(&self) -> Vec<f64> {
        match &self.picture {
            Some(picture) => picture.boundaries(),
            None => {
                let (length, duration) = (self.settings.segment_seconds, self.duration());
                let inner =
                    (1..).map(|n| f64::from(n) * length).take_while(|end| *end < duration - length / 2.0);
                inner.chain([duration]).collect()
            }
        }
    }
}

impl Thumbnails {
    /// How many sheets they fill.
    pub fn sheets(&self) -> u32 {
        self.count.div_ceil((self.columns * self.rows).max(1))
    }
}

impl Picture {
    pub fn rungs_of(&self, codec: Codec) -> impl Iterator<Item = &Rung> {
        self.rungs.iter().filter(move |rung| rung.codec == codec)
    }

    pub fn optional_rungs(&self) -> impl Iterator<Item = &Rung> {
        self.rungs.iter().filter(|rung| rung.optional)
    }

    /// What is encoded together, but for what is optional.
    pub fn groups(&self, codecs: &[Codec]) -> Vec<Group> {
        if self.groups.is_empty() {
            return codecs.iter().map(|&codec| Group { codec, rungs: Vec::new() }).collect();
        }
        self.groups.clone()
    }

    /// What comes of a group.
    pub fn rungs_of_group(&self, group: &Group) -> impl Iterator<Item = &Rung> {
        self.rungs_of(group.codec).filter(|rung| match group.rungs.as_slice() {
            [] => !rung.optional,
            names => names.contains(&rung.name),
        })
    }

    /// What the task of this piece has to return.
    pub fn expected(&self, piece: &Piece) -> Vec<ExpectedTrack> {
        let (chunk, rate) = (&piece.chunk, Ratio::new(self.timescale, self.frame_ticks));
        let track = |rung: &Rung| ExpectedTrack {
            name: rung.name.clone(),
            codecs: rung.codec.sample_entries(),
            most_level: Some(self.most_level(rung)),
            timescale: self.timescale,
            shape: Shape::Video {
                width: rung.width,
                height: rung.height,
                frame_rate: rate.unwrap_or(self.manner.rate),
            },
            max_kbps: rung.max_kbps,
            segments: ExpectedSegments::Even {
                first_segment: chunk.first_segment,
                first_frame: chunk.first_frame,
                frames: chunk.frames(),
                per_segment: self.segment_frames,
                ticks: self.frame_ticks,
            },
        };
        self.rungs_of_group(&piece.group).map(track).collect()
    }

    fn most_level(&self, rung: &Rung) -> u32 {
        let Manner { preset, rate, .. } = &self.manner;
        level::most(rung.codec, (rung.width, rung.height), rate.to_f64(), rung.max_kbps, preset.as_deref())
    }

    fn pieces_of(&self, group: &Group) -> Vec<Piece> {
        self.chunks.iter().map(|&chunk| Piece { chunk, group: group.clone() }).collect()
    }

    pub fn segments(&self) -> u64 {
        self.frames.div_ceil(self.segment_frames.into())
    }

    fn boundaries(&self) -> Vec<f64> {
        let rate = self.manner.rate.to_f64();
        let end = |segment: u64| (segment * u64::from(self.segment_frames)).min(self.frames);
        (1..=self.segments()).map(|segment| end(segment) as f64 / rate).collect()
    }
}

/// Fine enough that players' rounding cannot be seen, and exact.
fn ticks(rate: Ratio) -> (u32, u32) {
    let factor = 10_000u32.div_ceil(rate.num);
    (rate.num * factor, rate.den * factor)
}

/// A decoding serves all rungs of a codec. Where slots would be idle, there is a second one: the largest rung costs about as
/// much as all others together.
fn groups(rungs: &[Rung], codecs: &[Codec], slots_for_a_chunk: usize) -> Vec<Group> {
    let of_codec = |&codec: &Codec| {
        let of_codec = rungs.iter().filter(|rung| rung.codec == codec && !rung.optional);
        let mut largest: Vec<Name> = of_codec.map(|rung| rung.name.clone()).collect();
        let others = largest.split_off(largest.len().min(1));
        match slots_for_a_chunk > codecs.len() && !others.is_empty() {
            true => vec![Group { codec, rungs: largest }, Group { codec, rungs: others }],
            false => vec![Group { codec, rungs: Vec::new() }],
        }
    };
    codecs.iter().flat_map(of_codec).collect()
}

/// Stereo of each track, always; and the track as it is where it has more and that is asked for.
fn audio_tracks(source: &Source, surround: bool) -> Vec<AudioTrack> {
    let packets = (source.duration() * f64::from(AUDIO_RATE) / f64::from(AAC_FRAME)).round().max(1.0) as u64;
    let default = source.audio.iter().position(|audio| audio.is_default).unwrap_or(0);
    let mut tracks: Vec<AudioTrack> = Vec::new();
    for (at, audio) in source.audio.iter().enumerate() {
        let mut add = |channels: u16, kbps: u32, suffix: &str| {
            let name = track_name(
                &format!("audio-{:.MOST_OF_A_TAG$}{suffix}", audio.language),
                tracks.iter().map(|track| &track.name),
            );
            let title =
                unique(&format!("{}{suffix}", title(audio)), tracks.iter().map(|track| &*track.title));
            tracks.push(AudioTrack {
                name,
                stream: audio.stream,
                language: audio.language.clone(),
                title,
                is_default: at == default && suffix.is_empty(),
                channels,
                kbps,
                packets,
            });
        };
        add(2, 128, "");
        if surround && audio.channels > 2 {
            add(6, 384, "-surround");
        }
    }
    tracks
}

fn title(audio: &Audio) -> String {
    audio.title.clone().filter(|title| !title.trim().is_empty()).unwrap_or_else(|| audio.language.clone())
}

fn subtitle_tracks(source: &Source) -> Vec<SubtitleTrack> {
    let mut tracks: Vec<SubtitleTrack> = Vec::new();
    for subtitle in source.subtitles.iter().filter(|subtitle| subtitle.is_text) {
        let named = subtitle.title.clone().filter(|title| !title.trim().is_empty());
        let title = unique(
            &named.unwrap_or_else(|| subtitle.language.clone()),
            tracks.iter().map(|track| &*track.title),
        );
        tracks.push(SubtitleTrack {
            name: track_name(
                &format!("subtitles-{:.MOST_OF_A_TAG$}", subtitle.language),
                tracks.iter().map(|track| &track.name),
            ),
            stream: subtitle.stream,
            language: subtitle.language.clone(),
            title,
            is_default: subtitle.is_default,
            is_forced: subtitle.is_forced,
        });
    }
    tracks
}

/// How much of a language's tag fits into a name.
const MOST_OF_A_TAG: usize = 32;

fn track_name<'a>(wanted: &str, taken: impl Iterator<Item = &'a Name>) -> Name {
    Name::nearest(&unique(wanted, taken.map(Name::as_str)))
}

/// `wanted`, with a number behind it where others had the same.
fn unique<'a>(wanted: &str, taken: impl Iterator<Item = &'a str>) -> String {
    let taken: Vec<&str> = taken.collect();
    let numbered = (2..).map(|n| format!("{wanted}-{n}"));
    let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
    names.find(|name| !taken.contains(&name.as_str())).unwrap_or_default()
}

/// The longer side of a small picture.
const THUMBNAIL_SIDE: u32 = 160;
const MOST_THUMBNAILS: f64 = 200.0;

fn thumbnails(source: &Source) -> Option<Thumbnails> {
    let video = source.video.as_ref()?;
    let seconds = (source.duration() / MOST_THUMBNAILS).ceil().max(2.0);
    let count = (source.duration() / seconds).ceil().max(1.0) as u32;
    let scale = f64::from(THUMBNAIL_SIDE) / f64::from(video.width.max(video.height).max(1));
    let even = |side: u32| ((f64::from(side) * scale / 2.0).round() as u32 * 2).max(2);
    let columns = count.min(10);
    let rows = count.div_ceil(columns).min(10);
    Some(Thumbnails { seconds, count, width: even(video.width), height: even(video.height), columns, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    const R25: Ratio = Ratio { num: 25, den: 1 };

    #[test]
    fn the_largest_rung_of_a_short_clip_is_made_beside_the_others() {
        let rung = |name: &str, optional| Rung {
            name: name.parse().unwrap(),
            codec: Codec::H264,
            width: 2,
            height: 2,
            crf: 23,
            max_kbps: 1,
            optional,
        };
        let rungs = [rung("4k", true), rung("1080p", false), rung("720p", false), rung("480p", false)];
        let made = |rungs: &[Rung], slots| {
            let groups = groups(rungs, &[Codec::H264], slots);
            groups.into_iter().map(|group| group.rungs.join("+")).collect::<Vec<_>>()
        };

        assert_eq!(made(&rungs, 1), [""], "all from one decoding");
        assert_eq!(made(&rungs, 2), ["1080p", "720p+480p"]);
        assert_eq!(made(&rungs, 16), ["1080p", "720p+480p"]);
        assert_eq!(made(&rungs[3..], 2), [""], "one rung cannot be divided");
    }

    #[test]
    fn a_frame_is_a_whole_number_of_ticks() {
        assert_eq!(ticks(Ratio { num: 30000, den: 1001 }), (30000, 1001));
        assert_eq!(ticks(R25), (10000, 400));
        assert_eq!(ticks(Ratio { num: 1, den: 1 }), (10000, 10000));
    }

    #[test]
    fn names_are_told_apart() {
        assert_eq!(unique("en", ["de"].into_iter()), "en");
        assert_eq!(unique("en", ["en", "en-2"].into_iter()), "en-3");
    }
}
