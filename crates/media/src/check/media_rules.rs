//! Rules of one media playlist and its segments.

use super::finding::Findings;
use super::part::{Kind, Part, Run};
use super::rendition::{Container, Rendition};
use super::rule;

/// EXTINF may be rounded to milliseconds.
const ROUNDING: f64 = 0.001;
const KEY_FRAME_SECONDS: f64 = 2.0;
const SEGMENT_SECONDS: f64 = 6.0;

pub fn check(rendition: &Rendition, findings: &mut Findings) {
    tags(rendition, findings);
    target(rendition, findings);
    if rendition.media.is_i_frames_only {
        return;
    }
    durations(rendition, findings);
    key_frames(rendition, findings);
    for kind in [Kind::Video, Kind::Audio] {
        continuity(rendition, kind, findings);
    }
}

fn tags(rendition: &Rendition, findings: &mut Findings) {
    let media = &rendition.media;
    let place = rendition.place();
    if media.segments.is_empty() {
        findings.add(&rule::NO_SEGMENTS, place.clone(), "the playlist lists no segment");
    }
    let (needed, tag) = media.needs;
    if media.version.max(1) < needed {
        let what = format!("{tag} needs version {needed}, EXT-X-VERSION is {}", media.version.max(1));
        findings.add(&rule::VERSION, place.clone(), what);
    }
    if !media.is_ended {
        findings.add(&rule::NO_END, place.clone(), "EXT-X-ENDLIST is missing: players wait for more");
    }
    match media.kind.as_deref() {
        Some("VOD") => {}
        found => {
            let what = format!("EXT-X-PLAYLIST-TYPE is {}, not VOD", found.unwrap_or("missing"));
            findings.add(&rule::PLAYLIST_TYPE, place, what);
        }
    }
}

fn target(rendition: &Rendition, findings: &mut Findings) {
    let media = &rendition.media;
    let Some(target) = media.target else {
        return findings.add(&rule::TARGET_DURATION, rendition.place(), "EXT-X-TARGETDURATION is missing");
    };
    for (index, segment) in media.segments.iter().enumerate() {
        let real = main(rendition, index).map_or(0.0, Run::duration);
        let longest = segment.duration.max(real);
        if (longest - ROUNDING).round() > target {
            let what = format!("the segment lasts {longest:.3} s, EXT-X-TARGETDURATION is {target}");
            findings.add(&rule::TARGET_DURATION, rendition.segment_place(index), what);
        }
    }
    if !media.is_i_frames_only && media.segments.len() > 1 && target != SEGMENT_SECONDS {
        let what = format!("EXT-X-TARGETDURATION is {target}, not {SEGMENT_SECONDS}");
        findings.add(&rule::SEGMENT_LENGTH, rendition.place(), what);
    }
}

fn main(rendition: &Rendition, index: usize) -> Option<&Run> {
    rendition.parts.get(index)?.as_ref().and_then(Part::main)
}

/// The sum is only looked at where each is right: small errors may add up, a large one needs no second finding.
fn durations(rendition: &Rendition, findings: &mut Findings) {
    let (mut promised, mut real, mut frame) = (0.0, 0.0, 0.0_f64);
    let mut is_right = rendition.is_whole();
    for (index, segment) in rendition.media.segments.iter().enumerate() {
        let Some(run) = main(rendition, index) else { continue };
        promised += segment.duration;
        real += run.duration();
        frame = frame.max(run.frame());
        if (segment.duration - run.duration()).abs() > run.frame() + ROUNDING {
            is_right = false;
            let what = format!("EXTINF is {:.3} s, the media last {:.3} s", segment.duration, run.duration());
            findings.add(&rule::EXTINF, rendition.segment_place(index), what);
        }
    }
    if is_right && (promised - real).abs() > frame + ROUNDING {
        let what = format!("all EXTINF together are {promised:.3} s, the media last {real:.3} s");
        findings.add(&rule::EXTINF_SUM, rendition.place(), what);
    }
}

fn key_frames(rendition: &Rendition, findings: &mut Findings) {
    let is_fmp4 = rendition.container == Container::Fmp4;
    let not_sync = if is_fmp4 { &rule::NOT_SYNC } else { &rule::TS_NOT_SYNC };
    for (index, part) in rendition.parts.iter().enumerate() {
        let Some(run) = part.as_ref().and_then(|part| part.run(Kind::Video)) else { continue };
        if !run.begins_with_key {
            findings.add(
                not_sync,
                rendition.segment_place(index),
                "the segment does not begin with a key frame",
            );
            continue;
        }
        let after = run.keys.iter().skip(1).chain([&run.end]);
        let widest =
            run.keys.iter().zip(after).map(|(key, next)| run.seconds(next - key)).fold(0.0, f64::max);
        if widest > KEY_FRAME_SECONDS + run.frame() {
            let what = format!("{widest:.2} s go by without a key frame; there should be one every 2 s");
            findings.add(&rule::KEY_FRAMES, rendition.segment_place(index), what);
        }
    }
}

/// A segment that could not be read interrupts the comparison; so does a discontinuity.
fn continuity(rendition: &Rendition, kind: Kind, findings: &mut Findings) {
    let mut before: Option<&Run> = None;
    for (index, (part, segment)) in rendition.parts.iter().zip(&rendition.media.segments).enumerate() {
        let run = part.as_ref().and_then(|part| part.run(kind));
        if let Some(run) = run {
            let same_track = |last: &&Run| !segment.is_discontinuous && last.timescale == run.timescale;
            let seam = before.filter(same_track).map(|last| run.start - last.end);
            for (jump, at) in [(seam, "begins"), (run.jump, "goes on")] {
                let Some(jump) = jump else { continue };
                report_jump(rendition, index, run, jump, at, findings);
            }
        }
        before = run;
    }
}

fn report_jump(
    rendition: &Rendition,
    index: usize,
    run: &Run,
    jump: i128,
    at: &str,
    findings: &mut Findings,
) {
    let (rule, allowed) = match rendition.container {
        Container::Fmp4 => (&rule::TFDT_GAP, 1),
        // Times in MPEG-TS say when a frame begins; when it ends is a guess.
        _ => (&rule::TS_GAP, i128::from(run.longest) + 1),
    };
    if jump.abs() <= allowed {
        return;
    }
    let media = if run.kind == Kind::Video { "picture" } else { "sound" };
    let way = if jump > 0 { "after" } else { "before" };
    let what = format!(
        "its {media} {at} {:.4} s ({} ticks) {way} the end of what comes before: {}",
        run.seconds(jump.abs()),
        jump.abs(),
        if jump > 0 { "a gap" } else { "an overlap" },
    );
    findings.add(rule, rendition.segment_place(index), what);
}
