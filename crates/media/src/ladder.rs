//! The ladder: which sizes of a picture are made. Never larger than the source, always its shape.

use crate::encoder::Codec;
use crate::ratio::Ratio;
use pipeline::Name;
use serde::{Deserialize, Serialize};

/// A rung as a person writes it: a box of 16 to 9 that the picture must fit into, lying or standing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub name: String,
    /// The box's shorter side.
    pub height: u32,
    /// The most it may take, for H.264 at 30 frames a second; other codecs need less, more frames more.
    pub kbps: u32,
    /// The encoder's quality, from 0, best, to 51 or 63. Default: that of the codec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crf: Option<u8>,
    /// The stream is shown without it where it cannot be made. Default: without it nothing is shown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A rung as it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// Unique within a plan, and the name of its folder: `1080p`, or `1080p-hevc` where there are several codecs.
    pub name: Name,
    pub codec: Codec,
    pub width: u32,
    pub height: u32,
    pub crf: u8,
    /// Over any second or two.
    pub max_kbps: u32,
    /// The stream is shown without it where it cannot be made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A rung that is not made, and why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    pub name: String,
    pub reason: String,
}

pub fn standard() -> Vec<Step> {
    let steps = [
        ("2160p", 2160, 16_000),
        ("1440p", 1440, 9_000),
        ("1080p", 1080, 5_000),
        ("720p", 720, 2_800),
        ("480p", 480, 1_400),
        ("360p", 360, 800),
        ("240p", 240, 400),
    ];
    steps
        .map(|(name, height, kbps)| Step { name: name.into(), height, kbps, crf: None, optional: false })
        .into()
}

/// What of `steps` a picture of this size gets, largest first. One that lies well between two rungs also gets its own
/// size, so that nothing it has to show is thrown away; one smaller than all gets only that.
pub fn choose(
    steps: &[Step],
    width: u32,
    height: u32,
    rate: Ratio,
    codecs: &[Codec],
) -> (Vec<Rung>, Vec<Skipped>) {
    let mut steps = steps.to_vec();
    steps.sort_by_key(|step| std::cmp::Reverse(step.height));
    let (above, mut fitting): (Vec<Step>, Vec<Step>) =
        steps.into_iter().partition(|step| scale(step.height, width, height) > 1.0);
    let largest = fitting.first().map_or(0.0, |step| scale(step.height, width, height));
    if let Some(next) = above.last()
        && largest < OWN_SIZE_BELOW
    {
        fitting.insert(0, own_size(next, width, height));
    }
    // Something has to be left to show.
    let is_all_optional = fitting.iter().all(|step| step.optional);
    if let Some(smallest) = fitting.last_mut() {
        smallest.optional &= !is_all_optional;
    }
    let rung = |step: &Step, codec: Codec| {
        let (width, height) = fit(step.height, width, height);
        let name = if codecs.len() > 1 {
            format!("{}-{codec}", step.name)
        } else {
            step.name.clone()
        };
        let crf = step.crf.unwrap_or(codec.default_crf());
        let max_kbps = max_kbps(step.kbps, rate, codec);
        Rung { name: Name::nearest(&name), codec, width, height, crf, max_kbps, optional: step.optional }
    };
    let rungs = codecs.iter().flat_map(|&codec| fitting.iter().map(move |step| rung(step, codec)));
    let reason = format!("the source has {width}×{height}");
    let skipped = above.into_iter().map(|step| Skipped { name: step.name, reason: reason.clone() });
    (rungs.collect(), skipped.collect())
}

/// A rung that takes away more than a tenth of each side is not enough as the largest.
const OWN_SIZE_BELOW: f64 = 0.9;

fn own_size(next: &Step, width: u32, height: u32) -> Step {
    let side = (f64::from(next.height) / scale(next.height, width, height)).round();
    let kbps = f64::from(next.kbps) * (side / f64::from(next.height)).powf(1.5);
    let height = side as u32;
    let (name, kbps) = (format!("{height}p"), (kbps as u32).max(50));
    Step { name, height, kbps, crf: next.crf, optional: next.optional }
}

/// By how much the picture must be scaled to fill the box.
fn scale(side: u32, width: u32, height: u32) -> f64 {
    let (long, short) = (width.max(height), width.min(height));
    let (long_box, side) = (f64::from(side) * 16.0 / 9.0, f64::from(side));
    // Names round: 853⅓ is 854 to people.
    let fill = |side: f64, picture: u32| side.floor() / f64::from(picture.max(1));
    fill(long_box, long).min(fill(side, short))
}

/// Even sides, for 4:2:0 needs them; never larger than the source but for a side of 1.
fn fit(side: u32, width: u32, height: u32) -> (u32, u32) {
    let scale = scale(side, width, height).min(1.0);
    let even = |picture: u32| {
        let wanted = (f64::from(picture) * scale / 2.0).round() as u32 * 2;
        wanted.min(picture / 2 * 2).max(2)
    };
    (even(width), even(height))
}

/// Twice the frames need half as much again.
fn max_kbps(kbps: u32, rate: Ratio, codec: Codec) -> u32 {
    let frames = (rate.to_f64() / 30.0).max(1.0).powf(0.585);
    (f64::from(kbps) * frames * codec.thrift()).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const R30: Ratio = Ratio { num: 30, den: 1 };

    fn sizes(width: u32, height: u32) -> Vec<(String, u32, u32)> {
        let (rungs, _) = choose(&standard(), width, height, R30, &[Codec::H264]);
        rungs.into_iter().map(|rung| (rung.name.into(), rung.width, rung.height)).collect()
    }

    fn named(sizes: &[(&str, u32, u32)]) -> Vec<(String, u32, u32)> {
        sizes.iter().map(|&(name, width, height)| (name.into(), width, height)).collect()
    }

    #[test]
    fn a_ladder_never_upscales_and_says_what_it_leaves_out() {
        let (rungs, skipped) = choose(&standard(), 1280, 720, R30, &[Codec::H264]);

        assert_eq!(rungs[0].name, "720p");
        assert_eq!(skipped.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(), ["2160p", "1440p", "1080p"]);
        assert!(skipped[0].reason.contains("1280×720"));
    }

    #[test]
    fn the_picture_keeps_its_shape_lying_and_standing() {
        let lying = [
            ("1080p", 1920, 1080),
            ("720p", 1280, 720),
            ("480p", 854, 480),
            ("360p", 640, 360),
            ("240p", 426, 240),
        ];
        assert_eq!(sizes(1920, 1080), named(&lying));
        let standing = lying.map(|(name, width, height)| (name, height, width));
        assert_eq!(sizes(1080, 1920), named(&standing));
        assert_eq!(sizes(1920, 800)[0], ("1080p".into(), 1920, 800), "cinema is as wide as the box");
        assert_eq!(sizes(1440, 1080)[0], ("1080p".into(), 1440, 1080), "4:3 is as high");
    }

    #[test]
    fn a_size_between_two_rungs_is_kept() {
        assert_eq!(sizes(1600, 900)[..2], named(&[("900p", 1600, 900), ("720p", 1280, 720)]));
        assert_eq!(sizes(1300, 730)[0].0, "720p", "hardly larger than the rung");
        assert_eq!(sizes(200, 200), named(&[("200p", 200, 200)]));
        assert_eq!(sizes(161, 121), named(&[("121p", 160, 120)]));
        assert_eq!(sizes(1, 1), named(&[("1p", 2, 2)]));
        assert_eq!(sizes(7680, 4320)[0], ("2160p".into(), 3840, 2160), "nothing above the ladder");
    }

    #[test]
    fn more_frames_and_other_codecs_change_the_cap() {
        let cap = |rate: u32, codec| {
            choose(&standard(), 1920, 1080, Ratio { num: rate, den: 1 }, &[codec]).0[0].max_kbps
        };

        assert_eq!(cap(30, Codec::H264), 5000);
        assert_eq!(cap(24, Codec::H264), 5000);
        assert_eq!(cap(60, Codec::H264), 7500);
        assert!(cap(30, Codec::Hevc) < 4000 && cap(30, Codec::Av1) < cap(30, Codec::Hevc));
    }

    #[test]
    fn of_rungs_that_may_be_left_out_one_may_not() {
        let of = |width, height, optional: &[&str]| -> Vec<(String, bool)> {
            let steps = standard().into_iter();
            let steps = steps.map(|step| Step { optional: optional.contains(&step.name.as_str()), ..step });
            let (rungs, _) = choose(&steps.collect::<Vec<_>>(), width, height, R30, &[Codec::H264]);
            rungs.into_iter().map(|rung| (rung.name.into(), rung.optional)).collect()
        };
        let named = |rungs: &[(&str, bool)]| rungs.iter().map(|&(name, is)| (name.to_owned(), is)).collect();
        let expected: Vec<(String, bool)> = named(&[("360p", true), ("240p", false)]);

        assert_eq!(of(640, 360, &["360p"]), expected);
        assert_eq!(of(640, 360, &["360p", "240p"]), expected, "something is left to show");
        let own_size: Vec<(String, bool)> = named(&[("300p", true), ("240p", false)]);
        assert_eq!(of(533, 300, &["360p"]), own_size, "it stands in for the rung above");
    }

    #[test]
    fn several_codecs_are_told_apart_by_name() {
        let (rungs, _) = choose(&standard(), 640, 360, R30, &[Codec::H264, Codec::Av1]);

        let names: Vec<_> = rungs.iter().map(|rung| rung.name.as_str()).collect();
        assert_eq!(names, ["360p-h264", "240p-h264", "360p-av1", "240p-av1"]);
    }
}
