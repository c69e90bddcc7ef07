//! HLS playlists of one track. They lie in the track's folder, beside its segments.

use crate::manifest::{Artifact, KeyFrame, Segment, Track};
use std::fmt::Write;

/// What the playlist of a track is called, in the track's folder.
pub const MEDIA: &str = "index.m3u8";
/// What the playlist of its key frames is called.
pub const I_FRAMES: &str = "iframes.m3u8";

/// Lists the segments of a track that is complete.
pub fn media(track: &Track) -> String {
    let durations = durations(track);
    let out = head(&durations, "#EXT-X-INDEPENDENT-SEGMENTS\n");
    segments(out, track, &durations) + "#EXT-X-ENDLIST\n"
}

/// Lists the segments that are there of a track that is still being made: whoever plays it asks again for more.
/// `longest` is the length of a whole segment, in seconds, for that may not change later.
pub fn event(track: &Track, longest: f64, is_complete: bool) -> String {
    let durations = durations(track);
    let target = target_duration(durations.iter().copied()).max(longest.round().max(1.0) as u64);
    let head = format!(
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-PLAYLIST-TYPE:EVENT\n#EXT-X-INDEPENDENT-SEGMENTS\n"
    );
    segments(head, track, &durations) + if is_complete { "#EXT-X-ENDLIST\n" } else { "" }
}

fn durations(track: &Track) -> Vec<Micros> {
    let times = track.segments.iter().map(|segment| (segment.start, segment.start + segment.duration));
    times.map(|(start, end)| Micros::between(start, end, track.timescale)).collect()
}

fn segments(mut out: String, track: &Track, durations: &[Micros]) -> String {
    let mut map = Map::default();
    for (segment, duration) in track.segments.iter().zip(durations) {
        map.write(&mut out, track, segment);
        entry(&mut out, *duration, None, file_name(&segment.file));
    }
    out
}

/// Lists the key frames of a track of picture, each until the next: for fast forward and for seeking with pictures.
pub fn i_frames(track: &Track) -> String {
    let frames = key_frames(track);
    let durations: Vec<Micros> = frames.iter().map(|frame| frame.duration).collect();
    let mut out = head(&durations, "#EXT-X-I-FRAMES-ONLY\n");
    let mut map = Map::default();
    for frame in frames {
        map.write(&mut out, track, frame.segment);
        let range = Some((frame.bytes, frame.offset));
        entry(&mut out, frame.duration, range, file_name(&frame.segment.file));
    }
    out + "#EXT-X-ENDLIST\n"
}

/// Lists the segments of subtitles, which end at these times, in seconds.
pub fn subtitles(boundaries: &[f64], segments: &[Artifact]) -> String {
    let starts = std::iter::once(0.0).chain(boundaries.iter().copied());
    let micros = |seconds: f64| (seconds * 1e6).round() as u64;
    let durations: Vec<Micros> =
        starts.zip(boundaries).map(|(start, end)| Micros(micros(*end) - micros(start))).collect();
    let mut out = head(&durations, "");
    for (segment, duration) in segments.iter().zip(durations) {
        entry(&mut out, duration, None, file_name(segment));
    }
    out + "#EXT-X-ENDLIST\n"
}

/// A key frame and how long it stands for the picture.
pub(crate) struct Frame<'a> {
    segment: &'a Segment,
    offset: u64,
    pub(crate) bytes: u64,
    pub(crate) duration: Micros,
}

pub(crate) fn key_frames(track: &Track) -> Vec<Frame<'_>> {
    let all =
        || track.segments.iter().flat_map(|segment| segment.key_frames.iter().map(move |key| (segment, key)));
    let ends = all().skip(1).map(|(_, key)| key.start).chain([track.end()]);
    let frame = |((segment, key), end): ((_, &KeyFrame), u64)| Frame {
        segment,
        offset: key.offset,
        bytes: key.bytes,
        duration: Micros::between(key.start, end, track.timescale),
    };
    all().zip(ends).map(frame).collect()
}

/// Millionths of a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub u64);

impl Micros {
    /// Both ends are rounded, not the length: so lengths add up to the end of the track without drift.
    pub(crate) fn between(start: u64, end: u64, timescale: u32) -> Self {
        let scale = u128::from(timescale.max(1));
        let micros = |ticks: u64| (u128::from(ticks) * 1_000_000 + scale / 2) / scale;
        Micros(u64::try_from(micros(end).saturating_sub(micros(start))).unwrap_or(u64::MAX))
    }

    pub(crate) fn rounded_seconds(self) -> u64 {
        (self.0 + 500_000) / 1_000_000
    }
}

/// The longest, rounded to whole seconds; never 0, which some players take for "live".
pub(crate) fn target_duration(durations: impl IntoIterator<Item = Micros>) -> u64 {
    durations.into_iter().map(Micros::rounded_seconds).max().unwrap_or(0).max(1)
}

fn head(durations: &[Micros], kind: &str) -> String {
    let target = target_duration(durations.iter().copied());
    format!(
        "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:{target}\n#EXT-X-MEDIA-SEQUENCE:0\n\
         #EXT-X-PLAYLIST-TYPE:VOD\n{kind}"
    )
}

fn entry(out: &mut String, duration: Micros, range: Option<(u64, u64)>, name: &str) {
    let _ = writeln!(out, "#EXTINF:{}.{:06},", duration.0 / 1_000_000, duration.0 % 1_000_000);
    if let Some((bytes, offset)) = range {
        let _ = writeln!(out, "#EXT-X-BYTERANGE:{bytes}@{offset}");
    }
    let _ = writeln!(out, "{}", uri(name));
}

/// The init segment named last.
#[derive(Default)]
struct Map<'a>(Option<&'a Artifact>);

impl<'a> Map<'a> {
    /// Names the init segment of what follows, if it is another than before.
    fn write(&mut self, out: &mut String, track: &'a Track, segment: &Segment) {
        let init = track.init_of(segment);
        if self.0 != Some(init) {
            let _ = writeln!(out, "#EXT-X-MAP:URI=\"{}\"", uri(file_name(init)));
            self.0 = Some(init);
        }
    }
}

fn file_name(file: &Artifact) -> &str {
    file.path.rsplit('/').next().unwrap_or_default()
}

/// A path that means itself in any playlist: everything but letters, digits and `-._~/` is percent-encoded.
pub(crate) fn uri(path: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    path.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{LaterInit, Shape};
    use crate::ratio::Ratio;

    fn artifact(path: &str) -> Artifact {
        Artifact { path: path.parse().unwrap(), bytes: 1000, sha256: path.into() }
    }

    /// Three segments of 24 fps less a thousandth, two key frames each; the last is half as long.
    fn track() -> Track {
        let segment = |number: u32| {
            let start = u64::from(number) * 144_144;
            let duration = if number == 2 { 72_072 } else { 144_144 };
            let key =
                |at: u64| KeyFrame { start: start + at * duration / 2, offset: 24 + at * 500, bytes: 200 };
            Segment {
                file: artifact(&format!("480p/seg-{:05}.m4s", number + 1)),
                number,
                start,
                duration,
                samples: 144,
                key_frames: vec![key(0), key(1)],
            }
        };
        let frame_rate = Ratio { num: 24000, den: 1001 };
        Track {
            name: "480p".parse().unwrap(),
            codec: "avc1.64001f".into(),
            timescale: 24_000,
            shape: Shape::Video { width: 854, height: 480, frame_rate },
            init: artifact("480p/init.mp4"),
            later_inits: Vec::new(),
            segments: (0..3).map(segment).collect(),
        }
    }

    #[test]
    fn segments_are_listed_with_their_exact_durations() {
        let expected = "\
#EXTM3U
#EXT-X-VERSION:7
#EXT-X-TARGETDURATION:6
#EXT-X-MEDIA-SEQUENCE:0
#EXT-X-PLAYLIST-TYPE:VOD
#EXT-X-INDEPENDENT-SEGMENTS
#EXT-X-MAP:URI=\"init.mp4\"
#EXTINF:6.006000,
seg-00001.m4s
#EXTINF:6.006000,
seg-00002.m4s
#EXTINF:3.003000,
seg-00003.m4s
#EXT-X-ENDLIST
";

        assert_eq!(media(&track()), expected);
    }

    #[test]
    fn an_init_is_named_again_where_it_changes() {
        let mut track = track();
        track.later_inits = vec![LaterInit { from: 2, file: artifact("480p/init-00003.mp4") }];

        let listed = media(&track);

        let lines = "seg-00002.m4s\n#EXT-X-MAP:URI=\"init-00003.mp4\"\n#EXTINF:3.003000,\nseg-00003.m4s";
        assert!(listed.contains(lines), "{listed}");
        assert_eq!(listed.matches("EXT-X-MAP").count(), 2);
    }

    #[test]
    fn each_key_frame_lasts_until_the_next() {
        let listed = i_frames(&track());

        assert!(listed.contains("#EXT-X-I-FRAMES-ONLY\n#EXT-X-MAP"), "{listed}");
        assert!(listed.contains("#EXTINF:3.003000,\n#EXT-X-BYTERANGE:200@524\nseg-00001.m4s\n"), "{listed}");
        assert!(
            listed.ends_with("#EXTINF:1.501500,\n#EXT-X-BYTERANGE:200@524\nseg-00003.m4s\n#EXT-X-ENDLIST\n")
        );
        assert_eq!(listed.matches("#EXTINF").count(), 6);
    }

    #[test]
    fn durations_that_do_not_fit_into_six_digits_do_not_add_up_to_an_error() {
        let ends = (1..=3_000).map(|n| (n - 1, n));

        let sum: u64 = ends.map(|(start, end)| Micros::between(start, end, 30).0).sum();

        assert_eq!(sum, 100_000_000);
    }

    #[test]
    fn subtitles_cover_the_whole_duration() {
        let segments = [artifact("subtitles-en/seg-00001.vtt"), artifact("subtitles-en/seg-00002.vtt")];

        let listed = subtitles(&[6.006, 7.5], &segments);

        assert!(
            listed.contains("#EXTINF:6.006000,\nseg-00001.vtt\n#EXTINF:1.494000,\nseg-00002.vtt\n"),
            "{listed}"
        );
    }

    #[test]
    fn a_name_cannot_break_out_of_its_line() {
        assert_eq!(uri("audio-en/a b\n\"c\".m4s"), "audio-en/a%20b%0A%22c%22.m4s");
    }
}
