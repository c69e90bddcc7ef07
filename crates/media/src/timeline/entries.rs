//! Where decoding may begin in the middle of a file.

use super::{Packet, Stream};

/// Key frames that are followed by another so soon, in seconds, are passed over: a seek may be aimed well behind any that
/// is left, and where none is, the last one before is near.
const LEAST_GROUP: f64 = 1.0;

/// The entries of an indexed container, see [`Timing::entries`](crate::source::Timing::entries). A key frame whose group
/// is open is one only `later` than it is shown, in seconds; so is any of an interlaced picture.
pub(super) fn find(packets: &[Packet], stream: &Stream, later: f64) -> Vec<f64> {
    if !stream.is_indexed || later > LEAST_GROUP / 2.0 {
        return Vec::new();
    }
    let tick = stream.time_base.to_f64();
    let groups: Vec<_> = packets.chunk_by(|_, next| !next.is_key).collect();
    let entry = |at: usize| {
        let key = groups[at].first().filter(|key| key.is_key && !key.is_discarded)?.pts?;
        let next = groups.get(at + 1).map_or(Some(i64::MAX), |group| group[0].pts)?;
        let before = at.checked_sub(1).map_or(&[][..], |before| groups[before]);
        let is_long = (next as f64 - key as f64) * tick >= LEAST_GROUP;
        let is_at_once = is_closed(before, key, groups[at]) && !stream.is_interlaced;
        is_long.then_some(key as f64 * tick + if is_at_once { 0.0 } else { later })
    };
    let mut entries: Vec<f64> = (0..groups.len()).filter_map(entry).collect();
    entries.sort_by(f64::total_cmp);
    entries
}

/// Whether what is decoded before the key frame is shown before it, and what is decoded after it after.
fn is_closed(before: &[Packet], key: i64, group: &[Packet]) -> bool {
    let is_before = |packet: &Packet| packet.pts.is_some_and(|pts| pts < key);
    before.iter().all(is_before) && !group.iter().any(is_before)
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

        let entries = find(&packets, &STREAM, LATER);

        assert_eq!(entries, [0.0, 2.4, 4.96, 6.0], "not 2 and 4, which others follow at once");
        assert!(find(&packets, &Stream { is_indexed: false, ..STREAM }, LATER).is_empty());
    }

    #[test]
    fn what_needs_frames_from_before_its_key_frame_is_entered_a_little_later() {
        let closed = packets(&[0, 50, 100], 150);
        let mut open = closed.clone();
        // Decoded first, shown second.
        (open[50].pts, open[51].pts) = (closed[51].pts, closed[50].pts);

        assert_eq!(find(&open, &STREAM, LATER), [0.0, 2.04 + LATER, 4.0]);
        let interlaced = Stream { is_interlaced: true, ..STREAM };
        assert_eq!(find(&closed, &interlaced, LATER), [LATER, 2.0 + LATER, 4.0 + LATER]);
    }

    #[test]
    fn a_frame_from_before_the_key_frame_that_is_shown_after_it_is_not_lost() {
        let mut packets = packets(&[0, 50, 100], 150);
        packets[49].pts = packets[50].pts.map(|pts| pts + 20);

        assert_eq!(find(&packets, &STREAM, LATER), [0.0, 2.0 + LATER, 4.0]);
    }
}
