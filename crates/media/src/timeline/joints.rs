//! Recordings whose clock starts anew or leaps: broadcasts, joined captures.

use super::{Packet, Stream};

/// A leap forward beyond this, in seconds, is a new clock and not a pause. ffmpeg's own limit, so that it sees the same.
const LEAP: f64 = 10.0;

/// A step back beyond this, in seconds, is a new clock too.
const BACK: f64 = 0.1;

/// Follows the clock of one stream and takes its leaps out, as ffmpeg does where timestamps are not copied.
#[derive(Debug, Clone)]
pub struct Joints {
    leap: i128,
    back: i128,
    /// When the next packet is due, and the latest one's time.
    next: Option<(i128, i128)>,
    shift: i128,
    pub leaps: u32,
}

impl Joints {
    pub fn new(tick_seconds: f64) -> Self {
        let ticks = |seconds: f64| (seconds / tick_seconds).ceil() as i128;
        Joints { leap: ticks(LEAP), back: ticks(BACK), next: None, shift: 0, leaps: 0 }
    }

    /// The packet on the clock of the first.
    pub fn join(&mut self, packet: Packet) -> Packet {
        let Some(time) = packet.dts.or(packet.pts).map(i128::from) else { return packet };
        if let Some((due, latest)) = self.next {
            let joined = time + self.shift;
            if joined - due > self.leap || joined + self.back < latest {
                self.shift += due - joined;
                self.leaps += 1;
            }
        }
        let joined = time + self.shift;
        self.next = Some((joined + i128::from(packet.duration.unwrap_or(0)), joined));
        let moved = |time: i64| i64::try_from(i128::from(time) + self.shift).unwrap_or(time);
        Packet { pts: packet.pts.map(moved), dts: packet.dts.map(moved), ..packet }
    }
}

/// The packets on one clock, where the container is of the kind whose clocks leap.
pub(super) fn join(
    packets: impl Iterator<Item = Packet> + Clone,
    stream: &Stream,
) -> impl Iterator<Item = Packet> + Clone {
    let mut joints = stream.may_jump.then(|| Joints::new(stream.time_base.to_f64()));
    packets.map(move |packet| joints.as_mut().map_or(packet, |joints| joints.join(packet)))
}

/// Whether the packets have more than one clock.
pub(super) fn is_torn(mut packets: impl Iterator<Item = Packet>, stream: &Stream) -> bool {
    let mut joints = Joints::new(stream.time_base.to_f64());
    if stream.may_jump {
        return packets.any(|packet| {
            joints.join(packet);
            joints.leaps > 0
        });
    }
    let mut last: Option<Packet> = None;
    packets.any(|packet| last.replace(packet).is_some_and(|last| is_back(&last, &packet, joints.back)))
}

fn is_back(before: &Packet, after: &Packet, by: i128) -> bool {
    before.dts.zip(after.dts).is_some_and(|(before, after)| i128::from(after) + by < i128::from(before))
}
