//! Packets of a picture as few bytes: each is told by how it differs from what the one before lets expect.

use crate::timeline::Packet;

/// In the order they came. An ordinary packet takes four or five bytes, and none more than 31.
#[derive(Debug, Default)]
pub struct List {
    bytes: Vec<u8>,
    count: usize,
    last: Last,
}

/// What the next packet is told by.
#[derive(Debug, Default)]
struct Last {
    pts: i64,
    dts: i64,
    duration: i64,
}

const HAS_PTS: u8 = 1;
const HAS_DTS: u8 = 2;
const HAS_DURATION: u8 = 4;
const SAME_DURATION: u8 = 8;
const IS_KEY: u8 = 16;
const IS_DISCARDED: u8 = 32;

impl List {
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn push(&mut self, packet: &Packet) {
        let is_same = packet.duration == Some(self.last.duration);
        let flags = [
            (packet.pts.is_some(), HAS_PTS),
            (packet.dts.is_some(), HAS_DTS),
            (packet.duration.is_some() && !is_same, HAS_DURATION),
            (is_same, SAME_DURATION),
            (packet.is_key, IS_KEY),
            (packet.is_discarded, IS_DISCARDED),
        ];
        self.bytes.push(flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).sum());
        if let Some(dts) = packet.dts {
            self.write(dts.wrapping_sub(self.last.dts));
            self.last.dts = dts;
        }
        if let Some(pts) = packet.pts {
            self.write(pts.wrapping_sub(self.last.pts));
            self.last.pts = pts;
        }
        if let Some(duration) = packet.duration.filter(|_| !is_same) {
            self.write(duration);
            self.last.duration = duration;
        }
        self.count += 1;
    }

    /// Small numbers of either sign take one byte.
    fn write(&mut self, number: i64) {
        let mut left = (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned();
        while left >= 0x80 {
            self.bytes.push(left as u8 | 0x80);
            left >>= 7;
        }
        self.bytes.push(left as u8);
    }

    pub fn into_vec(self) -> Vec<Packet> {
        let mut bytes = self.bytes.iter();
        let mut read = || {
            let mut number = 0_u64;
            for (shift, byte) in (0..).step_by(7).zip(bytes.by_ref()) {
                number |= u64::from(byte & 0x7f) << shift;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            ((number >> 1) ^ (number & 1).wrapping_neg()).cast_signed()
        };
        let mut last = Last::default();
        let mut packets = Vec::with_capacity(self.count);
        for _ in 0..self.count {
            // A byte on its own, in the same way as a number of one byte: all flags are below 64.
            let flags = read_flags(&mut read);
            let has = |flag| flags & flag != 0;
            if has(HAS_DTS) {
                last.dts = last.dts.wrapping_add(read());
            }
            if has(HAS_PTS) {
                last.pts = last.pts.wrapping_add(read());
            }
            if has(HAS_DURATION) {
                last.duration = read();
            }
            packets.push(Packet {
                pts: has(HAS_PTS).then_some(last.pts),
                dts: has(HAS_DTS).then_some(last.dts),
                duration: (flags & (HAS_DURATION | SAME_DURATION) != 0).then_some(last.duration),
                is_key: has(IS_KEY),
                is_discarded: has(IS_DISCARDED),
            });
        }
        packets
    }
}

/// Undoes what [`List::write`] would have done to the byte.
fn read_flags(read: &mut impl FnMut() -> i64) -> u8 {
    let number = read();
    ((number << 1) ^ (number >> 63)) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_come_out_as_they_went_in() {
        let times = [None, Some(0), Some(-1024), Some(i64::MAX), Some(i64::MIN), Some(512)];
        let durations = [None, Some(512), Some(512), Some(i64::MAX), Some(1)];
        let packets: Vec<Packet> = (0..300)
            .map(|n| Packet {
                pts: times[n % 6],
                dts: times[n % 5],
                duration: durations[n % 5],
                is_key: n % 3 == 0,
                is_discarded: n % 7 == 0,
            })
            .collect();
        let mut list = List::default();

        packets.iter().for_each(|packet| list.push(packet));

        assert_eq!(list.len(), 300);
        assert_eq!(list.into_vec(), packets);
    }

    #[test]
    fn an_ordinary_packet_takes_few_bytes() {
        let mut list = List::default();
        for n in 0..100_000 {
            let (pts, dts) = (Some(n * 3600 + 7200), Some(n * 3600));
            list.push(&Packet { pts, dts, duration: Some(3600), is_key: n % 50 == 0, is_discarded: false });
        }

        assert!(list.bytes.len() < 600_000, "{}", list.bytes.len());
    }
}
