//! Where decoding may begin in the middle of a file.

use super::{Packet, Stream};

/// Key frames that are followed by another so soon, in seconds, are passed over: a seek may be aimed well behind any that
/// is left, and where none is, the last one before is near.
const LEAST_GROUP: f64 = 1.0;

/// The entries of an indexed container, see [`Timing::entries`](crate::source::Timing::entries). A key frame whose group
/// is open is one only `later` than it is shown, in seconds; so is any of an interlaced picture.
pub(super) fn find(packets: impl Iterator<Item = Packet>, stream: &Stream, later: f64) -> Vec<f64> {
    if !stream.is_indexed || later > LEAST_GROUP / 2.0 {
        return Vec::new();
    }
    let tick = stream.time_base.to_f64();
    let entry = |before: Option<&Group>, group: &Group, next: Option<&Group>| {
        let key = group.first.pts.filter(|_| group.first.is_key && !group.first.is_discarded)?;
        let next = next.map_or(Some(i64::MAX), |next| next.first.pts)?;
        let is_long = (next as f64 - key as f64) * tick >= LEAST_GROUP;
        let is_at_once = group.is_closed(before, key) && !stream.is_interlaced;
        is_long.then_some(key as f64 * tick + if is_at_once { 0.0 } else { later })
    };
    let (mut entries, mut before) = (Vec::new(), None);
    let mut groups = groups(packets).peekable();
    while let Some(group) = groups.next() {
        entries.extend(entry(before.as_ref(), &group, groups.peek()));
        before = Some(group);
    }
    entries.sort_by(f64::total_cmp);
    entries
}

/// A key frame and what is decoded after it, up to the next.
struct Group {
    first: Packet,
    /// Of the times of showing that are known.
    earliest: Option<i64>,
    /// `None` where one is not known.
    latest: Option<i64>,
}

impl Group {
    /// Whether what is decoded before the key frame is shown before it, and what is decoded after it after.
    fn is_closed(&self, before: Option<&Group>, key: i64) -> bool {
        before.is_none_or(|before| before.latest.is_some_and(|latest| latest < key))
            && self.earliest.is_none_or(|earliest| earliest >= key)
    }
}

fn groups(packets: impl Iterator<Item = Packet>) -> impl Iterator<Item = Group> {
    let mut packets = packets.peekable();
    std::iter::from_fn(move || {
        let first = packets.next()?;
        let mut group = Group { first, earliest: first.pts, latest: first.pts };
        while let Some(packet) = packets.next_if(|packet| !packet.is_key) {
            group.earliest = group.earliest.into_iter().chain(packet.pts).min();
            group.latest = group.latest.zip(packet.pts).map(|(latest, pts)| latest.max(pts));
        }
        Some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Ratio;

    const STREAM: Stream = Stream {
        time_base: Ratio { num: 1, den: 1000 },
        claimed: Vec::new(),
        may_jump: false,
        can_seek: true,
        is_indexed: true,
        is_interlaced: false,
    };
    const LATER: f64 = 0.125;

    /// Frames until `end`, twenty-five a second, in the order of decoding, which is that of showing.
    fn packets(keys: &[i64], end: i64) -> Vec<Packet> {
        let packet = |frame: i64| Packet {
            pts: Some(frame * 40),
            dts: Some(frame * 40 - 40),
            is_key: keys.contains(&frame),
            ..Packet::default()
        };
        (0..end).map(packet).collect()
    }

    #[test]
    fn an_indexed_container_is_entered_at_key_frames_that_have_a_second_to_themselves() {
        let packets = packets(&[0, 50, 60, 100, 124, 150], 200);

        let entries = find(packets.iter().copied(), &STREAM, LATER);

        assert_eq!(entries, [0.0, 2.4, 4.96, 6.0], "not 2 and 4, which others follow at once");
        assert!(find(packets.iter().copied(), &Stream { is_indexed: false, ..STREAM }, LATER).is_empty());
    }

    #[test]
    fn what_needs_frames_from_before_its_key_frame_is_entered_a_little_later() {
        let closed = packets(&[0, 50, 100], 150);
        let mut open = closed.clone();
        // Decoded first, shown second.
        (open[50].pts, open[51].pts) = (closed[51].pts, closed[50].pts);

        assert_eq!(find(open.iter().copied(), &STREAM, LATER), [0.0, 2.04 + LATER, 4.0]);
        let interlaced = Stream { is_interlaced: true, ..STREAM };
        assert_eq!(find(closed.iter().copied(), &interlaced, LATER), [LATER, 2.0 + LATER, 4.0 + LATER]);
    }

    #[test]
    fn a_frame_from_before_the_key_frame_that_is_shown_after_it_is_not_lost() {
        let mut packets = packets(&[0, 50, 100], 150);
        packets[49].pts = packets[50].pts.map(|pts| pts + 20);

        assert_eq!(find(packets.iter().copied(), &STREAM, LATER), [0.0, 2.0 + LATER, 4.0]);
    }
}
