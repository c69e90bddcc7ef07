//! A segment while it is written.

use super::output::Output;
use super::write::{self, Fragment};
use super::{Error, Reader, Sample, Track, malformed};
use crate::manifest::{self, Artifact, KeyFrame};
use std::fs::File;
use std::io::Write;
use std::path::Path;

/// The files of one run of a track go into a folder named for the track.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub folder: &'a Path,
    pub track: &'a str,
}

impl Place<'_> {
    /// Writes the init segment. Only the track's first run calls it `init.mp4`: those of the others are dropped when
    /// they are equal to it, and must not be taken for it when they are not.
    pub fn write_init(&self, moov: &[u8], first_segment: u32, delay: u32) -> Result<Artifact, Error> {
        let path = manifest::Track::init_path(self.track, first_segment);
        let mut output = Output::create(self.folder, &path)?;
        output.write_all(&write::init(moov, delay)?)?;
        Ok(output.finish()?)
    }

    pub fn begin_segment(&self, number: u32, start: u64) -> Result<Segment, Error> {
        let path = manifest::Track::segment_path(self.track, number);
        let mut output = Output::create(self.folder, &path)?;
        output.write_all(write::STYP)?;
        Ok(Segment { output, number, start, duration: 0, samples: 0, key_frames: Vec::new() })
    }
}

pub struct Segment {
    output: Output,
    number: u32,
    start: u64,
    duration: u64,
    samples: u32,
    key_frames: Vec<KeyFrame>,
}

impl Segment {
    /// When what is added next begins.
    pub fn end(&self) -> u64 {
        self.start + self.duration
    }

    /// Adds one fragment, and returns what an I-frame playlist would say of it.
    pub fn add(
        &mut self,
        reader: &mut Reader<File>,
        samples: &[Sample],
        sequence: u32,
    ) -> Result<KeyFrame, Error> {
        let (start, offset) = (self.end(), self.output.bytes());
        let head = Fragment { sequence, start, samples }.head()?;
        self.output.write_all(&head)?;
        reader.copy(samples, &mut self.output)?;
        self.duration += samples.iter().map(|sample| u64::from(sample.duration)).sum::<u64>();
        self.samples += samples.len() as u32;
        let first = samples.first().map_or(0, |sample| u64::from(sample.size));
        Ok(KeyFrame { start, offset, bytes: head.len() as u64 + first })
    }

    pub fn add_key_frame(&mut self, key_frame: KeyFrame) {
        self.key_frames.push(key_frame);
    }

    pub fn finish(self) -> Result<manifest::Segment, Error> {
        Ok(manifest::Segment {
            file: self.output.finish()?,
            number: self.number,
            start: self.start,
            duration: self.duration,
            samples: self.samples,
            key_frames: self.key_frames,
        })
    }
}

/// The one track of a file that is to be cut.
pub fn only_track(reader: &Reader<File>) -> Result<Track, Error> {
    match &reader.movie().tracks[..] {
        [track] => Ok(track.clone()),
        tracks => Err(malformed(format!("{} tracks where one was expected", tracks.len()))),
    }
}
