//! How high a level of its codec a picture may take: a decoder that has it plays any picture of that size and rate.
//!
//! Encoders choose the level themselves, and not all choose the same. Each may take up to [`HEADROOM`] levels more than the
//! picture needs.

use crate::encoder::Codec;

const HEADROOM: usize = 2;

/// A decoded picture that others refer to stays in memory. H.264 counts that: with its usual settings an encoder keeps four.
const KEPT: u64 = 4;

/// A buffer may be as long as this, in seconds of the largest bitrate.
const BUFFER_SECONDS: f64 = 1.5;

struct Level {
    /// In tenths.
    level: u32,
    /// Samples of brightness in a picture, and in a second.
    picture: u64,
    second: u64,
    kbps: u32,
}

const fn levels<const N: usize>(of: [(u32, u64, u64, u32); N]) -> [Level; N] {
    let mut levels = [const { Level { level: 0, picture: 0, second: 0, kbps: 0 } }; N];
    let mut at = 0;
    while at < N {
        let (level, picture, second, kbps) = of[at];
        levels[at] = Level { level, picture, second, kbps };
        at += 1;
    }
    levels
}

/// ITU-T H.264, table A-1, where a picture is as large as fits [`KEPT`] times into the buffer.
const H264: [Level; 19] = levels([
    (10, 99 << 8, 1485 << 8, 64),
    (11, 225 << 8, 3000 << 8, 192),
    (12, 396 << 8, 6000 << 8, 384),
    (13, 396 << 8, 11_880 << 8, 768),
    (20, 396 << 8, 11_880 << 8, 2000),
    (21, 792 << 8, 19_800 << 8, 4000),
    (22, 1620 << 8, 20_250 << 8, 4000),
    (30, 1620 << 8, 40_500 << 8, 10_000),
    (31, 3600 << 8, 108_000 << 8, 14_000),
    (32, 5120 << 8, 216_000 << 8, 20_000),
    (40, 8192 << 8, 245_760 << 8, 20_000),
    (41, 8192 << 8, 245_760 << 8, 50_000),
    (42, 8704 << 8, 522_240 << 8, 50_000),
    (50, 22_080 << 8, 589_824 << 8, 135_000),
    (51, 36_864 << 8, 983_040 << 8, 240_000),
    (52, 36_864 << 8, 2_073_600 << 8, 240_000),
    (60, 139_264 << 8, 4_177_920 << 8, 240_000),
    (61, 139_264 << 8, 8_355_840 << 8, 480_000),
    (62, 139_264 << 8, 16_711_680 << 8, 800_000),
]);

/// ITU-T H.265, tables A.8 and A.9, main tier.
const HEVC: [Level; 13] = levels([
    (10, 36_864, 552_960, 128),
    (20, 122_880, 3_686_400, 1500),
    (21, 245_760, 7_372_800, 3000),
    (30, 552_960, 16_588_800, 6000),
    (31, 983_040, 33_177_600, 10_000),
    (40, 2_228_224, 66_846_720, 12_000),
    (41, 2_228_224, 133_693_440, 20_000),
    (50, 8_912_896, 267_386_880, 25_000),
    (51, 8_912_896, 534_773_760, 40_000),
    (52, 8_912_896, 1_069_547_520, 60_000),
    (60, 35_651_584, 1_069_547_520, 60_000),
    (61, 35_651_584, 2_139_095_040, 120_000),
    (62, 35_651_584, 4_278_190_080, 240_000),
]);

/// AV1, annex A.3, main tier.
const AV1: [Level; 13] = levels([
    (20, 147_456, 4_423_680, 1500),
    (21, 278_784, 8_363_520, 3000),
    (30, 665_856, 19_975_680, 6000),
    (31, 1_065_024, 31_950_720, 10_000),
    (40, 2_359_296, 70_778_880, 12_000),
    (41, 2_359_296, 141_557_760, 20_000),
    (50, 8_912_896, 267_386_880, 30_000),
    (51, 8_912_896, 534_773_760, 40_000),
    (52, 8_912_896, 1_069_547_520, 60_000),
    (53, 8_912_896, 1_069_547_520, 60_000),
    (60, 35_651_584, 1_069_547_520, 60_000),
    (61, 35_651_584, 2_139_095_040, 100_000),
    (62, 35_651_584, 4_278_190_080, 160_000),
]);

/// The highest level that a picture of this size, of so many frames a second, may take.
pub fn most(codec: Codec, (width, height): (u32, u32), frames: f64, kbps: u32, preset: Option<&str>) -> u32 {
    let levels: &[Level] = match codec {
        Codec::H264 => &H264,
        Codec::Hevc => &HEVC,
        Codec::Av1 => &AV1,
    };
    let whole = |side: u32| u64::from(side.div_ceil(16)) << 4;
    let area = whole(width) * whole(height);
    // A picture may not be much wider than high, nor the other way round.
    let longer = whole(width.max(height));
    let kept = if codec == Codec::H264 { kept(preset) } else { KEPT };
    let picture = (area * kept / KEPT).max(longer * longer / 8);
    let second = (area as f64 * frames) as u64;
    let kbps = (f64::from(kbps) * BUFFER_SECONDS) as u32;
    let is_enough = |level: &Level| level.picture >= picture && level.second >= second && level.kbps >= kbps;
    let least = levels.iter().position(is_enough).unwrap_or(levels.len());
    levels.get(least + HEADROOM).or(levels.last()).map_or(0, |level| level.level)
}

/// How many pictures x264 keeps with its slower presets.
fn kept(preset: Option<&str>) -> u64 {
    match preset {
        Some("slow") => 5,
        Some("slower") => 8,
        Some("veryslow" | "placebo") => 16,
        _ => KEPT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_may_take_two_levels_more_than_it_needs() {
        let h264 = |size, frames, kbps| most(Codec::H264, size, frames, kbps, None);

        assert_eq!(h264((320, 180), 25.0, 400), 21);
        assert_eq!(h264((640, 360), 25.0, 800), 32);
        assert_eq!(h264((1280, 720), 30.0, 2800), 40);
        assert_eq!(h264((1920, 1080), 30.0, 5000), 42);
        assert_eq!(h264((1080, 1920), 60.0, 7000), 51);
        assert_eq!(h264((3840, 2160), 60.0, 20_000), 61);
        assert_eq!(most(Codec::H264, (1920, 1080), 30.0, 5000, Some("veryslow")), 60);
        assert_eq!(most(Codec::Hevc, (1920, 1080), 30.0, 3500, None), 50);
        assert_eq!(most(Codec::Av1, (1920, 1080), 30.0, 3000, None), 50);
        assert_eq!(h264((16_000, 16_000), 240.0, 900_000), 62);
    }
}
