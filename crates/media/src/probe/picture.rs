//! What a stream's headers say of its picture: size as shown, colours, depth, fields.

use super::report::Stream;
use crate::ratio::Ratio;
use crate::source::{Color, DynamicRange};

/// Pixels more oblong than this are a mistake in the header.
const MOST_OBLONG: f64 = 10.0;

/// Sides that no codec here goes beyond.
const LONGEST_SIDE: u32 = 32_768;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shown {
    pub width: u32,
    pub height: u32,
    pub rotation: u16,
    pub sample_aspect: Ratio,
}

impl Shown {
    /// With square pixels and upright. Oblong pixels make the picture wider (or higher), never smaller, so that no line
    /// or column is lost. `None` without a believable size.
    pub fn of(stream: &Stream) -> Option<Self> {
        let is_sane = |side: &u32| (1..=LONGEST_SIDE).contains(side);
        let (width, height) = (stream.width.filter(is_sane)?, stream.height.filter(is_sane)?);
        let sample_aspect = sample_aspect(stream);
        let stretched = |side: u32, by: Ratio| {
            u32::try_from(by.of(u64::from(side))).unwrap_or(LONGEST_SIDE).clamp(side, LONGEST_SIDE)
        };
        let (width, height) = if sample_aspect.num > sample_aspect.den {
            (stretched(width, sample_aspect), height)
        } else {
            (width, stretched(height, sample_aspect.inverse()))
        };
        let rotation = rotation(stream);
        let (width, height) = if rotation % 180 == 90 { (height, width) } else { (width, height) };
        Some(Shown { width, height, rotation, sample_aspect })
    }
}

fn sample_aspect(stream: &Stream) -> Ratio {
    let claimed = stream.sample_aspect_ratio.as_deref().and_then(|text| text.parse::<Ratio>().ok());
    let is_sane = |ratio: &Ratio| (1.0 / MOST_OBLONG..=MOST_OBLONG).contains(&ratio.to_f64());
    claimed.filter(is_sane).unwrap_or(Ratio::ONE)
}

/// Clockwise, of the four that ffmpeg turns by; a mirrored picture keeps its size. At any other angle ffmpeg tilts the
/// picture within its frame, and a matrix without meaning is left alone: both count as 0.
fn rotation(stream: &Stream) -> u16 {
    let Some(counter_clockwise) = stream.side("rotation").filter(|degrees| degrees.abs() <= 360.0) else {
        return 0;
    };
    let clockwise = (-counter_clockwise).rem_euclid(360.0);
    [90, 180, 270].into_iter().find(|turn| (f64::from(*turn) - clockwise).abs() < 1.0).unwrap_or(0)
}

/// The error is the profile of a Dolby Vision whose base layer means nothing to other decoders.
pub fn color(stream: &Stream) -> Result<Color, u32> {
    let profile = stream.side("dv_profile").map(|profile| profile as u32);
    let compatible = stream.side("dv_bl_signal_compatibility_id").map(|id| id as u32);
    if let (Some(profile @ (5 | 10 | 20)), Some(0) | None) = (profile, compatible) {
        return Err(profile);
    }
    let named =
        |name: &Option<String>| name.clone().filter(|name| !matches!(name.as_str(), "unknown" | "reserved"));
    let transfer = named(&stream.color_transfer);
    let range = match (transfer.as_deref(), compatible) {
        (Some("smpte2084"), _) | (None, Some(1 | 6)) => DynamicRange::Pq,
        (Some("arib-std-b67"), _) | (None, Some(4)) => DynamicRange::Hlg,
        (_, _) => DynamicRange::Sdr,
    };
    let pixel_format = stream.pix_fmt.as_deref().unwrap_or_default();
    Ok(Color {
        range,
        primaries: named(&stream.color_primaries),
        transfer,
        matrix: named(&stream.color_space),
        is_full_range: stream.color_range.as_deref() == Some("pc") || pixel_format.starts_with("yuvj"),
    })
}

/// By field order; a stream that does not tell is taken as progressive.
pub fn is_interlaced(stream: &Stream) -> bool {
    matches!(stream.field_order.as_deref(), Some("tt" | "bb" | "tb" | "bt"))
}

/// Bits a component, read off ffmpeg's name of the pixel format: `yuv420p10le`, `p010le`, `gbrp12be`, `rgb48le`.
pub fn bit_depth(pixel_format: &str) -> u8 {
    let Some(name) = pixel_format.strip_suffix("le").or_else(|| pixel_format.strip_suffix("be")) else {
        return 8;
    };
    let last = name.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    match (name, last) {
        ("nv20", _) => 10,
        (_, "48" | "64" | "32" | "16" | "016" | "216" | "416") => 16,
        (_, "9") => 9,
        (_, "10" | "010" | "210" | "410") => 10,
        (_, "12" | "012" | "212" | "412" | "36") => 12,
        (_, "14") => 14,
        (_, _) => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(json: serde_json::Value) -> Stream {
        serde_json::from_value(json).unwrap()
    }

    fn shown(width: u32, height: u32, aspect: &str, rotation: serde_json::Value) -> (u32, u32, u16) {
        let shown = Shown::of(&stream(serde_json::json!({
            "width": width, "height": height, "sample_aspect_ratio": aspect,
            "side_data_list": [{"side_data_type": "other"}, {"rotation": rotation}],
        })))
        .unwrap();
        (shown.width, shown.height, shown.rotation)
    }

    #[test]
    fn a_quarter_turn_swaps_the_sides() {
        for (rotation, expected) in [
            (0, (640, 360, 0)),
            (-90, (360, 640, 90)),
            (90, (360, 640, 270)),
            (180, (640, 360, 180)),
            (-180, (640, 360, 180)),
            (270, (360, 640, 90)),
            (-45, (640, 360, 0)),
            (i64::MIN, (640, 360, 0)),
        ] {
            assert_eq!(shown(640, 360, "1:1", rotation.into()), expected, "{rotation}");
        }
        assert_eq!(shown(640, 360, "1:1", "nan".into()), (640, 360, 0));
    }

    #[test]
    fn pixels_become_square_without_loss() {
        assert_eq!(shown(720, 576, "16:11", 0.into()), (1047, 576, 0));
        assert_eq!(shown(720, 480, "8:9", 0.into()), (720, 540, 0));
        assert_eq!(shown(640, 360, "2:1", (-90).into()), (360, 1280, 90));
        for absurd in ["0:1", "1:0", "1000:1", "x", "99999999999:1"] {
            assert_eq!(shown(161, 121, absurd, 0.into()), (161, 121, 0), "{absurd}");
        }
        assert_eq!(Shown::of(&stream(serde_json::json!({"width": 0, "height": 5}))), None);
    }

    #[test]
    fn depth_is_in_the_name_of_the_pixel_format() {
        for (name, depth) in [
            ("yuv420p", 8),
            ("yuvj422p", 8),
            ("yuv420p10le", 10),
            ("yuv422p12be", 12),
            ("p010le", 10),
            ("p016le", 16),
            ("gbrp10le", 10),
            ("gray16be", 16),
            ("rgb48le", 16),
            ("rgb565le", 8),
            ("x2rgb10le", 10),
            ("nv12", 8),
            ("nv20le", 10),
            ("bgr0", 8),
            ("", 8),
            ("le", 8),
        ] {
            assert_eq!(bit_depth(name), depth, "{name}");
        }
    }

    #[test]
    fn dolby_vision_is_taken_by_its_base_layer() {
        let dolby = |profile: u32, compatible: u32, transfer: Option<&str>| {
            let side =
                serde_json::json!([{"dv_profile": profile, "dv_bl_signal_compatibility_id": compatible}]);
            color(&stream(serde_json::json!({"side_data_list": side, "color_transfer": transfer})))
        };

        assert_eq!(dolby(5, 0, None), Err(5));
        assert_eq!(dolby(8, 1, None).unwrap().range, DynamicRange::Pq);
        assert_eq!(dolby(8, 4, Some("arib-std-b67")).unwrap().range, DynamicRange::Hlg);
        assert_eq!(dolby(8, 2, Some("bt709")).unwrap().range, DynamicRange::Sdr);
    }

    #[test]
    fn colours_the_file_does_not_name_are_not_made_up() {
        let color = color(&stream(serde_json::json!({
            "color_space": "unknown", "color_transfer": "smpte2084", "pix_fmt": "yuvj420p",
        })))
        .unwrap();

        assert_eq!((color.range, color.matrix, color.primaries), (DynamicRange::Pq, None, None));
        assert!(color.is_full_range);
    }
}
