//! A chunk of picture into segments.

use super::segment::{Place, Segment, only_track};
use super::{Entry, Error, Reader, Sample, malformed};
use crate::manifest::{self, Shape};
use crate::ratio::Ratio;
use pipeline::Name;
use std::fs::File;
use std::path::Path;

/// Which part of its track a file is. All of it lies on one grid of frames that begins at time 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Of the track: also the folder its files are written into.
    pub name: Name,
    /// The number on the grid of the file's first frame.
    pub first_frame: u64,
    /// How many frames the file must have.
    pub frames: u64,
    pub frames_per_segment: u32,
    /// Counted over the whole track, from 0.
    pub first_segment: u32,
    /// In the timescale of the file.
    pub ticks_per_frame: u32,
    /// By how many frames decoding runs ahead of showing: the same for all files of a track, whatever each of them needs,
    /// for all have one init segment.
    pub delay: u32,
}

/// Writes `init.mp4` and the segments of `file` into the track's folder below `folder`: a fragment for each group of
/// pictures, each frame at its place on the grid, the first picture presented at its own. After an error, the
/// folder holds an unknown part of the files.
pub fn cut(file: &Path, folder: &Path, cut: &Cut) -> Result<manifest::Track, Error> {
    let reader = Reader::open(File::open(file)?)?;
    let track = only_track(&reader)?;
    let Some(Entry::Video { codec, width, height }) = track.entry else {
        return Err(malformed("the track is not of picture"));
    };
    let frame_rate = Ratio::new(track.timescale, cut.ticks_per_frame);
    let frame_rate = frame_rate.ok_or_else(|| malformed("frames that last no time"))?;
    let place = Place { folder, track: &cut.name };
    let moov = reader.moov().to_vec();
    let cutter = Cutter { cut, place, reader, shift: None, frames: 0, open: None, done: Vec::new() };
    let segments = cutter.run()?;
    let init = place.write_init(&moov, cut.first_segment, cut.delay_ticks())?;
    Ok(manifest::Track {
        name: cut.name.clone(),
        codec,
        timescale: track.timescale,
        shape: Shape::Video { width, height, frame_rate },
        init,
        later_inits: Vec::new(),
        segments,
    })
}

impl Cut {
    fn delay_ticks(&self) -> u32 {
        self.delay.saturating_mul(self.ticks_per_frame)
    }
}

struct Cutter<'a> {
    cut: &'a Cut,
    place: Place<'a>,
    reader: Reader<File>,
    /// By how much the file presents its first picture later than it is decoded; known from the first on.
    shift: Option<i32>,
    /// How many were written.
    frames: u64,
    open: Option<Segment>,
    done: Vec<manifest::Segment>,
}

impl Cutter<'_> {
    fn run(mut self) -> Result<Vec<manifest::Segment>, Error> {
        let mut group = Vec::new();
        while let Some(fragment) = self.reader.next_fragment()? {
            for sample in fragment.samples {
                if sample.is_sync {
                    self.write_group(&group)?;
                    group.clear();
                }
                group.push(sample);
                if group.len() > self.cut.frames_per_segment as usize {
                    let frame = self.grid(self.frames) + u64::from(self.cut.frames_per_segment);
                    return Err(Error::NoKeyFrame { frame });
                }
            }
        }
        self.write_group(&group)?;
        if self.frames != self.cut.frames {
            return Err(Error::Frames { found: self.frames, expected: self.cut.frames });
        }
        self.close()?;
        Ok(self.done)
    }

    fn write_group(&mut self, group: &[Sample]) -> Result<(), Error> {
        let Some(first) = group.first() else { return Ok(()) };
        let shift = *self.shift.get_or_insert(first.cts);
        self.check_group(group, shift)?;
        let frame = self.grid(self.frames);
        let mut segment = self.segment_for(group.len() as u64)?;
        let sequence = u32::try_from(frame + 1).map_err(|_| malformed("more frames than can be counted"))?;
        let delayed = self.delayed(group, shift)?;
        let key_frame = segment.add(&mut self.reader, &delayed, sequence)?;
        segment.add_key_frame(key_frame);
        self.open = Some(segment);
        self.frames += group.len() as u64;
        Ok(())
    }

    /// With the delay of the track in place of the file's own.
    fn delayed(&self, group: &[Sample], shift: i32) -> Result<Vec<Sample>, Error> {
        let delay = i32::try_from(self.cut.delay_ticks()).unwrap_or(i32::MAX);
        let delayed = |sample: &Sample| {
            let cts = sample.cts.checked_sub(shift).and_then(|cts| cts.checked_add(delay));
            let cts = cts.ok_or_else(|| malformed("an absurd composition offset"))?;
            Ok(Sample { cts, ..*sample })
        };
        group.iter().map(delayed).collect()
    }

    /// A group is closed: its pictures fill its place on the grid, and none else's.
    fn check_group(&self, group: &[Sample], shift: i32) -> Result<(), Error> {
        let frame = self.grid(self.frames);
        if !group[0].is_sync {
            return Err(Error::NoKeyFrame { frame });
        }
        let ticks = self.cut.ticks_per_frame;
        if let Some(at) = group.iter().position(|sample| sample.duration != ticks) {
            let found = group[at].duration.into();
            return Err(Error::Uneven { frame: frame + at as u64, found, expected: ticks.into() });
        }
        let mut shown: Vec<_> = group.iter().map(|sample| sample.pts() - i128::from(shift)).collect();
        let is_first_first = shown[0] == i128::from(group[0].dts);
        shown.sort_unstable();
        let is_even = shown.windows(2).all(|pair| pair[1] - pair[0] == i128::from(ticks));
        match is_first_first && is_even && shown[0] == i128::from(group[0].dts) {
            true => Ok(()),
            false => Err(Error::OpenGop { frame }),
        }
    }

    /// The segment that the next `frames` go into: the open one, or a new one if that is full.
    fn segment_for(&mut self, frames: u64) -> Result<Segment, Error> {
        let per_segment = u64::from(self.cut.frames_per_segment);
        let used = self.frames % per_segment;
        if used + frames > per_segment {
            return Err(Error::NoKeyFrame { frame: self.grid(self.frames - used + per_segment) });
        }
        if used != 0
            && let Some(open) = self.open.take()
        {
            return Ok(open);
        }
        self.close()?;
        let number = u64::from(self.cut.first_segment) + self.frames / per_segment;
        let number = u32::try_from(number).map_err(|_| malformed("more segments than can be counted"))?;
        let start = self.grid(self.frames).checked_mul(self.cut.ticks_per_frame.into());
        self.place.begin_segment(number, start.ok_or_else(|| malformed("a time beyond the end of time"))?)
    }

    fn close(&mut self) -> Result<(), Error> {
        if let Some(open) = self.open.take() {
            self.done.push(open.finish()?);
        }
        Ok(())
    }

    /// The number on the grid of the file's frame of this index.
    fn grid(&self, index: u64) -> u64 {
        self.cut.first_frame.saturating_add(index)
    }
}
