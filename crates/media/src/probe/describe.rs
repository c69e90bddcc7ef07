//! From what ffprobe said to the [`Source`].

use super::packets::{Packets, Reader};
use super::picture::{self, Shown};
use super::report::{self, Stream};
use super::{Looked, Unusable, tracks};
use crate::ratio::Ratio;
use crate::source::{Audio, Chapter, Source, Timing, Video};
use crate::timeline::{self, Found, Nothing, SLACK};
use std::collections::BTreeMap;

const MOST_CHAPTERS: usize = 1000;

/// A header may be off by so much, in seconds, before it is worth a note.
const HEADER_SLACK: f64 = 1.0;

pub fn reader(looked: &Looked, most_frames: u64) -> Reader {
    let ticks = |stream: &Stream| Some((stream.index?, time_base(stream).inverse().to_f64()));
    let audio: BTreeMap<u32, f64> = looked.sounds().filter_map(ticks).collect();
    let video = looked.picture().and_then(|stream| stream.index);
    Reader::new(video, &audio, looked.may_jump(), most_frames)
}

pub fn source(looked: Looked, packets: Packets, stderr: &str) -> Result<Source, Unusable> {
    let mut notes = looked.chosen.notes.clone();
    let audio = audio(&looked, &packets, &mut notes);
    let video = match looked.picture() {
        Some(_) if packets.video.len() == 0 && stderr.contains("external track") => {
            return Err(Unusable::Elsewhere);
        }
        Some(stream) => {
            let facts = facts(&looked, stream);
            let found = timeline::timing(packets.video.iter(), &facts).map_err(no_time)?;
            notes.extend(remarks(&found));
            Some(video(stream, found.timing, &audio)?)
        }
        None if audio.is_empty() => return Err(Unusable::NoSound),
        None => None,
    };
    let mut source = Source {
        container: looked.container().into(),
        bytes: looked.bytes,
        start: looked.report.format.start_time.filter(|start| start.is_finite()).unwrap_or(0.0),
        video,
        audio,
        subtitles: looked.report.streams.iter().filter_map(tracks::subtitle).collect(),
        chapters: Vec::new(),
        notes,
    };
    source.chapters = chapters(&looked.report.chapters, &source);
    source.notes.extend(disagreements(&looked, &source));
    Ok(source)
}

impl Looked {
    pub(super) fn picture(&self) -> Option<&Stream> {
        self.chosen.video.map(|at| &self.report.streams[at])
    }

    fn sounds(&self) -> impl Iterator<Item = &Stream> {
        self.chosen.audio.iter().map(|at| &self.report.streams[*at])
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
        let mut names = self.container().split(',');
        self.is_indexed() || names.any(|name| matches!(name, "mpegts" | "avi" | "flv" | "mxf"))
    }

    /// Whether a seek is known to land on the last key frame before its aim.
    fn is_indexed(&self) -> bool {
        self.container().split(',').any(|name| matches!(name, "mov" | "matroska"))
    }
}

fn facts(looked: &Looked, stream: &Stream) -> timeline::Stream {
    let rates = [&stream.avg_frame_rate, &stream.r_frame_rate];
    timeline::Stream {
        time_base: time_base(stream),
        claimed: rates.into_iter().flatten().filter_map(|text| text.parse().ok()).collect(),
        may_jump: looked.may_jump(),
        can_seek: looked.can_seek(),
        is_indexed: looked.is_indexed(),
        is_interlaced: picture::is_interlaced(stream),
    }
}

fn no_time(nothing: Nothing) -> Unusable {
    match nothing {
        Nothing::NoFrames => Unusable::NoFrames,
        Nothing::TooLong => Unusable::Absurd(nothing.to_string()),
    }
}

fn remarks(found: &Found) -> Vec<String> {
    let mut notes = Vec::new();
    if found.headless > 0 {
        notes.push(format!("the first {} frames lack their key frame and are left out", found.headless));
    }
    if found.is_torn {
        notes.push("the clock leaps within the file, which is encoded in one piece".into());
    }
    notes
}

fn video(stream: &Stream, mut timing: Timing, audio: &[Audio]) -> Result<Video, Unusable> {
    let codec = stream.codec().unwrap_or_default().to_string();
    let pixel_format = stream.pix_fmt.clone().filter(|name| name != "unknown");
    let (Some(pixel_format), Some(shown)) = (pixel_format, Shown::of(stream)) else {
        return Err(Unusable::Undecodable { codec });
    };
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
        color: picture::color(stream).map_err(Unusable::DolbyVision)?,
        is_interlaced: picture::is_interlaced(stream),
        timing,
    })
}

fn audio(looked: &Looked, packets: &Packets, notes: &mut Vec<String>) -> Vec<Audio> {
    let mut tracks = Vec::new();
    for stream in looked.sounds() {
        let index = stream.index.unwrap_or(0);
        match packets.audio.get(&index) {
            Some(extent) => tracks.push(tracks::audio(stream, extent, time_base(stream))),
            None => notes.push(format!("stream {index} holds no sound and is left out")),
        }
    }
    tracks
}

/// Chapters that lie within the output, on its clock.
fn chapters(found: &[report::Chapter], source: &Source) -> Vec<Chapter> {
    let (zero, duration) = (source.zero(), source.duration());
    let within = |time: f64| (time - zero).clamp(0.0, duration);
    let chapter = |(number, chapter): (usize, &report::Chapter)| {
        let (start, end) = (within(chapter.start_time?), within(chapter.end_time?));
        let title = report::tag(&chapter.tags, "title").map(String::from);
        let title = title.unwrap_or_else(|| format!("Chapter {number}"));
        (start < end).then_some(Chapter { start, end, title })
    };
    (1..=MOST_CHAPTERS).zip(found).filter_map(chapter).collect()
}

/// Notes where the streams and the header do not agree on how long it all lasts.
fn disagreements(looked: &Looked, source: &Source) -> Vec<String> {
    let (zero, duration) = (source.zero(), source.duration());
    let mut notes = Vec::new();
    let held =
        source.video.as_ref().map_or(0.0, |video| video.timing.held as f64 / video.timing.rate.to_f64());
    if held > 0.0 {
        notes.push(format!("the picture ends {held:.1} s before the sound; its last frame is held"));
    }
    for audio in &source.audio {
        let (early, short) = (zero - audio.start, duration - (audio.start + audio.duration - zero));
        let stream = audio.stream;
        if short > SLACK {
            notes.push(format!("the sound of stream {stream} ends {short:.1} s before the picture"));
        }
        if early > SLACK {
            notes.push(format!(
                "the first {early:.1} s of stream {stream}'s sound precede the picture and are left out"
            ));
        }
    }
    // The whole file's claim may be that of a stream that is left out.
    let of_stream = looked.picture().or(looked.sounds().next()).and_then(|stream| stream.duration);
    let claimed = of_stream.or(looked.report.format.duration).filter(|_| !looked.may_jump());
    if let Some(claimed) = claimed
        && claimed - duration > HEADER_SLACK
    {
        notes.push(format!(
            "the file claims to last {claimed:.1} s but holds {duration:.1} s: it may be cut short"
        ));
    }
    notes
}

fn time_base(stream: &Stream) -> Ratio {
    let claimed = stream.time_base.as_deref().and_then(|text| text.parse().ok());
    claimed.unwrap_or(Ratio { num: 1, den: 90_000 })
}
