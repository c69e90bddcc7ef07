//! From the file's pictures to what is encoded: on the grid, upright, progressive, in standard range, in every size.

use crate::source::{DynamicRange, Timing, Video};

/// Frames `first..end` of the grid, counted from 0 again. A frame's number is its time after `fps`, so cutting by number
/// is exact wherever a seek has landed.
pub fn frames(video: &Video, first: u64, end: u64) -> String {
    let timing = &video.timing;
    let mut filters = vec![format!("[0:{}]setpts=PTS-{}", video.stream, zero(timing))];
    if video.is_interlaced {
        filters.push("bwdif=mode=send_frame:deint=interlaced".into());
    }
    // A beginning that cannot be decoded is filled. A later chunk must have its first frame: if a seek came too late, it is
    // a frame short, and that is noticed.
    let begin = if first == 0 { ":start_time=0" } else { "" };
    // Half a frame later and rounded down is rounded to the nearest slot; but so the last frame has its slot even where
    // nothing tells how long it lasts. What that may add is trimmed. A little more than half: where a rate is halved, each
    // second frame lies between two slots, and all of them must go the same way.
    let half = (500_000.0 / timing.rate.to_f64()).ceil() + 1.0;
    filters.push(format!("settb=AVTB,setpts=PTS+{half}"));
    filters.push(format!("fps={}:round=down:eof_action=pass{begin}", timing.rate));
    // The frame that is held, and one or two that a decoder may owe at a broken end.
    let spare = if end == timing.frames { timing.held + 2 } else { 0 };
    if spare > 0 {
        filters.push(format!("tpad=stop_mode=clone:stop={spare}"));
    }
    filters.push(format!("trim=start_pts={first}:end_pts={end}"));
    filters.push(format!("setpts=PTS-{first}"));
    filters.join(",")
}

/// Where to seek so that every frame from number `first` on can be decoded, in seconds on the file's own clock; `None` is
/// its beginning.
pub fn seek(timing: &Timing, first: u64) -> Option<f64> {
    if first == 0 || !timing.can_seek {
        return None;
    }
    let frame = 1.0 / timing.rate.to_f64();
    // Half a frame for the grid's rounding, and one for `fps`, which may show the frame before.
    let margin = timing.reorder_seconds + 1.5 * frame;
    let latest = timing.first_seconds() + first as f64 * frame - margin;
    if let Some(entry) = timing.entry_for(first) {
        return Some(latest.max(entry + BEHIND_ENTRY));
    }
    if timing.keys.is_empty() {
        return Some(latest);
    }
    // What lands anywhere must land before the key frame, or begins with the next one.
    let key = timing.keys.iter().rev().find(|key| **key <= latest)?;
    Some(key - BEFORE_KEY)
}

const BEFORE_KEY: f64 = 0.2;

/// Far enough that nothing lands on the key frame before: for containers that seek by the time of decoding, ffmpeg itself
/// aims 3/23 s earlier than it is told. Near enough that nothing lands on the next.
const BEHIND_ENTRY: f64 = 0.25;

/// The time of the first frame, as a filter knows it. Where timestamps cannot be trusted, ffmpeg mends them (see
/// [`crate::command`]), and whatever is decoded first is the first.
pub fn zero(timing: &Timing) -> String {
    if timing.can_seek { format!("({})", timing.first) } else { "STARTPTS".into() }
}

/// Lets the filters live on when the picture's size changes midway: begun anew, they would forget which frames they have
/// let through. `scale` takes any size; deinterlacing and tone mapping do not.
pub fn through_changes(video: &Video) -> Vec<String> {
    let takes_any_size = !video.is_interlaced && video.color.range == DynamicRange::Sdr;
    if takes_any_size {
        vec!["-reinit_filter".into(), "0".into()]
    } else {
        Vec::new()
    }
}

/// To standard range and the largest size at once: what comes after is cheap.
pub fn prepare(video: &Video, width: u32, height: u32) -> String {
    match video.color.range {
        DynamicRange::Sdr => {
            format!("scale={width}:{height}:flags=bicubic:out_range=tv,setsar=1,format=yuv420p")
        }
        DynamicRange::Pq | DynamicRange::Hlg => tone_map(video, width, height),
    }
}

/// HDR is linear light in 32 bits for as short as can be.
fn tone_map(video: &Video, width: u32, height: u32) -> String {
    let transfer = match video.color.range {
        DynamicRange::Hlg => "arib-std-b67",
        DynamicRange::Pq | DynamicRange::Sdr => "smpte2084",
    };
    format!(
        "zscale=w={width}:h={height}:tin={transfer}:min=bt2020nc:pin=bt2020:rin=tv:t=linear:npl=100,format=gbrpf32le,\
         zscale=p=bt709,tonemap=tonemap=hable:desat=0,zscale=t=bt709:m=bt709:r=tv,setsar=1,format=yuv420p"
    )
}

/// Each size from the next larger one, largest first: `[v]` in, `[r0]`, `[r1]` … out.
pub fn cascade(sizes: &[(u32, u32)], last: Option<&str>) -> String {
    let last = last.map(|filter| format!("{filter},")).unwrap_or_default();
    let mut graph = Vec::new();
    for (at, (width, height)) in sizes.iter().enumerate() {
        let from = if at == 0 { "[v]".into() } else { format!("[c{at}]") };
        // The first is prepared at its size.
        let scale = if at == 0 {
            String::new()
        } else {
            format!("scale={width}:{height}:flags=bicubic,setsar=1,")
        };
        graph.push(match at + 1 < sizes.len() {
            true if last.is_empty() => format!("{from}{scale}split=2[r{at}][c{}]", at + 1),
            true => format!("{from}{scale}split=2[u{at}][c{}];[u{at}]{last}null[r{at}]", at + 1),
            false => format!("{from}{scale}{last}null[r{at}]"),
        });
    }
    graph.join(";")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ratio::Ratio;

    fn timing(keys: &[f64]) -> Timing {
        Timing {
            time_base: Ratio { num: 1, den: 1000 },
            first: 2000,
            rate: Ratio { num: 25, den: 1 },
            frames: 1000,
            held: 0,
            source_frames: 1000,
            is_one_to_one: true,
            reorder_seconds: 0.08,
            can_seek: true,
            keys: keys.to_vec(),
            entries: Vec::new(),
        }
    }

    #[test]
    fn a_seek_aims_before_the_frame_by_what_decoding_runs_ahead() {
        let seconds = seek(&timing(&[]), 250).unwrap();

        assert!((seconds - (2.0 + 10.0 - 0.08 - 0.06)).abs() < 1e-9, "{seconds}");
        assert_eq!(seek(&timing(&[]), 0), None);
        assert_eq!(seek(&Timing { can_seek: false, ..timing(&[]) }, 250), None);
    }

    #[test]
    fn where_key_frames_are_not_known_to_the_container_it_aims_before_one() {
        let seconds = seek(&timing(&[2.0, 8.0, 11.9, 14.0]), 250).unwrap();

        assert!((seconds - 7.8).abs() < 1e-9, "{seconds}: the key at 11.9 may come too late");
        assert_eq!(seek(&timing(&[13.0]), 250), None, "from the beginning");
    }

    #[test]
    fn where_they_are_known_it_lands_on_the_last_key_frame_that_is_early_enough() {
        let timing = Timing { entries: vec![2.0, 7.0, 12.0, 18.0], ..timing(&[]) };
        let at = |first| seek(&timing, first).unwrap();

        assert!((at(250) - 12.25).abs() < 1e-9, "{}: the frame is that key frame itself", at(250));
        assert!((at(249) - (2.0 + 249.0 / 25.0 - 0.14)).abs() < 1e-9, "{}: between 7 and 12", at(249));
        assert!((at(252) - 12.25).abs() < 1e-9, "{}: not on the one before", at(252));
    }
}
