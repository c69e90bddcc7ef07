//! Fragmented MP4: init segments, and media segments that need them.

use super::boxes;
use super::folder::Window;
use super::part::{Description, Kind, Part, Run, Sample};
use crate::mp4::{self, Entry, Movie, Reader};
use std::io::{self, Read, Seek};

/// How much of an init segment is searched for what [`boxes`] reads.
const HEAD: u64 = 1 << 20;

pub struct Init {
    pub movie: Movie,
    pub tracks: Vec<Description>,
}

impl Init {
    pub fn read(mut window: Window) -> Result<Self, mp4::Error> {
        let mut head = Vec::new();
        window.by_ref().take(HEAD).read_to_end(&mut head)?;
        window.seek(io::SeekFrom::Start(0))?;
        let movie = Reader::open(window)?.movie().clone();
        let tracks = movie.tracks.iter().filter_map(|track| describe(track, &head)).collect();
        Ok(Init { movie, tracks })
    }
}

/// `None` for what is neither picture nor sound.
fn describe(track: &mp4::Track, head: &[u8]) -> Option<Description> {
    let extras = boxes::Track::find(head, track.id);
    let shift = extras.as_ref().and_then(boxes::Track::shift).unwrap_or(0.0);
    let common = Description { shift, has_square_pixels: true, ..Description::default() };
    match track.entry.clone()? {
        Entry::Video { codec, width, height, .. } => Some(Description {
            is_video: true,
            codec: Some(codec),
            size: Some((width, height)),
            is_turned: extras.as_ref().is_some_and(|extras| !extras.is_upright()),
            has_square_pixels: extras.as_ref().and_then(boxes::Track::pixel).is_none_or(|(w, h)| w == h),
            range: extras.and_then(|extras| extras.range()),
            ..common
        }),
        Entry::Audio { codec, channels, .. } => {
            Some(Description { codec: Some(codec), channels: Some(channels), ..common })
        }
    }
}

/// Measures a media segment.
pub fn part(window: Window, movie: &Movie) -> Result<Part, mp4::Error> {
    let bytes = window.size();
    let mut reader = Reader::segment(window, movie.clone())?;
    let (mut runs, mut payload): (Vec<Run>, u64) = (Vec::new(), 0);
    while let Some(fragment) = reader.next_fragment()? {
        for sample in &fragment.samples {
            let track = movie.tracks.iter().find(|track| track.id == sample.track);
            let Some((track, kind)) = track.and_then(|track| Some((track, kind(track)?))) else { continue };
            payload = payload.saturating_add(sample.size.into());
            let sample = Sample {
                decoded: sample.dts.into(),
                shown: sample.pts(),
                duration: sample.duration.into(),
                is_key: sample.is_sync,
            };
            let known = runs.iter().position(|run| run.track == track.id);
            let at = known.unwrap_or_else(|| {
                runs.push(Run::begin(kind, track.id, track.timescale, &sample));
                runs.len() - 1
            });
            runs[at].add(&sample);
        }
    }
    if runs.is_empty() {
        return Err(mp4::Error::Malformed("it holds no picture and no sound".into()));
    }
    Ok(Part { bytes, payload, runs })
}

fn kind(track: &mp4::Track) -> Option<Kind> {
    match track.kind {
        mp4::Kind::Video => Some(Kind::Video),
        mp4::Kind::Audio => Some(Kind::Audio),
        mp4::Kind::Other(_) => None,
    }
}
