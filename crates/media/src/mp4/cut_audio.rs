//! A whole track of sound into segments.

use super::segment::{Place, only_track};
use super::{Entry, Error, Reader, Sample, malformed};
use crate::manifest::{self, Shape};
use pipeline::Name;
use std::fs::File;
use std::path::Path;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutAudio {
    /// Of the track: also the folder its files are written into.
    pub name: Name,
    /// How many packets at the start only warm up the decoder: they are left out, and the one after them begins at 0.
    pub priming: u64,
    /// How many packets must be left.
    pub packets: u64,
    /// When the segments of the picture begin, the first of them at 0.
    pub starts: Vec<u64>,
    /// Ticks per second of `starts`.
    pub clock: u32,
}

/// Writes `init.mp4` and the segments of `file` into the track's folder below `folder`: one fragment each, cut where
/// the packets come nearest to the segments of the picture. Where the sound ends early, the last ones are missing.
pub fn cut_audio(file: &Path, folder: &Path, cut: &CutAudio) -> Result<manifest::Track, Error> {
    let mut reader = Reader::open(File::open(file)?)?;
    let track = only_track(&reader)?;
    let Some(Entry::Audio { codec, channels, sample_rate }) = track.entry else {
        return Err(malformed("the track is not of sound"));
    };
    let place = Place { folder, track: &cut.name };
    let init = place.write_init(reader.moov(), 0, 0)?;
    let packets = read_packets(&mut reader, cut)?;
    Ok(manifest::Track {
        name: cut.name.clone(),
        codec,
        timescale: track.timescale,
        shape: Shape::Audio { channels, sample_rate },
        init,
        later_inits: Vec::new(),
        segments: write_segments(&mut reader, &place, &packets, &cut.inner_bounds(track.timescale))?,
    })
}

/// All that are to be heard: forty bytes of memory for each, a few megabytes an hour.
fn read_packets(reader: &mut Reader<File>, cut: &CutAudio) -> Result<Vec<Sample>, Error> {
    let mut packets: Vec<Sample> = Vec::new();
    let (mut found, mut next_dts) = (0, None);
    while let Some(fragment) = reader.next_fragment()? {
        for sample in fragment.samples {
            if next_dts.is_some_and(|next| next != sample.dts) {
                return Err(Error::Hole { packet: found });
            }
            next_dts = Some(sample.dts + u64::from(sample.duration));
            found += 1;
            if found > cut.priming && packets.len() as u64 <= cut.packets {
                packets.push(sample);
            }
        }
    }
    match found.saturating_sub(cut.priming) {
        found if found == cut.packets => Ok(packets),
        found => Err(Error::Packets { found, expected: cut.packets }),
    }
}

fn write_segments(
    reader: &mut Reader<File>,
    place: &Place<'_>,
    packets: &[Sample],
    bounds: &[u64],
) -> Result<Vec<manifest::Segment>, Error> {
    let mut done = Vec::new();
    let (mut start, mut rest) = (0, packets);
    for bound in bounds.iter().copied().chain([u64::MAX]) {
        let (own, after) = rest.split_at(nearest(rest, start, bound));
        rest = after;
        if own.is_empty() {
            continue;
        }
        let number = done.len() as u32;
        let mut segment = place.begin_segment(number, start)?;
        segment.add(reader, own, number + 1)?;
        start = segment.end();
        done.push(segment.finish()?);
    }
    Ok(done)
}

/// How many of these packets, the first of which begins at `start`, come before the packet boundary nearest to
/// `bound`.
fn nearest(packets: &[Sample], start: u64, bound: u64) -> usize {
    let mut at = start;
    for (index, packet) in packets.iter().enumerate() {
        let end = at + u64::from(packet.duration);
        if end > bound {
            return if bound.saturating_sub(at) <= end - bound { index } else { index + 1 };
        }
        at = end;
    }
    packets.len()
}

impl CutAudio {
    /// Where segments end, all but the last, in ticks of the sound.
    fn inner_bounds(&self, timescale: u32) -> Vec<u64> {
        let clock = u128::from(self.clock.max(1));
        let convert = |ticks: u64| (u128::from(ticks) * u128::from(timescale) + clock / 2) / clock;
        self.starts.iter().skip(1).map(|ticks| u64::try_from(convert(*ticks)).unwrap_or(u64::MAX)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(count: u64) -> Vec<Sample> {
        let packet = |index| Sample {
            track: 1,
            dts: index * 1024,
            cts: 0,
            duration: 1024,
            size: 1,
            is_sync: true,
            offset: 0,
        };
        (0..count).map(packet).collect()
    }

    #[test]
    fn the_nearest_packet_boundary_is_taken() {
        let packets = packets(10);

        assert_eq!(nearest(&packets, 0, 2048), 2);
        assert_eq!(nearest(&packets, 0, 2048 + 512), 2);
        assert_eq!(nearest(&packets, 0, 2048 + 513), 3);
        assert_eq!(nearest(&packets[2..], 2048, 4096), 2);
        assert_eq!(nearest(&packets, 0, 1_000_000), 10);
    }

    #[test]
    fn bounds_are_converted_to_the_clock_of_the_sound() {
        let (name, starts) = ("audio-en".parse().unwrap(), vec![0, 180_180, 360_360]);
        let cut = CutAudio { name, priming: 1, packets: 10, starts, clock: 30_000 };

        assert_eq!(cut.inner_bounds(48_000), [288_288, 576_576]);
    }
}
