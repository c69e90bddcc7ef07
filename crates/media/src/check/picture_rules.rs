//! Rules of picture: each rendition alone, and all of them beside each other.

use super::finding::Findings;
use super::part::Kind;
use super::rendition::{Container, Rendition, Whole};
use super::rule;

const MAX_RATE: f64 = 60.0;

pub fn check(renditions: &[Rendition], findings: &mut Findings) {
    let is_picture = |rendition: &&Rendition| !rendition.media.is_i_frames_only && rendition.has(Kind::Video);
    let pictures: Vec<_> = renditions.iter().filter(is_picture).collect();
    for rendition in &pictures {
        codec(rendition, findings);
        rate(rendition, findings);
    }
    let wholes: Vec<_> =
        pictures.iter().filter_map(|rendition| Some((*rendition, rendition.whole(Kind::Video)?))).collect();
    let Some((first, others)) = wholes.split_first() else { return };
    for other in others {
        beside(first, other, findings);
    }
}

fn codec(rendition: &Rendition, findings: &mut Findings) {
    let codec =
        rendition.description(Kind::Video).and_then(|track| track.codec.as_deref()).unwrap_or_default();
    let is_hevc = codec.starts_with("hvc1") || codec.starts_with("hev1");
    if is_hevc && (codec.starts_with("hev1") || rendition.container != Container::Fmp4) {
        let container = if rendition.container == Container::Fmp4 {
            "fragmented MP4"
        } else {
            "MPEG-TS"
        };
        let what = format!("HEVC must be in fragmented MP4 as hvc1; it is in {container} as {}", &codec[..4]);
        findings.add(&rule::HEVC_IN_FMP4, rendition.place(), what);
    }
    if codec.starts_with("avc3") {
        let what = "H.264 should be avc1, with its parameters in the init segment; it is avc3";
        findings.add(&rule::AVC1, rendition.place(), what);
    }
}

fn rate(rendition: &Rendition, findings: &mut Findings) {
    if let Some(whole) = rendition.whole(Kind::Video)
        && whole.samples > 1
        && whole.rate > MAX_RATE + 0.5
    {
        let what = format!("{:.3} frames are shown in a second; at most 60 may be", whole.rate);
        findings.add(&rule::FRAME_RATE_HIGH, rendition.place(), what);
    }
}

fn beside(first: &(&Rendition, Whole), other: &(&Rendition, Whole), findings: &mut Findings) {
    let ((one, one_whole), (two, two_whole)) = (first, other);
    let is_same_rate = (one_whole.rate - two_whole.rate).abs() < one_whole.rate * 0.001;
    let is_same_length = one_whole.samples == two_whole.samples;
    // A missing frame also changes the rate a little, where the duration stays.
    let is_close = one_whole.samples.abs_diff(two_whole.samples) * 20 < one_whole.samples.max(1);
    if !is_same_length && (is_same_rate || is_close) {
        let what = format!("{} frames, where {} has {}", two_whole.samples, one.playlist, one_whole.samples);
        return findings.add(&rule::FRAMES_UNEQUAL, two.place(), what);
    }
    let (one_cuts, two_cuts) = (cuts(one), cuts(two));
    let allowed = one_whole.frame.min(two_whole.frame) / 2.0;
    let differ = one_cuts.iter().zip(&two_cuts).position(|(one, two)| (one - two).abs() > allowed);
    if let Some(index) = differ {
        let what = format!(
            "the segment ends at {:.3} s, that of {} at {:.3} s",
            two_cuts[index], one.playlist, one_cuts[index]
        );
        findings.add_strictly(&rule::ALIGNED, two.segment_place(index), what);
    } else if one_cuts.len() != two_cuts.len() {
        let what = format!("{} segments, where {} has {}", two_cuts.len(), one.playlist, one_cuts.len());
        findings.add_strictly(&rule::ALIGNED, two.place(), what);
    }
}

/// Where each segment ends, in seconds from the beginning of the first.
fn cuts(rendition: &Rendition) -> Vec<f64> {
    let runs = rendition.parts.iter().flatten().filter_map(|part| part.run(Kind::Video));
    runs.scan(0.0, |end, run| {
        *end += run.duration();
        Some(*end)
    })
    .collect()
}
