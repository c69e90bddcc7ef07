//! The list of all packets: the only thing in a file that does not lie about when something is shown or heard.

use super::list::List;
use crate::timeline::{Joints, Packet};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// More is no video: a week at 60 frames a second, with sound, is less.
const MOST: usize = 70_000_000;

/// A packet of sound that claims to last longer is not believed.
const LONGEST_SOUND: f64 = 10.0;

/// What was found of the streams that matter.
#[derive(Debug, Default)]
pub struct Packets {
    /// Of the chosen picture, in the order of decoding.
    pub video: List,
    pub audio: BTreeMap<u32, Extent>,
    pub is_encrypted: bool,
    pub is_too_much: bool,
    /// The picture has more frames than it may.
    pub has_too_many_frames: bool,
}

/// From where to where a stream of sound really goes, in its own ticks, and in how many packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub start: i64,
    pub end: i64,
    pub packets: u64,
}

/// Reads lines of `stream,pts,dts,duration,flags[,side data]` as they come. Those of other streams, and what is no such
/// line, are passed over.
#[derive(Debug)]
pub struct Reader {
    video: Option<u32>,
    /// Ticks a second of each stream of sound; where clocks may jump, their leaps are taken out.
    audio: BTreeMap<u32, (f64, Option<Joints>)>,
    most_frames: u64,
    packets: Packets,
    lines: usize,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
}

/// A longer line is none of ffprobe's.
const LONGEST_LINE: usize = 4096;

impl Reader {
    pub fn new(video: Option<u32>, audio: &BTreeMap<u32, f64>, may_jump: bool, most_frames: u64) -> Self {
        let clock = |ticks: f64| (ticks, may_jump.then(|| Joints::new(1.0 / ticks)));
        Reader {
            video,
            audio: audio.iter().map(|(stream, ticks)| (*stream, clock(*ticks))).collect(),
            most_frames,
            packets: Packets::default(),
            lines: 0,
            begun: Vec::new(),
        }
    }

    /// Breaks off where more would not change the answer.
    pub fn feed(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LONGEST_LINE.saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                self.take(&line);
                self.begun = line;
                self.begun.clear();
                if self.packets.is_too_much || self.packets.has_too_many_frames {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    pub fn finish(mut self) -> Packets {
        let line = std::mem::take(&mut self.begun);
        self.take(&line);
        self.packets
    }

    fn take(&mut self, line: &[u8]) {
        self.lines += 1;
        self.packets.is_too_much |= self.lines > MOST;
        let line = String::from_utf8_lossy(line);
        let Some((stream, packet)) = parse(&line) else { return };
        let is_video = Some(stream) == self.video;
        let sound = self.audio.get_mut(&stream);
        if is_video || sound.is_some() {
            self.packets.is_encrypted |= line.contains("Encryption info");
        }
        if is_video {
            self.packets.has_too_many_frames |= self.packets.video.len() as u64 >= self.most_frames;
            if !self.packets.has_too_many_frames {
                self.packets.video.push(&packet);
            }
        } else if let Some((ticks, joints)) = sound {
            let joined = joints.as_mut().map_or(packet, |joints| joints.join(packet));
            self.packets.hear(stream, joined, *ticks);
        }
    }
}

impl Packets {
    fn hear(&mut self, stream: u32, packet: Packet, ticks_per_second: f64) {
        let Some(start) = packet.pts.or(packet.dts).filter(|_| !packet.is_discarded) else { return };
        let lasts =
            packet.duration.filter(|ticks| *ticks as f64 <= LONGEST_SOUND * ticks_per_second).unwrap_or(0);
        let end = start.saturating_add(lasts);
        let extent = self.audio.entry(stream).or_insert(Extent { start, end, packets: 0 });
        extent.start = extent.start.min(start);
        extent.end = extent.end.max(end);
        extent.packets += 1;
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

    /// In pieces, as a pipe hands them out.
    fn read(csv: &[u8], video: Option<u32>, audio: &BTreeMap<u32, f64>) -> Packets {
        let mut reader = Reader::new(video, audio, false, u64::MAX);
        csv.chunks(7).for_each(|piece| assert!(reader.feed(piece).is_continue()));
        reader.finish()
    }

    #[test]
    fn packets_are_sorted_by_stream_and_oddities_passed_over() {
        let csv = b"0,0,-1024,512,K_\n1,-2112,-2112,1024,KD,Skip Samples\n\n0,N/A,N/A,N/A,__\n7,1,1,1,K_\nnonsense\n\
                    1,-64,-64,1024,K_\n1,960,960,99999999,K_\n0,99999999999999999999,1,1,K_\n";

        let packets = read(csv, Some(0), &BTreeMap::from([(1, 44100.0)]));

        let video = packets.video.iter().collect::<Vec<_>>();
        assert_eq!(video.len(), 3);
        assert_eq!((video[0].pts, video[0].dts), (Some(0), Some(-1024)));
        assert_eq!((video[2].pts, video[2].dts), (None, Some(1)));
        assert_eq!(packets.audio[&1], Extent { start: -64, end: 960, packets: 2 });
        assert!(!packets.is_encrypted);
    }

    #[test]
    fn one_protected_packet_makes_the_file_encrypted() {
        let csv = b"0,0,0,512,K_\n0,512,512,512,__,Encryption info\n";

        assert!(read(csv, Some(0), &BTreeMap::new()).is_encrypted);
        assert!(!read(csv, Some(1), &BTreeMap::new()).is_encrypted);
    }

    #[test]
    fn a_picture_with_more_frames_than_it_may_have_is_not_read_on() {
        let mut reader = Reader::new(Some(0), &BTreeMap::new(), false, 2);

        assert!(reader.feed(b"0,0,0,1,K_\n0,1,1,1,__\n").is_continue());
        assert!(reader.feed(b"0,2,2,1,__\n0,3,3,1,__\n").is_break());

        let packets = reader.finish();
        assert!(packets.has_too_many_frames);
        assert_eq!(packets.video.len(), 2);
    }
}
