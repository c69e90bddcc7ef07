//! Playlists as text, read without trust: whatever the bytes are, the answer is a playlist and a list of complaints.

use super::attributes::{Attributes, shortened};
use super::folder::Range;

/// Far beyond a day in segments of a second.
pub const MAX_BYTES: u64 = 16 << 20;
const MAX_LINE: usize = 64 << 10;
const MAX_SEGMENTS: usize = 200_000;
const MAX_VARIANTS: usize = 500;

#[derive(Debug)]
pub enum Playlist {
    Multivariant(Multivariant),
    Media(Media),
}

/// What could not be understood, and in which line.
pub type Complaints = Vec<(u64, String)>;

#[derive(Debug, Default)]
pub struct Multivariant {
    pub is_independent: bool,
    pub variants: Vec<Entry>,
    pub renditions: Vec<Entry>,
    pub i_frames: Vec<Entry>,
}

/// EXT-X-STREAM-INF, EXT-X-MEDIA or EXT-X-I-FRAME-STREAM-INF.
#[derive(Debug)]
pub struct Entry {
    pub line: u64,
    /// Sound that is muxed into a variant has none.
    pub uri: Option<String>,
    pub attributes: Attributes,
}

#[derive(Debug, Default)]
pub struct Media {
    pub version: u64,
    pub target: Option<f64>,
    pub kind: Option<String>,
    pub is_ended: bool,
    pub is_independent: bool,
    pub is_i_frames_only: bool,
    pub is_encrypted: bool,
    pub maps: Vec<Map>,
    pub segments: Vec<Segment>,
    /// The version that the tags in use need, and the tag that needs it.
    pub needs: (u64, &'static str),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Map {
    pub line: u64,
    pub uri: String,
    pub range: Option<Range>,
}

#[derive(Debug)]
pub struct Segment {
    pub line: u64,
    pub uri: String,
    pub duration: f64,
    pub range: Option<Range>,
    /// Its place in `maps`.
    pub map: Option<usize>,
    /// Whether its times have nothing to do with those before.
    pub is_discontinuous: bool,
    /// Whether it is said to be missing.
    pub is_gap: bool,
}

/// `Err` says why it is no playlist at all.
pub fn parse(bytes: &[u8]) -> Result<(Playlist, Complaints), String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    if text.contains('\0') {
        return Err("it contains NUL bytes".into());
    }
    let mut parser = Parser::default();
    let text = text.strip_prefix('\u{feff}').map_or(text, |rest| {
        parser.complain("there is a byte order mark");
        rest
    });
    if text.lines().next().is_none_or(|first| first.trim_end() != "#EXTM3U") {
        return Err("its first line is not #EXTM3U".into());
    }
    for (at, line) in text.lines().enumerate() {
        parser.line = at as u64 + 1;
        match line.len() {
            0..=MAX_LINE => parser.read(line.trim_end()),
            long => parser.complain(format!("the line has {long} bytes, more than {MAX_LINE}")),
        }
    }
    Ok(parser.finish())
}

#[derive(Default)]
struct Parser {
    line: u64,
    complaints: Complaints,
    multivariant: Multivariant,
    media: Media,
    is_multivariant: bool,
    is_media: bool,
    next: Next,
    /// The attributes of a variant whose URI is still to come.
    variant: Option<(u64, Attributes)>,
}

/// What is known of the segment whose URI is still to come.
#[derive(Default)]
struct Next {
    duration: Option<f64>,
    range: Option<(u64, Option<u64>)>,
    is_discontinuous: bool,
    is_gap: bool,
}

impl Parser {
    fn complain(&mut self, what: impl Into<String>) {
        if self.complaints.len() < 1000 {
            self.complaints.push((self.line.max(1), what.into()));
        }
    }

    fn read(&mut self, line: &str) {
        if line.is_empty() {
            return;
        }
        let Some(tag) = line.strip_prefix('#') else { return self.uri(line) };
        let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
        match name {
            "EXT-X-STREAM-INF" | "EXT-X-MEDIA" | "EXT-X-I-FRAME-STREAM-INF" => {
                self.is_multivariant = true;
                self.entry(name, value);
            }
            "EXTINF"
            | "EXT-X-TARGETDURATION"
            | "EXT-X-PLAYLIST-TYPE"
            | "EXT-X-ENDLIST"
            | "EXT-X-MAP"
            | "EXT-X-KEY"
            | "EXT-X-BYTERANGE"
            | "EXT-X-DISCONTINUITY"
            | "EXT-X-GAP"
            | "EXT-X-I-FRAMES-ONLY"
            | "EXT-X-MEDIA-SEQUENCE" => {
                self.is_media = true;
                self.media_tag(name, value);
            }
            "EXT-X-VERSION" => match value.parse() {
                Ok(version) => self.media.version = version,
                Err(_) => self.complain(format!("`{}` is no version", shortened(value))),
            },
            "EXT-X-INDEPENDENT-SEGMENTS" => {
                self.media.is_independent = true;
                self.multivariant.is_independent = true;
            }
            // Comments, and tags of which nothing is checked.
            _ => {}
        }
    }

    fn attributes(&mut self, value: &str) -> Attributes {
        let (attributes, wrong) = Attributes::parse(value);
        if let Some(wrong) = wrong {
            self.complain(wrong);
        }
        attributes
    }

    fn entry(&mut self, name: &str, value: &str) {
        let attributes = self.attributes(value);
        let uri = attributes.get("URI").map(str::to_owned);
        let entry = Entry { line: self.line, uri, attributes };
        let multivariant = &mut self.multivariant;
        let list = match name {
            "EXT-X-MEDIA" => &mut multivariant.renditions,
            "EXT-X-I-FRAME-STREAM-INF" => &mut multivariant.i_frames,
            _ => {
                if self.variant.replace((self.line, entry.attributes)).is_some() {
                    self.complain("the variant before this one has no URI");
                }
                return;
            }
        };
        if list.len() >= MAX_VARIANTS {
            return self.complain(format!("more than {MAX_VARIANTS} renditions"));
        }
        let needs_uri = name != "EXT-X-MEDIA";
        if needs_uri && entry.uri.is_none() {
            return self.complain(format!("{name} has no URI"));
        }
        list.push(entry);
    }

    fn media_tag(&mut self, name: &str, value: &str) {
        match name {
            "EXTINF" => self.extinf(value),
            "EXT-X-TARGETDURATION" => match seconds(value) {
                Some(target) => self.media.target = Some(target),
                None => self.complain(format!("`{}` is no duration", shortened(value))),
            },
            "EXT-X-PLAYLIST-TYPE" => self.media.kind = Some(shortened(value)),
            "EXT-X-ENDLIST" => self.media.is_ended = true,
            "EXT-X-MAP" => self.map(value),
            "EXT-X-KEY" => {
                let method = self.attributes(value);
                self.media.is_encrypted |= method.get("METHOD") != Some("NONE");
            }
            "EXT-X-BYTERANGE" => {
                self.need(4, "EXT-X-BYTERANGE");
                self.next.range = byte_range(value);
                if self.next.range.is_none() {
                    self.complain(format!("`{}` is no byte range", shortened(value)));
                }
            }
            "EXT-X-DISCONTINUITY" => self.next.is_discontinuous = true,
            "EXT-X-GAP" => self.next.is_gap = true,
            "EXT-X-I-FRAMES-ONLY" => {
                self.need(4, "EXT-X-I-FRAMES-ONLY");
                self.media.is_i_frames_only = true;
            }
            _ => {}
        }
    }

    fn extinf(&mut self, value: &str) {
        let number = value.split(',').next().unwrap_or_default().trim();
        if self.next.duration.is_some() {
            self.complain("the EXTINF before this one has no URI");
        }
        if number.contains('.') {
            self.need(3, "a fraction in EXTINF");
        }
        self.next.duration = seconds(number);
        if self.next.duration.is_none() {
            self.complain(format!("`{}` is no duration", shortened(number)));
        }
    }

    fn map(&mut self, value: &str) {
        let attributes = self.attributes(value);
        let Some(uri) = attributes.get("URI") else {
            return self.complain("EXT-X-MAP has no URI");
        };
        // A MAP without a rest of the range begins with the file.
        let range = attributes.get("BYTERANGE").map(byte_range);
        if range == Some(None) {
            self.complain("EXT-X-MAP has a BYTERANGE that is none");
        }
        let range = range.flatten().map(|(bytes, offset)| Range { bytes, offset: offset.unwrap_or(0) });
        let version = if self.media.is_i_frames_only { 5 } else { 6 };
        self.need(version, "EXT-X-MAP");
        self.media.maps.push(Map { line: self.line, uri: uri.to_owned(), range });
    }

    fn need(&mut self, version: u64, tag: &'static str) {
        if version > self.media.needs.0 {
            self.media.needs = (version, tag);
        }
    }

    fn uri(&mut self, uri: &str) {
        if let Some((line, attributes)) = self.variant.take() {
            if self.multivariant.variants.len() >= MAX_VARIANTS {
                return self.complain(format!("more than {MAX_VARIANTS} variants"));
            }
            self.multivariant.variants.push(Entry { line, uri: Some(uri.to_owned()), attributes });
            return;
        }
        let next = std::mem::take(&mut self.next);
        let Some(duration) = next.duration else {
            return self.complain(format!("`{}` has no EXTINF or EXT-X-STREAM-INF", shortened(uri)));
        };
        if self.media.segments.len() >= MAX_SEGMENTS {
            return self.complain(format!("more than {MAX_SEGMENTS} segments"));
        }
        let range = match next.range {
            Some((bytes, offset)) => self.placed(uri, bytes, offset),
            None => None,
        };
        self.media.segments.push(Segment {
            line: self.line,
            uri: uri.to_owned(),
            duration,
            range,
            map: self.media.maps.len().checked_sub(1),
            is_discontinuous: next.is_discontinuous,
            is_gap: next.is_gap,
        });
    }

    /// A range without an offset goes on where the one before it ended, in the same file.
    fn placed(&mut self, uri: &str, bytes: u64, offset: Option<u64>) -> Option<Range> {
        let before = self.media.segments.last().filter(|segment| segment.uri == uri);
        let offset = offset.or_else(|| before?.range?.end());
        if offset.is_none() {
            self.complain("the byte range says not where it begins");
        }
        Some(Range { bytes, offset: offset? })
    }

    fn finish(mut self) -> (Playlist, Complaints) {
        if self.variant.is_some() || self.next.duration.is_some() {
            self.complain("the playlist ends where a URI is expected");
        }
        if self.is_multivariant && self.is_media {
            self.complain("tags of a multivariant and of a media playlist are mixed");
        }
        let playlist = match self.is_multivariant {
            true => Playlist::Multivariant(self.multivariant),
            false => Playlist::Media(self.media),
        };
        (playlist, self.complaints)
    }
}

/// Durations that make sense: not negative, not infinite, and less than a month.
fn seconds(text: &str) -> Option<f64> {
    let value: f64 = text.trim().parse().ok()?;
    (0.0..3e6).contains(&value).then_some(value)
}

/// `bytes[@offset]`.
fn byte_range(text: &str) -> Option<(u64, Option<u64>)> {
    match text.trim().split_once('@') {
        Some((bytes, offset)) => Some((bytes.parse().ok()?, Some(offset.parse().ok()?))),
        None => Some((text.trim().parse().ok()?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn media(text: &str) -> (Media, Complaints) {
        match parse(text.as_bytes()) {
            Ok((Playlist::Media(media), complaints)) => (media, complaints),
            other => panic!("not a media playlist: {other:?}"),
        }
    }

    #[test]
    fn ranges_go_on_where_the_last_one_ended() {
        let text = "#EXTM3U\n#EXT-X-MAP:URI=\"all.mp4\",BYTERANGE=\"700@0\"\n\
                    #EXTINF:6.0,\n#EXT-X-BYTERANGE:100@700\nall.mp4\n\
                    #EXTINF:6.0,\n#EXT-X-BYTERANGE:50\nall.mp4\n#EXT-X-ENDLIST\n";

        let (media, complaints) = media(text);

        assert_eq!(complaints, []);
        assert_eq!(media.segments[1].range, Some(Range { offset: 800, bytes: 50 }));
        assert_eq!(media.segments[1].map, Some(0));
        assert_eq!(media.needs, (6, "EXT-X-MAP"));
    }

    #[test]
    fn every_oddity_is_told_with_its_line() {
        for (line, odd) in [
            (2, "#EXTINF:NaN,\na.ts"),
            (2, "#EXTINF:-1,\na.ts"),
            (2, "a.ts"),
            (3, "#EXTINF:1,\n#EXTINF:2,\na.ts"),
            (2, "#EXT-X-TARGETDURATION:inf"),
            (2, "#EXT-X-MAP:BYTERANGE=\"1@2\""),
            (2, "#EXT-X-BYTERANGE:18446744073709551616"),
            (4, "#EXTINF:1,\n#EXT-X-BYTERANGE:5\na.ts"),
            (2, "#EXTINF:1,"),
        ] {
            let (_, complaints) = media(&format!("#EXTM3U\n{odd}"));
            assert_eq!(complaints.first().map(|(line, _)| *line), Some(line), "{odd}: {complaints:?}");
        }
    }
}
