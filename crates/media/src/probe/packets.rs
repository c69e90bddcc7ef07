//! The list of all packets: the only thing in a file that does not lie about when something is shown or heard.

use crate::timeline::{Joints, Packet};
use std::collections::BTreeMap;

/// More is no video: a week at 60 frames a second, with sound, is less.
const MOST: usize = 70_000_000;

/// A packet of sound that claims to last longer is not believed.
const LONGEST_SOUND: f64 = 10.0;

/// What was found of the streams that matter.
#[derive(Debug, Default)]
pub struct Packets {
    /// Of the chosen picture, in the order of decoding.
    pub video: Vec<Packet>,
    pub audio: BTreeMap<u32, Extent>,
    pub is_encrypted: bool,
    pub is_too_much: bool,
}

/// From where to where a stream of sound really goes, in its own ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: i64,
    pub end: i64,
}

impl Packets {
    /// Reads lines of `stream,pts,dts,duration,flags[,side data]`. Those of other streams, and what is no such line, are
    /// passed over.
    /// `audio` has the ticks a second of each stream of sound; where the clocks `may_jump`, their leaps are taken out.
    pub fn read(csv: &[u8], video: Option<u32>, audio: &BTreeMap<u32, f64>, may_jump: bool) -> Self {
        let mut packets = Packets::default();
        let clock = |ticks: &f64| may_jump.then(|| Joints::new(1.0 / ticks));
        let mut clocks: BTreeMap<u32, Option<Joints>> =
            audio.iter().map(|(stream, ticks)| (*stream, clock(ticks))).collect();
        let text = String::from_utf8_lossy(csv);
        for (count, line) in text.lines().enumerate() {
            packets.is_too_much = count > MOST;
            if packets.is_too_much {
                break;
            }
            let Some((stream, packet)) = parse(line) else { continue };
            let is_video = Some(stream) == video;
            if is_video || audio.contains_key(&stream) {
                packets.is_encrypted |= line.contains("Encryption info");
            }
            if is_video {
                packets.video.push(packet);
            } else if let Some(ticks) = audio.get(&stream) {
                let joints = clocks.get_mut(&stream).and_then(Option::as_mut);
                packets.hear(stream, joints.map_or(packet, |joints| joints.join(packet)), *ticks);
            }
        }
        packets
    }

    fn hear(&mut self, stream: u32, packet: Packet, ticks_per_second: f64) {
        let Some(start) = packet.pts.or(packet.dts).filter(|_| !packet.is_discarded) else { return };
        let lasts =
            packet.duration.filter(|ticks| *ticks as f64 <= LONGEST_SOUND * ticks_per_second).unwrap_or(0);
        let end = start.saturating_add(lasts);
        let extent = self.audio.entry(stream).or_insert(Extent { start, end });
        extent.start = extent.start.min(start);
        extent.end = extent.end.max(end);
    }
}

fn parse(line: &str) -> Option<(u32, Packet)> {
    let mut fields = line.trim_end().split(',');
    let stream = fields.next()?.parse().ok()?;
    let (pts, dts, duration, flags) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let packet = Packet {
        pts: pts.parse().ok(),
        dts: dts.parse().ok(),
        duration: duration.parse().ok().filter(|ticks: &i64| *ticks > 0),
        is_key: flags.contains('K'),
        is_discarded: flags.contains('D'),
    };
    Some((stream, packet))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_sorted_by_stream_and_oddities_passed_over() {
        let csv = b"0,0,-1024,512,K_\n1,-2112,-2112,1024,KD,Skip Samples\n\n0,N/A,N/A,N/A,__\n7,1,1,1,K_\nnonsense\n\
                    1,-64,-64,1024,K_\n1,960,960,99999999,K_\n0,99999999999999999999,1,1,K_\n";

        let packets = Packets::read(csv, Some(0), &BTreeMap::from([(1, 44100.0)]), false);

        assert_eq!(packets.video.len(), 3);
        assert_eq!((packets.video[0].pts, packets.video[0].dts), (Some(0), Some(-1024)));
        assert_eq!((packets.video[2].pts, packets.video[2].dts), (None, Some(1)));
        assert_eq!(packets.audio[&1], Extent { start: -64, end: 960 });
        assert!(!packets.is_encrypted);
    }

    #[test]
    fn one_protected_packet_makes_the_file_encrypted() {
        let csv = b"0,0,0,512,K_\n0,512,512,512,__,Encryption info\n";

        assert!(Packets::read(csv, Some(0), &BTreeMap::new(), false).is_encrypted);
        assert!(!Packets::read(csv, Some(1), &BTreeMap::new(), false).is_encrypted);
    }
}
