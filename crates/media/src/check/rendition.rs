//! One media playlist with everything its segments hold.

use super::finding::{Findings, Place};
use super::folder::{Astray, Folder, Name, Range};
use super::part::{Description, Kind, Part, Run};
use super::playlist::{Media, Segment};
use super::{fmp4, rule, ts, vtt};
use pipeline::codec;
use std::collections::HashMap;
use std::io::Read;

pub struct Rendition {
    pub playlist: Name,
    /// Its folder, or the playlist's name where several are in one folder.
    pub name: String,
    pub media: Media,
    pub container: Container,
    /// For each segment, unless it could not be measured.
    pub parts: Vec<Option<Part>>,
    /// The file of each segment, where it was found.
    pub files: Vec<Option<Name>>,
    pub tracks: Vec<Description>,
    inits: Vec<Option<(Name, fmp4::Init)>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    Fmp4,
    Ts,
    /// Subtitles.
    WebVtt,
    /// Not there, encrypted, or of a kind that is not looked into.
    Unknown,
}

impl Rendition {
    pub fn load(folder: &Folder, playlist: Name, media: Media, findings: &mut Findings) -> Self {
        let name = short_name(&playlist);
        let mut loader = Loader { folder, playlist: &playlist, media: &media, findings };
        let files = loader.files();
        let container = loader.container(&files);
        let inits = loader.inits(container);
        let mut tracks = described(inits.iter().flatten().map(|(_, init)| init.tracks.as_slice()));
        let is_measured = !media.is_i_frames_only;
        let parts = match container {
            Container::Fmp4 if is_measured => loader.fmp4(&files, &inits),
            Container::Ts if is_measured => loader.ts(&files, &mut tracks),
            Container::WebVtt => loader.vtt(&files),
            _ => files.iter().map(|_| None).collect(),
        };
        Rendition { playlist, name, media, container, parts, files, tracks, inits }
    }

    /// The file with the init segment of a segment.
    pub fn init_of(&self, segment: usize) -> Option<(&Name, &fmp4::Init, Option<Range>)> {
        let map = self.media.segments.get(segment)?.map?;
        let (name, init) = self.inits.get(map)?.as_ref()?;
        Some((name, init, self.media.maps.get(map)?.range))
    }

    /// Whether all that is measured is known of every segment, so that sums mean something.
    pub fn is_whole(&self) -> bool {
        !self.parts.is_empty() && self.parts.iter().all(Option::is_some)
    }

    pub fn place(&self) -> Place {
        Place::file(self.playlist.clone())
    }

    pub fn segment_place(&self, index: usize) -> Place {
        let line = self.media.segments.get(index).map(|segment| segment.line);
        Place { line, ..self.place() }.segment(index)
    }

    pub fn description(&self, kind: Kind) -> Option<&Description> {
        self.tracks.iter().find(|track| track.is_video == (kind == Kind::Video))
    }

    pub fn has(&self, kind: Kind) -> bool {
        self.description(kind).is_some()
    }

    pub fn bytes(&self) -> u64 {
        self.parts.iter().flatten().map(|part| part.bytes).sum()
    }

    /// What playlists promise, in seconds.
    pub fn promised(&self) -> f64 {
        self.media.segments.iter().map(|segment| segment.duration).sum()
    }

    /// The samples of one kind over all segments, when all are known.
    pub fn whole(&self, kind: Kind) -> Option<Whole> {
        if !self.is_whole() {
            return None;
        }
        let runs: Vec<_> = self.parts.iter().flatten().filter_map(|part| part.run(kind)).collect();
        let (first, last) = (runs.first()?, runs.last()?);
        let shift = self.description(kind).map_or(0.0, |track| track.shift);
        let samples = runs.iter().map(|run| run.samples).sum();
        let duration: f64 = runs.iter().map(|run| run.duration()).sum();
        // The last frame's duration is often a guess of the writer.
        let is_even = runs.iter().all(|run| run.longest.abs_diff(run.shortest) <= 1);
        Some(Whole {
            samples,
            duration,
            start: first.seconds(first.first_shown) + shift,
            end: last.seconds(last.last_shown_until) + shift,
            frame: runs.iter().map(|run| run.frame()).fold(0.0, f64::max),
            rate: if duration > 0.0 { samples as f64 / duration } else { 0.0 },
            is_even,
        })
    }

    /// Average and peak in bits per second. The peak is the worst run of segments that together last half to one and
    /// a half target durations, as HLS defines it.
    pub fn bitrates(&self) -> Option<(u64, u64)> {
        if !self.is_whole() {
            return None;
        }
        let bits: Vec<_> = self.parts.iter().flatten().map(|part| part.bytes as f64 * 8.0).collect();
        let seconds: Vec<_> =
            self.parts.iter().flatten().zip(&self.media.segments).map(real_seconds).collect();
        let total: f64 = seconds.iter().sum();
        if total <= 0.0 {
            return None;
        }
        let average = bits.iter().sum::<f64>() / total;
        let target = self.media.target.unwrap_or(0.0);
        let mut peak = 0.0;
        for first in 0..bits.len() {
            let (mut run_bits, mut run_seconds) = (0.0, 0.0);
            for at in first..bits.len() {
                run_bits += bits[at];
                run_seconds += seconds[at];
                if run_seconds > 1.5 * target {
                    break;
                }
                if run_seconds >= 0.5 * target && run_seconds > 0.0 {
                    peak = f64::max(peak, run_bits / run_seconds);
                }
            }
        }
        Some((average.round() as u64, peak.max(average).round() as u64))
    }
}

/// The tracks as the first init segment has them, with the codecs that players need for all init segments.
fn described<'a>(mut inits: impl Iterator<Item = &'a [Description]>) -> Vec<Description> {
    let mut tracks = inits.next().unwrap_or_default().to_vec();
    for later in inits {
        for track in &mut tracks {
            let same = later.iter().find(|it| it.is_video == track.is_video);
            let codecs = track.codec.as_ref().zip(same.and_then(|it| it.codec.as_ref()));
            if let Some(codec) = codecs.and_then(|(codec, later)| codec::for_both(codec, later)) {
                track.codec = Some(codec);
            }
        }
    }
    tracks
}

/// As promised where nothing is measured: subtitles.
fn real_seconds((part, segment): (&Part, &Segment)) -> f64 {
    part.main().map_or(segment.duration, Run::duration)
}

/// One kind of media from the first segment to the last; times in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    pub samples: u64,
    pub duration: f64,
    pub start: f64,
    pub end: f64,
    /// The longest sample.
    pub frame: f64,
    /// Samples per second.
    pub rate: f64,
    pub is_even: bool,
}

/// `video/1080p` of `video/1080p/index.m3u8`, and of `video/1080p.m3u8`.
fn short_name(playlist: &str) -> String {
    let stem = playlist.strip_suffix(".m3u8").unwrap_or(playlist);
    match stem.rsplit_once('/') {
        Some((folder, "index" | "playlist" | "media" | "stream" | "prog_index" | "video" | "audio")) => {
            folder.into()
        }
        _ => stem.into(),
    }
}

struct Loader<'a> {
    folder: &'a Folder,
    playlist: &'a str,
    media: &'a Media,
    findings: &'a mut Findings,
}

impl Loader<'_> {
    fn place(&self, segment: usize) -> Place {
        Place::line(self.playlist, self.media.segments[segment].line).segment(segment)
    }

    /// Where each segment is, once its range is known to be in its file.
    fn files(&mut self) -> Vec<Option<Name>> {
        let mut sizes: HashMap<Name, u64> = HashMap::new();
        let mut files = Vec::with_capacity(self.media.segments.len());
        for (index, segment) in self.media.segments.iter().enumerate() {
            if segment.is_gap {
                files.push(None);
                continue;
            }
            let place = self.place(index);
            let found = locate(
                self.folder,
                self.playlist,
                &segment.uri,
                place.clone(),
                &rule::SEGMENT_MISSING,
                self.findings,
            );
            files.push(found.filter(|name| {
                let Some(range) = segment.range else { return true };
                let bytes =
                    *sizes.entry(name.clone()).or_insert_with(|| self.folder.bytes(name).unwrap_or(0));
                let is_inside = range.bytes > 0 && range.end().is_some_and(|end| end <= bytes);
                if !is_inside {
                    let what = format!(
                        "{} bytes from {} on are not all in {name}, which has {bytes}",
                        range.bytes, range.offset
                    );
                    self.findings.add(&rule::RANGE, place, what);
                }
                is_inside
            }));
        }
        files
    }

    fn container(&mut self, files: &[Option<Name>]) -> Container {
        if self.media.is_encrypted {
            self.findings.add(
                &rule::ENCRYPTED,
                Place::file(self.playlist),
                "the segments are encrypted: what is in them is not checked",
            );
            return Container::Unknown;
        }
        if !self.media.maps.is_empty() {
            return Container::Fmp4;
        }
        let first = files.iter().zip(&self.media.segments).find_map(|(file, segment)| {
            let mut head = Vec::new();
            self.folder.window(file.as_ref()?, segment.range).ok()?.take(512).read_to_end(&mut head).ok()?;
            Some(head)
        });
        match first.as_deref() {
            Some(head) if vtt::is_vtt(head) => Container::WebVtt,
            Some(head) if is_box(head) => {
                let place = Place::file(self.playlist);
                self.findings.add(
                    &rule::MAP_MISSING,
                    place,
                    "the segments are fragmented MP4, but no EXT-X-MAP says how to read them",
                );
                Container::Unknown
            }
            Some(head) if head.first() == Some(&ts::SYNC) => Container::Ts,
            _ => Container::Unknown,
        }
    }

    fn inits(&mut self, container: Container) -> Vec<Option<(Name, fmp4::Init)>> {
        if container != Container::Fmp4 {
            return Vec::new();
        }
        let mut inits = Vec::new();
        for map in &self.media.maps {
            let place = Place::line(self.playlist, map.line);
            let name = locate(
                self.folder,
                self.playlist,
                &map.uri,
                place.clone(),
                &rule::SEGMENT_MISSING,
                self.findings,
            );
            inits.push(name.and_then(|name| {
                let window = self.folder.window(&name, map.range);
                match window.map_err(crate::mp4::Error::from).and_then(fmp4::Init::read) {
                    Ok(init) => Some((name, init)),
                    Err(error) => {
                        self.findings.add(
                            &rule::INIT,
                            place,
                            format!("init segment {name}: {}", said(&error)),
                        );
                        None
                    }
                }
            }));
        }
        inits
    }

    fn fmp4(&mut self, files: &[Option<Name>], inits: &[Option<(Name, fmp4::Init)>]) -> Vec<Option<Part>> {
        let each = files.iter().zip(&self.media.segments).enumerate();
        let mut parts = Vec::with_capacity(files.len());
        for (index, (file, segment)) in each {
            let init = segment.map.and_then(|map| inits.get(map)?.as_ref());
            let (Some(file), Some((_, init))) = (file, init) else {
                parts.push(None);
                continue;
            };
            let window = self.folder.window(file, segment.range).map_err(crate::mp4::Error::from);
            let part = window.and_then(|window| fmp4::part(window, &init.movie));
            if let Err(error) = &part {
                self.findings.add(&rule::SEGMENT, self.place(index), format!("{file}: {}", said(error)));
            }
            parts.push(part.ok());
        }
        parts
    }

    fn ts(&mut self, files: &[Option<Name>], tracks: &mut Vec<Description>) -> Vec<Option<Part>> {
        let each = files.iter().zip(&self.media.segments).enumerate();
        let mut parts = Vec::with_capacity(files.len());
        let mut clock = ts::Clock::default();
        for (index, (file, segment)) in each {
            let Some(file) = file else {
                parts.push(None);
                continue;
            };
            let window = self.folder.window(file, segment.range).map_err(|error| error.to_string());
            let part = window.and_then(|window| ts::part(window, &mut clock));
            if let Err(why) = &part {
                self.findings.add(&rule::TS_SEGMENT, self.place(index), format!("{file}: {why}"));
            }
            parts.push(part.ok().map(|(part, found)| {
                if tracks.is_empty() {
                    *tracks = found;
                }
                part
            }));
        }
        parts
    }

    fn vtt(&mut self, files: &[Option<Name>]) -> Vec<Option<Part>> {
        let each = files.iter().zip(&self.media.segments).enumerate();
        let mut parts = Vec::with_capacity(files.len());
        for (index, (file, segment)) in each {
            let Some(file) = file else {
                parts.push(None);
                continue;
            };
            let checked = self.folder.window(file, segment.range).map_err(|error| error.to_string());
            let checked = checked.and_then(vtt::part);
            if let Err(why) = &checked {
                self.findings.add(&rule::SUBTITLE, self.place(index), format!("{file}: {why}"));
            }
            parts.push(checked.ok());
        }
        parts
    }
}

/// Finds the file that a URI means, or says why there is none.
pub fn locate(
    folder: &Folder,
    playlist: &str,
    uri: &str,
    place: Place,
    missing: &rule::Rule,
    findings: &mut Findings,
) -> Option<Name> {
    let shown = super::attributes::shortened(uri);
    match folder.resolve(playlist, uri) {
        Ok(name) => return Some(name),
        Err(Astray::Missing) => findings.add(missing, place, format!("there is no file `{shown}`")),
        Err(Astray::Outside) => {
            findings.add(
                &rule::URI_OUTSIDE,
                place,
                format!("`{shown}` is outside of the folder: it was not followed"),
            );
        }
    }
    None
}

/// Without "not a usable MP4 file", which the rule says already.
fn said(error: &crate::mp4::Error) -> String {
    match error {
        crate::mp4::Error::Malformed(why) => why.clone(),
        crate::mp4::Error::Io(error) => error.to_string(),
        other => other.to_string(),
    }
}

fn is_box(head: &[u8]) -> bool {
    head.get(4..8).is_some_and(|kind| [&b"styp"[..], b"ftyp", b"moof", b"sidx", b"emsg"].contains(&kind))
}
