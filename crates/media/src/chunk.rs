//! Chunks: the runs of whole segments that are encoded independently of each other, and how a video is divided into them.

use crate::picture;
use crate::source::Timing;
use serde::{Deserialize, Serialize};

/// A run of frames that one task encodes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub number: u32,
    pub first_frame: u64,
    /// The first frame that is not its own.
    pub end_frame: u64,
    pub first_segment: u32,
    /// Where its decoding begins, in seconds on the file's own clock; at the beginning where none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seek: Option<f64>,
}

impl Chunk {
    pub fn frames(&self) -> u64 {
        self.end_frame - self.first_frame
    }
}

/// Shorter chunks cost more than they gain: each begins with decoding up to its first frame and with an encoder that
/// knows nothing yet.
const LEAST_SECONDS: f64 = 12.0;
/// Longer ones lose more to a crash. Each seam costs about half a second of processor time.
const MOST_SECONDS: f64 = 48.0;

/// Into how many chunks a slot's share of what is left is divided: the more slots, the more unlike they are, and the more
/// one that is slow or dies leaves to the others.
fn chunks_per_slot(slots: u64) -> f64 {
    match slots {
        0 | 1 => 1.0,
        _ => 2.0 + (slots as f64 / 2.0).log2() / 3.0,
    }
}

/// All frames, for as many `slots`.
pub fn divide(timing: &Timing, segment_frames: u32, slots: u32) -> Vec<Chunk> {
    let segments = timing.frames.div_ceil(segment_frames.into()).max(1);
    let segment = f64::from(segment_frames) / timing.rate.to_f64();
    let mut borders = match timing.can_seek {
        true => borders(segments, segment, u64::from(slots).max(1)),
        false => vec![0, segments],
    };
    near_keys(&mut borders, |border| ahead_of(timing, border * u64::from(segment_frames)));
    let chunk = |(number, border): (usize, &[u64])| {
        let first_frame = border[0] * u64::from(segment_frames);
        Chunk {
            number: number as u32,
            first_frame,
            end_frame: (border[1] * u64::from(segment_frames)).min(timing.frames),
            first_segment: border[0] as u32,
            seek: picture::seek(timing, first_frame),
        }
    };
    borders.windows(2).enumerate().map(chunk).collect()
}

/// The segments at which chunks begin, and the end. Every slot gets one of a length, then one of a shorter: nobody knows
/// what a chunk will cost, and the short ones at the end fill what the long ones leave, so that all slots end together.
fn borders(segments: u64, segment_seconds: f64, slots: u64) -> Vec<u64> {
    let least = (LEAST_SECONDS / segment_seconds).ceil().max(1.0) as u64;
    let most = ((MOST_SECONDS / segment_seconds) as u64).max(least);
    let mut borders = vec![0];
    let mut add = |chunks: u64, segments: u64| {
        let from = borders.last().copied().unwrap_or(0);
        borders.extend((1..=chunks).map(|n| from + segments * n / chunks));
    };
    let mut left = segments;
    // While there is enough for two rounds, this one and another.
    while left >= 2 * slots * least {
        let share = left as f64 / slots as f64 / chunks_per_slot(slots);
        let length = (share.round() as u64).clamp(least, most);
        let is_scrap = (1..least).contains(&left.saturating_sub(slots * length));
        let length = if is_scrap { (left - least) / slots } else { length };
        add(slots, slots * length);
        left = left.saturating_sub(slots * length);
    }
    if left > 0 {
        add((left / least).clamp(1, slots), left);
    }
    borders
}

/// How many seconds are decoded for nothing where a chunk begins with this frame, as far as is known.
fn ahead_of(timing: &Timing, first_frame: u64) -> f64 {
    let first = timing.first_seconds() + first_frame as f64 / timing.rate.to_f64();
    let begins = timing.entry_for(first_frame).or_else(|| picture::seek(timing, first_frame));
    begins.map_or(0.0, |begins| first - begins)
}

/// What it must save to move a border by a segment, in seconds of decoding.
const MOVE_SECONDS: f64 = 0.2;

/// Moves borders to where a decoder can begin nearer to what it is to decode, by up to a third of the shorter chunk beside
/// them: the short ones at the end stay as they are, for all slots wait for the last. None becomes longer by more than a
/// third than the longest was.
fn near_keys(borders: &mut [u64], ahead_of: impl Fn(u64) -> f64) {
    let longest = borders.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    for at in 1..borders.len().saturating_sub(1) {
        let (before, here, after) = (borders[at - 1], borders[at], borders[at + 1]);
        let room = (here - before).min(after - here) / 3;
        let latest = (here + room).min(before + longest * 4 / 3).max(here);
        let cost = |border: &u64| ahead_of(*border) + MOVE_SECONDS * border.abs_diff(here) as f64;
        let best = (here - room..=latest).min_by(|a, b| cost(a).total_cmp(&cost(b)));
        borders[at] = best.unwrap_or(here);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Ratio;

    const R25: Ratio = Ratio { num: 25, den: 1 };

    fn timing(frames: u64) -> Timing {
        Timing {
            time_base: R25.inverse(),
            first: 0,
            rate: R25,
            frames,
            held: 0,
            source_frames: frames,
            is_one_to_one: true,
            reorder_seconds: 0.0,
            can_seek: true,
            keys: Vec::new(),
            entries: Vec::new(),
        }
    }

    fn lengths(seconds: u64, slots: u64) -> Vec<u64> {
        let borders = borders(seconds.div_ceil(6), 6.0, slots);
        borders.windows(2).map(|border| border[1] - border[0]).collect()
    }

    #[test]
    fn chunks_cover_every_frame_once_in_whole_segments() {
        for frames in [1, 149, 150, 151, 1000, 12_345, 540_000] {
            for slots in [0, 1, 2, 3, 8, 64, 1000] {
                let keys = (0..frames / 250 + 1).map(|n| n as f64 * 10.0 + 0.3).collect();
                let chunks = divide(&Timing { keys, ..timing(frames) }, 150, slots);

                assert_eq!((chunks[0].first_frame, chunks[chunks.len() - 1].end_frame), (0, frames));
                for pair in chunks.windows(2) {
                    assert_eq!(pair[0].end_frame, pair[1].first_frame);
                    assert_eq!(pair[1].first_frame, u64::from(pair[1].first_segment) * 150);
                }
                assert!(chunks.iter().all(|chunk| chunk.frames() > 0));
            }
        }
    }

    #[test]
    fn chunks_are_neither_too_short_nor_too_long() {
        assert_eq!(lengths(5, 2), [1], "a short clip is one piece");
        assert_eq!(lengths(18, 2), [3]);
        for seconds in (24..7200).step_by(30) {
            for slots in [1, 2, 3, 8, 64, 1000] {
                let lengths = lengths(seconds, slots);
                assert!(lengths.iter().all(|length| (2..=8).contains(length)), "{seconds} s: {lengths:?}");
            }
        }
    }

    #[test]
    fn long_chunks_come_first_and_short_ones_let_all_slots_end_together() {
        assert_eq!(lengths(24, 2), [2, 2]);
        assert_eq!(lengths(60, 2), [3, 3, 2, 2]);
        assert_eq!(lengths(144, 2), [6, 6, 3, 3, 3, 3]);
        assert_eq!(lengths(240, 2), [8, 8, 6, 6, 3, 3, 3, 3]);
        assert_eq!(lengths(144, 1), [8, 8, 8], "who is alone waits for nobody");
        assert_eq!(lengths(3600, 2)[..40], [8; 40]);
        assert!(lengths(3600, 64).len() > 200, "a fleet gets many");
    }

    #[test]
    fn a_border_moves_to_where_a_decoder_may_begin() {
        let moved = |mut borders: Vec<u64>, keys: &[u64]| {
            let ahead = |border: u64| keys.iter().filter(|key| **key <= border).map(|key| border - key).min();
            near_keys(&mut borders, |border| ahead(border).map_or(9.0, |ahead| ahead as f64));
            borders
        };

        assert_eq!(moved(vec![0, 6, 12], &[6]), [0, 6, 12]);
        assert_eq!(moved(vec![0, 6, 12], &[5]), [0, 5, 12]);
        assert_eq!(moved(vec![0, 6, 12], &[8]), [0, 8, 12]);
        assert_eq!(moved(vec![0, 6, 12], &[3]), [0, 4, 12], "as near as may be");
        assert_eq!(moved(vec![0, 6, 12, 18], &[4, 14]), [0, 4, 10, 18], "nothing becomes much longer");
        assert_eq!(moved(vec![0, 6, 8, 10], &[5, 9]), [0, 6, 8, 10], "the end stays as it is");
    }

    #[test]
    fn a_border_is_moved_to_a_key_frame_of_an_indexed_container() {
        let entries = (0..30).map(|n| f64::from(n) * 10.0).collect();
        let chunks = divide(&Timing { entries, ..timing(120 * 25) }, 150, 2);

        let begins: Vec<_> = chunks.iter().map(|chunk| chunk.first_frame / 25).collect();
        assert_eq!(begins, [0, 30, 60, 72, 96, 108]);
        assert_eq!(chunks[1].seek, Some(30.25));
    }

    #[test]
    fn what_cannot_be_entered_in_the_middle_is_one_chunk() {
        assert_eq!(divide(&Timing { can_seek: false, ..timing(100_000) }, 150, 8).len(), 1);
    }
}
