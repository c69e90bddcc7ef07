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
#[derive(Debug, Clone, Default)]
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

    pub fn iter(&self) -> Iter<'_> {
        Iter { bytes: self.bytes.iter(), last: Last::default() }
    }
}

/// The packets of a list, one after the other.
#[derive(Debug, Clone)]
pub struct Iter<'a> {
    bytes: std::slice::Iter<'a, u8>,
    last: Last,
}

impl Iter<'_> {
    /// Undoes [`List::write`].
    fn read(&mut self) -> i64 {
        let mut number = 0_u64;
        for (shift, byte) in (0..).step_by(7).zip(self.bytes.by_ref()) {
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        ((number >> 1) ^ (number & 1).wrapping_neg()).cast_signed()
    }
}

impl Iterator for Iter<'_> {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        let flags = *self.bytes.next()?;
        let has = |flag| flags & flag != 0;
        if has(HAS_DTS) {
            self.last.dts = self.last.dts.wrapping_add(self.read());
        }
        if has(HAS_PTS) {
            self.last.pts = self.last.pts.wrapping_add(self.read());
        }
        if has(HAS_DURATION) {
            self.last.duration = self.read();
        }
        Some(Packet {
            pts: has(HAS_PTS).then_some(self.last.pts),
            dts: has(HAS_DTS).then_some(self.last.dts),
            duration: has(HAS_DURATION | SAME_DURATION).then_some(self.last.duration),
            is_key: has(IS_KEY),
            is_discarded: has(IS_DISCARDED),
        })
    }
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
        assert_eq!(list.iter().collect::<Vec<_>>(), packets);
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
