//! Finds out what a file is: asks ffprobe twice, and believes packets before headers.
//!
//! ```text
//! look(input)           the first command: container, streams, chapters
//! Looked::read(…)       its answer, or why the file is unusable
//! looked.scan()         the second command: every packet of the file, in one pass over it
//! looked.finish(…)      its answer: the Source
//! ```
//!
//! What is done with what is found is told in `docs/input.md`.

pub mod input;
mod language;
mod packets;
mod picture;
mod report;
mod tracks;
mod unusable;

pub use unusable::{Error, Unusable};

use crate::ratio::Ratio;
use crate::source::{Audio, Chapter, Source, Subtitle, Video};
use crate::timeline::{self, Nothing, SLACK};
use packets::Packets;
use picture::Shown;
use report::{Report, Stream};
use std::collections::BTreeMap;
use tracks::Chosen;

/// How far into a file ffprobe goes to find what its streams are. A stream that says nothing of itself for so long, in
/// microseconds and bytes, is not understood.
const ANALYZE_US: &str = "30000000";
const ANALYZE_BYTES: &str = "50000000";

/// A longer description is no description.
const LONGEST_REPORT: usize = 16 << 20;

const MOST_CHAPTERS: usize = 1000;

/// A header may be off by so much, in seconds, before it is worth a note.
const HEADER_SLACK: f64 = 1.0;

/// The file in question, as the one who asks knows it.
#[derive(Debug, Clone, Copy)]
pub struct File<'a> {
    /// A path, or an `http(s)` URL.
    pub input: &'a str,
    pub bytes: u64,
    /// Its first bytes, some hundred, to tell what it is if not a video; may be empty.
    pub head: &'a [u8],
}

/// What a command left behind.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    pub stdout: &'a [u8],
    pub stderr: &'a str,
    /// Whether it ended by itself, with code 0.
    pub succeeded: bool,
}

/// The command for a first look at streams, container and chapters. Reads little of the file.
pub fn look(input: &str) -> Vec<String> {
    let wanted = ["-show_format", "-show_streams", "-show_chapters", "-of", "json=compact=1"];
    command(input, &wanted)
}

/// What the first look found, before any packet is counted.
#[derive(Debug)]
pub struct Looked {
    input: String,
    bytes: u64,
    report: Report,
    chosen: Chosen,
}

impl Looked {
    pub fn read(file: &File<'_>, answer: &Answer<'_>) -> Result<Self, Error> {
        if file.bytes == 0 && !input::is_remote(file.input) {
            return Err(Unusable::Empty.into());
        }
        if !answer.succeeded {
            return Err(unusable::refusal(answer, file.head));
        }
        if answer.stdout.len() > LONGEST_REPORT {
            return Err(Unusable::Absurd("it has too many streams or chapters".into()).into());
        }
        let report = Report::parse(answer.stdout)
            .ok_or_else(|| Error::Failed("ffprobe's answer is not what it should be".into()))?;
        let chosen = Chosen::of(&report)?;
        Ok(Looked { input: file.input.into(), bytes: file.bytes, report, chosen })
    }

    /// The command that lists every packet. It reads the whole file, once, and costs 2 s of processor time for an hour of
    /// picture and sound; in return it is right whatever the headers say.
    pub fn scan(&self) -> Vec<String> {
        let wanted = "packet=stream_index,pts,dts,duration,flags:packet_side_data=side_data_type";
        command(&self.input, &["-show_entries", wanted, "-of", "csv=p=0"])
    }

    pub fn finish(self, answer: &Answer<'_>) -> Result<Source, Error> {
        if !answer.succeeded || (input::is_remote(&self.input) && unusable::broke_off(answer.stderr)) {
            return Err(unusable::refusal(answer, &[]));
        }
        let packets = self.packets(answer.stdout);
        if packets.is_encrypted {
            return Err(Unusable::Encrypted.into());
        }
        if packets.is_too_much {
            return Err(Unusable::Absurd("it has more packets than a week of video".into()).into());
        }
        Ok(self.source(packets, answer.stderr)?)
    }

    fn packets(&self, csv: &[u8]) -> Packets {
        let ticks = |stream: &Stream| Some((stream.index?, time_base(stream).inverse().to_f64()));
        let audio: BTreeMap<u32, f64> =
            self.chosen.audio.iter().filter_map(|at| ticks(&self.report.streams[*at])).collect();
        let video = self.chosen.video.and_then(|at| self.report.streams[at].index);
        Packets::read(csv, video, &audio, self.may_jump())
    }

    fn source(mut self, packets: Packets, stderr: &str) -> Result<Source, Unusable> {
        let mut notes = std::mem::take(&mut self.chosen.notes);
        let audio = self.audio(&packets, &mut notes);
        let video = match self.chosen.video {
            Some(at) => Some(self.video(at, packets, stderr, &audio, &mut notes)?),
            None if audio.is_empty() => return Err(Unusable::NoSound),
            None => None,
        };
        let mut source = Source {
            container: self.container().into(),
            bytes: self.bytes,
            start: self.report.format.start_time.filter(|start| start.is_finite()).unwrap_or(0.0),
            video,
            audio,
            subtitles: self.subtitles(),
            chapters: Vec::new(),
            notes,
        };
        source.chapters = self.chapters(&source);
        self.compare(&mut source);
        Ok(source)
    }

    fn container(&self) -> &str {
        self.report.format.format_name.as_deref().unwrap_or_default()
    }

    /// Whether the container is of those whose clock may start anew in the middle.
    fn may_jump(&self) -> bool {
        matches!(self.container(), "mpegts" | "mpeg" | "wtv" | "live_flv")
    }

    /// Whether entering the container in the middle is known to give the same frames at the same times.
    fn can_seek(&self) -> bool {
        self.container()
            .split(',')
            .any(|name| matches!(name, "mov" | "matroska" | "mpegts" | "avi" | "flv" | "mxf"))
    }

    fn video(
        &self,
        at: usize,
        packets: Packets,
        stderr: &str,
        audio: &[Audio],
        notes: &mut Vec<String>,
    ) -> Result<Video, Unusable> {
        let stream = &self.report.streams[at];
        let codec = stream.codec().unwrap_or_default().to_string();
        if packets.video.is_empty() && stderr.contains("external track") {
            return Err(Unusable::Elsewhere);
        }
        let rates = [&stream.avg_frame_rate, &stream.r_frame_rate];
        let facts = timeline::Stream {
            time_base: time_base(stream),
            claimed: rates.into_iter().flatten().filter_map(|text| text.parse().ok()).collect(),
            may_jump: self.may_jump(),
            can_seek: self.can_seek(),
        };
        let found = timeline::timing(packets.video, &facts).map_err(|nothing| match nothing {
            Nothing::NoFrames => Unusable::NoFrames,
            Nothing::TooLong => Unusable::Absurd(nothing.to_string()),
        })?;
        let pixel_format = stream.pix_fmt.clone().filter(|name| name != "unknown");
        let (Some(pixel_format), Some(shown)) = (pixel_format, Shown::of(stream)) else {
            return Err(Unusable::Undecodable { codec });
        };
        let color = picture::color(stream).map_err(Unusable::DolbyVision)?;
        if found.headless > 0 {
            notes.push(format!("the first {} frames lack their key frame and are left out", found.headless));
        }

        let mut timing = found.timing;
        let first = timing.first_seconds();
        let sound_end = audio.iter().map(|audio| audio.start + audio.duration - first).fold(0.0, f64::max);
        timeline::hold(&mut timing, sound_end);
        Ok(Video {
            stream: stream.index.unwrap_or(0),
            codec,
            width: shown.width,
            height: shown.height,
            rotation: shown.rotation,
            sample_aspect: shown.sample_aspect,
            bit_depth: picture::bit_depth(&pixel_format),
            pixel_format,
            color,
            is_interlaced: picture::is_interlaced(stream),
            timing,
        })
    }

    fn audio(&self, packets: &Packets, notes: &mut Vec<String>) -> Vec<Audio> {
        let mut tracks = Vec::new();
        for stream in self.chosen.audio.iter().map(|at| &self.report.streams[*at]) {
            let index = stream.index.unwrap_or(0);
            match packets.audio.get(&index) {
                Some(extent) => tracks.push(tracks::audio(stream, extent, time_base(stream))),
                None => notes.push(format!("stream {index} holds no sound and is left out")),
            }
        }
        tracks
    }

    fn subtitles(&self) -> Vec<Subtitle> {
        self.report
            .streams
            .iter()
            .filter(|stream| stream.is("subtitle"))
            .filter_map(tracks::subtitle)
            .collect()
    }

    /// Chapters that lie within the output, on its clock.
    fn chapters(&self, source: &Source) -> Vec<Chapter> {
        let (zero, duration) = (source.zero(), source.duration());
        let within = |time: f64| (time - zero).clamp(0.0, duration);
        let mut chapters: Vec<Chapter> = Vec::new();
        for (number, chapter) in (1..=MOST_CHAPTERS).zip(&self.report.chapters) {
            let (Some(start), Some(end)) = (chapter.start_time, chapter.end_time) else { continue };
            let (start, end) = (within(start), within(end));
            let title =
                report::tag(&chapter.tags, "title").map_or_else(|| format!("Chapter {number}"), String::from);
            if start < end {
                chapters.push(Chapter { start, end, title });
            }
        }
        chapters
    }

    /// Notes where the streams or the header do not agree on how long it all lasts.
    fn compare(&self, source: &mut Source) {
        let (zero, duration) = (source.zero(), source.duration());
        let mut notes = Vec::new();
        if let Some(held) =
            source.video.as_ref().map(|video| video.timing.held as f64 / video.timing.rate.to_f64())
            && held > 0.0
        {
            notes.push(format!("the picture ends {held:.1} s before the sound; its last frame is held"));
        }
        for audio in &source.audio {
            let (early, short) = (zero - audio.start, duration - (audio.start + audio.duration - zero));
            if short > SLACK {
                notes.push(format!(
                    "the sound of stream {} ends {short:.1} s before the picture",
                    audio.stream
                ));
            }
            if early > SLACK {
                notes.push(format!(
                    "the first {early:.1} s of sound of stream {} precede the picture and are left out",
                    audio.stream
                ));
            }
        }
        if let Some(claimed) = self.report.format.duration.filter(|claimed| claimed - duration > HEADER_SLACK)
        {
            notes.push(format!(
                "the file claims to last {claimed:.1} s but holds {duration:.1} s: it may be cut short"
            ));
        }
        source.notes.append(&mut notes);
    }
}

fn command(input: &str, wanted: &[&str]) -> Vec<String> {
    let limits = ["-analyzeduration", ANALYZE_US, "-probesize", ANALYZE_BYTES];
    // Warnings tell when a format was only guessed by the file's name.
    let start = ["ffprobe", "-hide_banner", "-v", "warning"];
    let words = start.iter().chain(&limits).chain(wanted).map(|word| word.to_string());
    words.chain(input::arguments(input)).collect()
}

fn time_base(stream: &Stream) -> Ratio {
    let claimed = stream.time_base.as_deref().and_then(|text| text.parse().ok());
    claimed.unwrap_or(Ratio { num: 1, den: 90_000 })
}
