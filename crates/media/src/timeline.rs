//! From the times of the frames to the even grid they are put on.
//!
//! Frame times are believed, headers are not. A source whose every frame lies within half a frame of its slot on a grid
//! of constant rate goes over one to one. Any other (variable rate, above 60 or below 1 frame a second) is put on a grid
//! of its typical rate: a slot shows the frame nearest to it.

mod entries;
mod joints;
mod rate;

pub use joints::Joints;

use crate::ratio::Ratio;
use crate::source::Timing;

/// Sound may go on so much longer than the picture before its last frame is held for it, in seconds.
pub const SLACK: f64 = 0.5;

/// A last frame that claims to be shown for longer than this and than any other, in seconds, is not believed.
const LONGEST_LAST: f64 = 10.0;

/// A longer picture is a mistake in the timestamps: a week, in seconds.
const LONGEST: f64 = 7.0 * 86_400.0;

/// Decoding further ahead than this, in seconds, is a mistake in the timestamps too.
const LONGEST_REORDER: f64 = 10.0;

/// One packet of picture, in ticks of its stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Packet {
    pub pts: Option<i64>,
    pub dts: Option<i64>,
    pub duration: Option<i64>,
    pub is_key: bool,
    /// Decoded but not shown: cut off by an edit list.
    pub is_discarded: bool,
}

/// What the headers say of the stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Stream {
    pub time_base: Ratio,
    /// Frame rates as claimed, the more trusted first. They settle what the times leave open, no more.
    pub claimed: Vec<Ratio>,
    /// Whether the container has timestamps that start anew or leap in the middle of a recording.
    pub may_jump: bool,
    /// Whether the container can be entered in the middle.
    pub can_seek: bool,
    /// Whether it knows where its key frames are, so that a seek lands on the last before its aim.
    pub is_indexed: bool,
    /// Whether frames need their neighbours to become whole.
    pub is_interlaced: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Nothing {
    #[error("no frame is shown")]
    NoFrames,
    #[error("the frames are more than a week apart")]
    TooLong,
}

/// What is found besides the timing is worth a note.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    pub timing: Timing,
    /// How many packets at the beginning lack the key frame they build on.
    pub headless: u64,
    /// Whether the clock starts anew or leaps.
    pub is_torn: bool,
}

/// The grid for the packets of a picture, given in the order of decoding. They are gone through several times, and never
/// held all at once.
pub fn timing(packets: impl Iterator<Item = Packet> + Clone, stream: &Stream) -> Result<Found, Nothing> {
    let is_torn = joints::is_torn(packets.clone(), stream);
    let packets = joints::join(packets, stream);
    let headless = packets.clone().position(|packet| packet.is_key).unwrap_or(0);
    let frames = Frames::shown(packets.clone().skip(headless), stream).ok_or(Nothing::NoFrames)?;
    let tick = stream.time_base.to_f64();
    if frames.span() * tick > LONGEST {
        return Err(Nothing::TooLong);
    }

    let grid = grid(&frames, stream);
    let source_frames = frames.times.len() as u64;
    let slots = (frames.duration(tick) * grid.rate.to_f64()).round().max(1.0) as u64;
    let reorder_seconds = reorder(packets.clone()) as f64 * tick;
    let timing = Timing {
        time_base: stream.time_base,
        first: frames.first,
        rate: grid.rate,
        frames: if grid.is_one_to_one { source_frames } else { slots },
        held: 0,
        source_frames,
        is_one_to_one: grid.is_one_to_one,
        reorder_seconds,
        can_seek: stream.can_seek && !is_torn && frames.are_stamped,
        keys: keys(packets.clone(), stream),
        entries: entries::find(packets, stream, reorder_seconds + 1.5 / grid.rate.to_f64()),
    };
    Ok(Found { timing: sane(timing), headless: headless as u64, is_torn })
}

/// Broadcast containers know no key frames: where those are must be remembered to seek to one.
fn keys(packets: impl Iterator<Item = Packet>, stream: &Stream) -> Vec<f64> {
    if !stream.may_jump || !stream.can_seek {
        return Vec::new();
    }
    let decoded = |packet: Packet| Some(packet.dts.or(packet.pts)? as f64 * stream.time_base.to_f64());
    packets.filter(|packet| packet.is_key).filter_map(decoded).collect()
}

/// Holds the last frame until `sound_end` (seconds from the first frame) when the sound goes on for longer than
/// [`SLACK`] after the picture.
pub fn hold(timing: &mut Timing, sound_end: f64) {
    if sound_end - timing.duration() <= SLACK || sound_end > LONGEST {
        return;
    }
    let frames = (sound_end * timing.rate.to_f64() - 1e-6).ceil() as u64;
    timing.held = frames.saturating_sub(timing.frames);
    timing.frames += timing.held;
}

struct Grid {
    rate: Ratio,
    is_one_to_one: bool,
}

fn grid(frames: &Frames, stream: &Stream) -> Grid {
    let tick = stream.time_base.to_f64();
    if let [_] = frames.times[..] {
        let claimed = stream.claimed.first().copied();
        let rate = rate::of_one_frame(frames.last_duration.map(|ticks| ticks * tick), claimed);
        return Grid { rate, is_one_to_one: frames.duration(tick) * rate.to_f64() < 1.5 };
    }
    match rate::constant(&frames.times, stream.time_base, &stream.claimed) {
        Some(even) => {
            let rate = rate::within_limits(even);
            Grid { rate, is_one_to_one: rate == even }
        }
        None => Grid { rate: rate::within_limits(rate::typical(&frames.times, tick)), is_one_to_one: false },
    }
}

/// The frames that are shown, in the order of showing.
struct Frames {
    first: i64,
    /// From the first, in ticks; rising, so at least one apart.
    times: Vec<f64>,
    /// Of the last one, in ticks, as the file has it.
    last_duration: Option<f64>,
    /// Whether all bear the time at which they are shown.
    are_stamped: bool,
}

impl Frames {
    /// Frames without a time of showing get that of decoding; where that is missing too, they are counted at the
    /// claimed rate.
    fn shown(packets: impl Iterator<Item = Packet> + Clone, stream: &Stream) -> Option<Self> {
        let shown = packets.clone().filter(|packet| !packet.is_discarded);
        let are_stamped = shown.clone().all(|packet| packet.pts.is_some());
        let are_decoded_in_time = shown.clone().all(|packet| packet.dts.is_some());
        let step = counted_step(packets.clone(), stream);
        let frames = shown.zip(0..).map(|(packet, number)| {
            let time = if are_decoded_in_time {
                packet.dts
            } else {
                Some((number as f64 * step).round() as i64)
            };
            (packet.pts.filter(|_| are_stamped).or(time).unwrap_or(0), packet.duration)
        });
        // What is shown before the first key frame builds on a frame that the file does not have.
        let first_packet = packets.clone().next();
        let opening = first_packet.filter(|packet| packet.is_key && are_stamped).and_then(|key| key.pts);
        let last = frames.clone().reduce(|last, next| if next.0 > last.0 { next } else { last })?;
        let times = frames.map(|(time, _)| time);
        let mut times: Vec<i64> =
            times.filter(|time| opening.is_none_or(|opening| *time >= opening)).collect();
        times.sort_unstable();
        times.dedup();

        let first = *times.first()?;
        let last_duration = last.1.map(|ticks| ticks as f64);
        let times = times.into_iter().map(|time| (i128::from(time) - i128::from(first)) as f64).collect();
        Some(Frames { first, times, last_duration, are_stamped })
    }

    /// From the first frame to the last, in ticks.
    fn span(&self) -> f64 {
        self.times.last().copied().unwrap_or(0.0)
    }

    /// From the first frame to the end of the last, in seconds.
    fn duration(&self, tick: f64) -> f64 {
        let longest = rate::intervals(&self.times).fold(LONGEST_LAST / tick, f64::max);
        let usual = rate::typical_interval(&self.times).unwrap_or(0.0);
        let last = self.last_duration.filter(|ticks| *ticks <= longest).unwrap_or(usual);
        (self.span() + last) * tick
    }
}

/// Between frames that bear no times, in ticks.
fn counted_step(mut packets: impl Iterator<Item = Packet>, stream: &Stream) -> f64 {
    let claimed = stream.claimed.iter().map(|rate| 1.0 / (rate.to_f64() * stream.time_base.to_f64()));
    let lasting = packets.find_map(|packet| packet.duration).map(|ticks| ticks as f64);
    lasting.into_iter().chain(claimed).find(|step| *step >= 1.0).unwrap_or(1.0)
}

/// By how much a frame is decoded before it is shown, at most, in ticks.
fn reorder(packets: impl Iterator<Item = Packet>) -> i64 {
    let ahead = packets.filter_map(|packet| packet.pts?.checked_sub(packet.dts?));
    ahead.max().unwrap_or(0).max(0)
}

fn sane(mut timing: Timing) -> Timing {
    timing.reorder_seconds = timing.reorder_seconds.min(LONGEST_REORDER);
    timing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(time_base: (u32, u32)) -> Stream {
        let time_base = Ratio::new(time_base.0, time_base.1).unwrap();
        Stream {
            time_base,
            claimed: Vec::new(),
            may_jump: false,
            can_seek: true,
            is_indexed: true,
            is_interlaced: false,
        }
    }

    /// Packets shown at `times`, in that order.
    fn at(times: impl IntoIterator<Item = i64>) -> Vec<Packet> {
        times
            .into_iter()
            .map(|t| Packet { pts: Some(t), dts: Some(t), is_key: true, ..Packet::default() })
            .collect()
    }

    fn timed(packets: Vec<Packet>, stream: &Stream) -> Timing {
        timing(packets.into_iter(), stream).unwrap().timing
    }

    fn ratio(num: u32, den: u32) -> Ratio {
        Ratio::new(num, den).unwrap()
    }

    #[test]
    fn an_even_source_goes_over_one_to_one() {
        let timing = timed(at((0..300).map(|i| 900_000 + i * 3003)), &stream((1, 90_000)));

        assert_eq!((timing.rate, timing.frames), (ratio(30_000, 1001), 300));
        assert_eq!((timing.first, timing.source_frames), (900_000, 300));
        assert!(timing.is_one_to_one && timing.can_seek);
    }

    #[test]
    fn order_of_decoding_does_not_matter_but_is_measured() {
        let mut packets = at([0, 2048, 1024, 512, 1536]);
        for (packet, dts) in packets.iter_mut().zip([-1024, -512, 0, 512, 1024]) {
            (packet.dts, packet.is_key) = (Some(dts), dts == -1024);
        }

        let timing = timed(packets, &stream((1, 12_800)));

        assert_eq!((timing.rate, timing.frames), (ratio(25, 1), 5));
        assert_eq!(timing.reorder_seconds, 0.2);
    }

    #[test]
    fn an_uneven_source_gets_its_typical_rate_and_keeps_its_duration() {
        let times = (0..60).map(|i| if i < 30 { i * 33 } else { 990 + (i - 30) * 200 });
        let mut packets = at(times);
        packets.last_mut().unwrap().duration = Some(200);

        let timing = timed(packets, &stream((1, 1000)));

        assert!(!timing.is_one_to_one);
        assert_eq!(timing.source_frames, 60);
        assert!((timing.duration() - 6.99).abs() < 0.05, "{timing:?}");
    }

    #[test]
    fn above_sixty_frames_a_second_the_rate_is_halved_until_it_fits() {
        for (count, step, rate, frames) in
            [(240, 750, ratio(60, 1), 120), (240, 375, ratio(60, 1), 60), (144, 625, ratio(36, 1), 36)]
        {
            let mut packets = at((0..count).map(|i| i * step));
            packets.last_mut().unwrap().duration = Some(step);

            let timing = timed(packets, &stream((1, 90_000)));

            assert_eq!((timing.rate, timing.frames, timing.is_one_to_one), (rate, frames, false));
        }
    }

    #[test]
    fn a_slide_show_gets_a_frame_a_second() {
        let mut packets = at([0, 5000, 10_000]);
        packets[2].duration = Some(5000);

        let timing = timed(packets, &stream((1, 1000)));

        assert_eq!((timing.rate, timing.frames, timing.source_frames), (ratio(1, 1), 15, 3));
    }

    #[test]
    fn frames_cut_off_by_an_edit_list_do_not_count() {
        let mut packets = at((-10..50).map(|i| i * 40));
        packets.iter_mut().take(10).for_each(|packet| packet.is_discarded = true);

        let timing = timed(packets, &stream((1, 1000)));

        assert_eq!((timing.first, timing.frames), (0, 50));
    }

    #[test]
    fn what_comes_before_the_first_key_frame_is_not_shown() {
        let mut packets = at((0..30).map(|i| i * 40));
        packets.iter_mut().take(10).for_each(|packet| packet.is_key = false);
        packets.insert(11, Packet { pts: Some(390), dts: Some(400), ..Packet::default() });

        let found = timing(packets.into_iter(), &stream((1, 1000))).unwrap();

        assert_eq!((found.headless, found.timing.first, found.timing.frames), (10, 400, 20));
    }

    #[test]
    fn frames_without_times_are_counted_and_cannot_be_sought() {
        let nameless = vec![Packet { is_key: true, duration: Some(40_040), ..Packet::default() }; 60];
        let raw = Stream { claimed: vec![ratio(30_000, 1001)], ..stream((1, 1_200_000)) };

        let timing = timed(nameless, &raw);

        assert_eq!((timing.rate, timing.frames, timing.can_seek), (ratio(30_000, 1001), 60, false));
    }

    #[test]
    fn times_of_decoding_stand_in_for_those_of_showing() {
        let mut packets = at(0..25);
        packets[3].pts = None;

        let timing = timed(packets, &stream((1, 25)));

        assert_eq!((timing.rate, timing.frames, timing.can_seek), (ratio(25, 1), 25, false));
    }

    #[test]
    fn one_frame_is_a_video() {
        let mut one = at([7]);
        assert_eq!(timed(one.clone(), &stream((1, 25))).frames, 1);

        one[0].duration = Some(1);
        let timing = timed(one.clone(), &stream((1, 25)));
        assert_eq!((timing.rate, timing.frames, timing.is_one_to_one), (ratio(25, 1), 1, true));

        one[0].duration = Some(100);
        let timing = timed(one, &stream((1, 25)));
        assert_eq!((timing.frames as f64 / timing.rate.to_f64(), timing.is_one_to_one), (4.0, false));
    }

    #[test]
    fn the_last_frame_is_held_while_the_sound_goes_on() {
        let mut timing = timed(at([0]), &Stream { claimed: vec![ratio(25, 1)], ..stream((1, 25)) });
        hold(&mut timing, 0.4);
        assert_eq!((timing.frames, timing.held), (1, 0));

        hold(&mut timing, 180.01);
        assert_eq!((timing.frames, timing.held), (4501, 4500));
    }

    #[test]
    fn a_torn_recording_is_joined_and_encoded_in_one_piece() {
        let torn = (0..100)
            .map(|i| i * 3600)
            .chain((0..100).map(|i| 8_000_000_000 + i * 3600))
            .chain((0..100).map(|i| 90_000 + i * 3600));
        let mut packets = at(torn);
        packets.iter_mut().for_each(|packet| packet.duration = Some(3600));

        let joined = timed(packets.clone(), &Stream { may_jump: true, ..stream((1, 90_000)) });
        let not_joined = timing(packets.into_iter(), &Stream { may_jump: false, ..stream((1, 90_000)) });

        assert_eq!((joined.rate, joined.frames, joined.can_seek), (ratio(25, 1), 300, false));
        assert!(!not_joined.unwrap().timing.can_seek);
    }

    #[test]
    fn absurd_times_do_no_harm() {
        for times in
            [vec![i64::MIN, i64::MAX], vec![i64::MAX, i64::MAX], vec![0, i64::MAX], vec![i64::MIN; 3]]
        {
            let mut packets = at(times);
            packets.iter_mut().for_each(|packet| packet.duration = Some(i64::MAX));
            for may_jump in [false, true] {
                let _ = timing(packets.iter().copied(), &Stream { may_jump, ..stream((1, 1000)) });
                let _ = timing(packets.iter().copied(), &Stream { may_jump, ..stream((u32::MAX, 1)) });
            }
        }
        assert_eq!(timing(std::iter::empty(), &stream((1, 1000))), Err(Nothing::NoFrames));
        assert_eq!(timing(at([0, i64::MAX]).into_iter(), &stream((1, 1000))), Err(Nothing::TooLong));
    }
}
