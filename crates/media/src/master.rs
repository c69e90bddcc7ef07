//! The HLS playlist that lists all others: what a player opens.

use crate::manifest::{Presentation, Shape, Sound, Track};
use crate::playlist::{self, Micros, uri};
use std::collections::{BTreeMap, HashSet};

/// Players begin with the variant that stands first; Apple asks for one of about this rate.
const FIRST_BITS_PER_SECOND: u64 = 2_000_000;
const AUDIO_GROUP: &str = "audio";
const SUBTITLES_GROUP: &str = "subtitles";

/// Writes the playlist for a folder from which `prefix`, such as `g3/` or nothing, leads to the tracks.
pub fn master(of: &Presentation, prefix: &str) -> String {
    let list = List { of, prefix, caps: &BTreeMap::new() };
    [HEAD.to_owned(), list.sounds(), list.subtitles(), list.variants(), list.i_frames()].concat()
}

/// As [`master`], for tracks that are still being made: what they will need at most is not measured but known, in bits
/// per second, by their names.
pub fn early(of: &Presentation, prefix: &str, caps: &BTreeMap<String, u64>) -> String {
    let list = List { of, prefix, caps };
    [HEAD.to_owned(), list.sounds(), list.variants()].concat()
}

const HEAD: &str = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-INDEPENDENT-SEGMENTS\n";

struct List<'a> {
    of: &'a Presentation,
    prefix: &'a str,
    /// What a track may need at most, where that is not to be measured.
    caps: &'a BTreeMap<String, u64>,
}

impl<'a> List<'a> {
    /// One group of all tracks of sound, the default one first. Players choose by themselves only between languages:
    /// the first track of each.
    fn sounds(&self) -> String {
        let default = default_sound(&self.of.audio);
        let others = self.of.audio.iter().filter(|sound| default != Some(sound));
        let (mut names, mut languages) = (Names::default(), HashSet::new());
        let line = |sound: &'a Sound| {
            let is_default = default == Some(sound);
            let is_variant = is_default && self.of.video.is_empty();
            Tag::new("EXT-X-MEDIA")
                .word("TYPE", "AUDIO")
                .text("GROUP-ID", AUDIO_GROUP)
                .text("NAME", &names.unique(&sound.title))
                .text("LANGUAGE", &sound.language)
                .word("DEFAULT", yes(is_default))
                .word("AUTOSELECT", yes(languages.insert(&sound.language)))
                .maybe(channels(&sound.track), |tag, count| tag.text("CHANNELS", &count.to_string()))
                .maybe((!is_variant).then(|| self.playlist_of(&sound.track.name)), |tag, to| {
                    tag.text("URI", &to)
                })
                .line()
        };
        default.into_iter().chain(others).map(line).collect()
    }

    fn subtitles(&self) -> String {
        let all = &self.of.subtitles;
        let default = all.iter().position(|subtitles| subtitles.is_default && !subtitles.is_forced);
        let (mut names, mut kinds) = (Names::default(), HashSet::new());
        if let Some(default) = default {
            kinds.insert((&all[default].language, false));
        }
        let line = |(index, subtitles): (usize, &'a crate::manifest::Subtitles)| {
            let is_default = default == Some(index);
            let is_first = kinds.insert((&subtitles.language, subtitles.is_forced));
            Tag::new("EXT-X-MEDIA")
                .word("TYPE", "SUBTITLES")
                .text("GROUP-ID", SUBTITLES_GROUP)
                .text("NAME", &names.unique(&subtitles.title))
                .text("LANGUAGE", &subtitles.language)
                .word("DEFAULT", yes(is_default))
                .word("AUTOSELECT", yes(is_default || is_first))
                .word("FORCED", yes(subtitles.is_forced))
                .text("URI", &self.playlist_of(&subtitles.name))
                .line()
        };
        all.iter().enumerate().map(line).collect()
    }

    fn variants(&self) -> String {
        let sound = self.of.audio.iter().map(|sound| Rate::of(&sound.track)).fold(Rate::default(), Rate::max);
        let mut variants: Vec<(&Track, Rate)> = match &self.of.video[..] {
            [] => default_sound(&self.of.audio).map(|default| (&default.track, sound)).into_iter().collect(),
            video => video.iter().map(|track| (track, self.rate(track).plus(sound))).collect(),
        };
        variants.sort_by_key(|(_, rate)| rate.peak);
        if let Some(first) = first_of(&variants) {
            variants[..=first].rotate_right(1);
        }
        variants.into_iter().map(|(track, rate)| self.variant(track, rate)).collect()
    }

    fn rate(&self, track: &Track) -> Rate {
        let (rate, cap) = (Rate::of(track), self.caps.get(track.name.as_str()).copied().unwrap_or(0));
        Rate { peak: rate.peak.max(cap), ..rate }
    }

    fn variant(&self, track: &Track, rate: Rate) -> String {
        let mut tag = Tag::new("EXT-X-STREAM-INF")
            .word("BANDWIDTH", rate.peak)
            .word("AVERAGE-BANDWIDTH", rate.average)
            .text("CODECS", &self.codecs(track));
        if let Shape::Video { width, height, frame_rate } = track.shape {
            tag = tag
                .word("RESOLUTION", format!("{width}x{height}"))
                .word("FRAME-RATE", format!("{:.3}", frame_rate.to_f64()))
                .word("VIDEO-RANGE", "SDR");
        }
        let sound = (!self.of.audio.is_empty()).then_some(AUDIO_GROUP);
        let subtitles = (!self.of.subtitles.is_empty()).then_some(SUBTITLES_GROUP);
        tag.maybe(sound, |tag, group| tag.text("AUDIO", group))
            .maybe(subtitles, |tag, group| tag.text("SUBTITLES", group))
            .word("CLOSED-CAPTIONS", "NONE")
            .line()
            + &self.playlist_of(&track.name)
            + "\n"
    }

    fn i_frames(&self) -> String {
        let line = |track: &Track| {
            let frames = playlist::key_frames(track);
            let rate = Rate::of_pieces(frames.iter().map(|frame| (frame.bytes, frame.duration)));
            let size = match track.shape {
                Shape::Video { width, height, .. } => Some(format!("{width}x{height}")),
                Shape::Audio { .. } => None,
            };
            Tag::new("EXT-X-I-FRAME-STREAM-INF")
                .word("BANDWIDTH", rate.peak)
                .word("AVERAGE-BANDWIDTH", rate.average)
                .text("CODECS", &track.codec)
                .maybe(size, |tag, size| tag.word("RESOLUTION", size))
                .word("VIDEO-RANGE", "SDR")
                .text("URI", &self.address(&track.name, playlist::I_FRAMES))
                .line()
        };
        self.of.video.iter().map(line).collect()
    }

    /// That of the track, and all that may be heard with it.
    fn codecs(&self, track: &Track) -> String {
        let mut codecs = vec![&*track.codec];
        for sound in &self.of.audio {
            if !codecs.contains(&&*sound.track.codec) {
                codecs.push(&sound.track.codec);
            }
        }
        codecs.join(",")
    }

    fn playlist_of(&self, folder: &str) -> String {
        self.address(folder, playlist::MEDIA)
    }

    fn address(&self, folder: &str, file: &str) -> String {
        uri(&format!("{}{folder}/{file}", self.prefix))
    }
}

fn default_sound(audio: &[Sound]) -> Option<&Sound> {
    audio.iter().find(|sound| sound.is_default).or(audio.first())
}

fn channels(track: &Track) -> Option<u16> {
    match track.shape {
        Shape::Audio { channels, .. } => Some(channels),
        Shape::Video { .. } => None,
    }
}

/// Which variant stands first: of H.264, which every player knows, if there is any.
fn first_of(variants: &[(&Track, Rate)]) -> Option<usize> {
    let is_known = |track: &Track| track.codec.starts_with("avc1");
    let needs_known = variants.iter().any(|(track, _)| is_known(track));
    let choice = variants.iter().enumerate().filter(|(_, (track, _))| !needs_known || is_known(track));
    choice.min_by_key(|(_, (_, rate))| rate.peak.abs_diff(FIRST_BITS_PER_SECOND)).map(|(index, _)| index)
}

/// The most bits a second that a track takes.
pub fn peak_bandwidth(track: &Track) -> u64 {
    Rate::of(track).peak
}

/// Bits per second, measured on the files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rate {
    pub(crate) peak: u64,
    pub(crate) average: u64,
}

impl Rate {
    pub(crate) fn of(track: &Track) -> Self {
        let end = |segment: &crate::manifest::Segment| segment.start.saturating_add(segment.duration);
        Rate::of_pieces(track.segments.iter().map(|segment| {
            (segment.file.bytes, Micros::between(segment.start, end(segment), track.timescale))
        }))
    }

    /// The peak as RFC 8216 has it: of any run of pieces that lasts between half and one and a half target durations.
    /// So a last piece of a few frames does not count alone.
    fn of_pieces(pieces: impl Iterator<Item = (u64, Micros)>) -> Self {
        let pieces: Vec<_> = pieces.collect();
        let target = playlist::target_duration(pieces.iter().map(|(_, duration)| *duration)) * 1_000_000;
        let total = pieces.iter().fold((0, 0), |sum, piece| (sum.0 + piece.0, sum.1 + piece.1.0));
        let average = bits_per_second(total);
        let mut peak = None;
        for first in 0..pieces.len() {
            let mut run = (0, 0);
            for (bytes, duration) in &pieces[first..] {
                run = (run.0 + bytes, run.1 + duration.0);
                if run.1 * 2 > target * 3 {
                    break;
                }
                if run.1 * 2 >= target {
                    peak = peak.max(Some(bits_per_second(run)));
                }
            }
        }
        Rate { peak: peak.unwrap_or(average).max(average), average }
    }

    fn plus(self, other: Rate) -> Self {
        Rate { peak: self.peak + other.peak, average: self.average + other.average }
    }

    fn max(self, other: Rate) -> Self {
        Rate { peak: self.peak.max(other.peak), average: self.average.max(other.average) }
    }
}

/// Of so many bytes in so many microseconds, rounded up.
fn bits_per_second((bytes, micros): (u64, u64)) -> u64 {
    let bits = u128::from(bytes) * 8_000_000;
    u64::try_from(bits.div_ceil(u128::from(micros.max(1)))).unwrap_or(u64::MAX)
}

fn yes(is_so: bool) -> &'static str {
    if is_so { "YES" } else { "NO" }
}

/// A tag with attributes, in the order they are added.
struct Tag(String);

impl Tag {
    fn new(name: &str) -> Self {
        Tag(format!("#{name}:"))
    }

    fn word(self, name: &str, value: impl std::fmt::Display) -> Self {
        let comma = if self.0.ends_with(':') { "" } else { "," };
        Tag(format!("{}{comma}{name}={value}", self.0))
    }

    /// A quoted string, without what cannot stand in one.
    fn text(self, name: &str, value: &str) -> Self {
        let safe: String = value.chars().filter(|c| !c.is_control()).collect();
        self.word(name, format_args!("\"{}\"", safe.replace('"', "'")))
    }

    fn maybe<T>(self, value: Option<T>, add: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => add(self, value),
            None => self,
        }
    }

    fn line(self) -> String {
        self.0 + "\n"
    }
}

/// Those given so far in a group.
#[derive(Default)]
struct Names(HashSet<String>);

impl Names {
    /// `wanted`, with a number behind it where others had the same.
    fn unique(&mut self, wanted: &str) -> String {
        let numbered = (2..).map(|number| format!("{wanted} {number}"));
        let mut names = std::iter::once(wanted.to_owned()).chain(numbered);
        names.find(|name| self.0.insert(name.clone())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{Artifact, KeyFrame, Segment, Subtitles};
    use crate::ratio::Ratio;

    fn artifact(bytes: u64) -> Artifact {
        Artifact { path: "x".parse().unwrap(), bytes, sha256: "x".into() }
    }

    /// Segments of these sizes and of six seconds each, but for a last one of a fifth of a second.
    fn track(name: &str, codec: &str, shape: Shape, sizes: &[u64]) -> Track {
        let segment = |(number, bytes): (usize, &u64)| {
            let start = 6_000 * number as u64;
            Segment {
                file: artifact(*bytes),
                number: number as u32,
                start,
                duration: if number + 1 == sizes.len() { 200 } else { 6_000 },
                samples: 150,
                key_frames: vec![KeyFrame { start, offset: 24, bytes: bytes / 10 }],
            }
        };
        Track {
            name: name.parse().unwrap(),
            codec: codec.into(),
            timescale: 1000,
            shape,
            init: artifact(700),
            later_inits: Vec::new(),
            segments: sizes.iter().enumerate().map(segment).collect(),
        }
    }

    fn picture(name: &str, codec: &str, height: u32, sizes: &[u64]) -> Track {
        let frame_rate = Ratio { num: 30000, den: 1001 };
        track(name, codec, Shape::Video { width: height * 16 / 9, height, frame_rate }, sizes)
    }

    fn sound(name: &str, language: &str, title: &str, is_default: bool) -> Sound {
        let shape = Shape::Audio { channels: 2, sample_rate: 48000 };
        let track = track(name, "mp4a.40.2", shape, &[96_000, 93_000, 3_100]);
        Sound { track, language: language.into(), title: title.into(), is_default }
    }

    fn subtitles(name: &str, is_forced: bool) -> Subtitles {
        Subtitles {
            name: name.parse().unwrap(),
            language: "en".into(),
            title: "English".into(),
            is_default: false,
            is_forced,
            whole: artifact(100),
            segments: Vec::new(),
        }
    }

    #[test]
    fn everything_is_listed_with_measured_rates() {
        let of = Presentation {
            video: vec![
                picture("720p", "avc1.64001f", 720, &[3_000_000, 2_500_000, 100_000]),
                picture("480p", "avc1.64001e", 480, &[1_500_000, 1_250_000, 50_000]),
                picture("360p", "avc1.64001e", 360, &[750_000, 600_000, 25_000]),
            ],
            audio: vec![sound("audio-de", "de", "Deutsch", false), sound("audio-en", "en", "English", true)],
            subtitles: vec![subtitles("subtitles-en", false), subtitles("subtitles-en-2", true)],
        };

        let expected = "\
#EXTM3U
#EXT-X-VERSION:7
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"English\",LANGUAGE=\"en\",DEFAULT=YES,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"g3/audio-en/index.m3u8\"
#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"audio\",NAME=\"Deutsch\",LANGUAGE=\"de\",DEFAULT=NO,AUTOSELECT=YES,CHANNELS=\"2\",URI=\"g3/audio-de/index.m3u8\"
#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subtitles\",NAME=\"English\",LANGUAGE=\"en\",DEFAULT=NO,AUTOSELECT=YES,FORCED=NO,URI=\"g3/subtitles-en/index.m3u8\"
#EXT-X-MEDIA:TYPE=SUBTITLES,GROUP-ID=\"subtitles\",NAME=\"English 2\",LANGUAGE=\"en\",DEFAULT=NO,AUTOSELECT=YES,FORCED=YES,URI=\"g3/subtitles-en-2/index.m3u8\"
#EXT-X-STREAM-INF:BANDWIDTH=2128000,AVERAGE-BANDWIDTH=1962034,CODECS=\"avc1.64001e,mp4a.40.2\",RESOLUTION=853x480,FRAME-RATE=29.970,VIDEO-RANGE=SDR,AUDIO=\"audio\",SUBTITLES=\"subtitles\",CLOSED-CAPTIONS=NONE
g3/480p/index.m3u8
";
        let listed = master(&of, "g3/");
        assert!(listed.starts_with(expected), "{listed}");
        let order: Vec<_> = listed.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(order, ["g3/480p/index.m3u8", "g3/360p/index.m3u8", "g3/720p/index.m3u8"]);
        let last = "CODECS=\"avc1.64001e\",RESOLUTION=640x360,VIDEO-RANGE=SDR,URI=\"g3/360p/iframes.m3u8\"\n";
        assert!(listed.ends_with(last), "{listed}");
    }

    #[test]
    fn the_first_variant_is_one_that_every_player_knows() {
        let video = vec![
            picture("av1-480p", "av01.0.04M.08", 480, &[1_500_000, 100]),
            picture("1080p", "avc1.640028", 1080, &[6_000_000, 100]),
        ];

        let listed = master(&Presentation { video, ..Presentation::default() }, "");

        let first = listed.lines().find(|line| !line.starts_with('#'));
        assert_eq!(first, Some("1080p/index.m3u8"));
        assert!(!listed.contains("AUDIO"), "{listed}");
    }

    #[test]
    fn sound_alone_is_a_variant_of_itself() {
        let audio = vec![sound("audio-en", "en", "English", true), sound("audio-de", "de", "Deutsch", false)];

        let listed = master(&Presentation { audio, ..Presentation::default() }, "");

        assert!(
            listed
                .contains("CODECS=\"mp4a.40.2\",AUDIO=\"audio\",CLOSED-CAPTIONS=NONE\naudio-en/index.m3u8\n")
        );
        assert!(!listed.contains("URI=\"audio-en"), "{listed}");
        assert!(listed.contains("URI=\"audio-de/index.m3u8\""), "{listed}");
    }

    #[test]
    fn a_title_cannot_break_out_of_its_quotes() {
        let audio = vec![sound("a", "en", "5\"\n#EXT-X-ENDLIST", true)];

        let listed = master(&Presentation { audio, ..Presentation::default() }, "");

        assert!(listed.contains("NAME=\"5'#EXT-X-ENDLIST\","), "{listed}");
    }

    #[test]
    fn a_short_last_segment_does_not_make_the_peak() {
        let track = picture("480p", "avc1.64001e", 480, &[600_000, 600_000, 600_000]);

        assert_eq!(Rate::of(&track).peak, 1_548_388);
    }
}
