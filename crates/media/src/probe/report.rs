//! What ffprobe writes of streams, container and chapters, read with tolerance: a field of the wrong kind is a field that
//! is not there.

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

/// Of streams, of chapters, and of side data of a stream. ffmpeg finds no more than 1000 streams; what writes more is not
/// ffprobe any more, and a stream takes far more memory than the `{}` that may stand for it.
const MOST: usize = 4096;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    #[serde(deserialize_with = "first_ones")]
    pub streams: Vec<Stream>,
    pub format: Format,
    #[serde(deserialize_with = "first_ones")]
    pub chapters: Vec<Chapter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Format {
    #[serde(deserialize_with = "loose")]
    pub format_name: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub start_time: Option<f64>,
    #[serde(deserialize_with = "loose")]
    pub duration: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Stream {
    #[serde(deserialize_with = "loose")]
    pub index: Option<u32>,
    #[serde(deserialize_with = "loose")]
    pub codec_type: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub codec_name: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub codec_tag_string: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub time_base: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub start_time: Option<f64>,
    #[serde(deserialize_with = "loose")]
    pub duration: Option<f64>,
    #[serde(deserialize_with = "loose")]
    pub width: Option<u32>,
    #[serde(deserialize_with = "loose")]
    pub height: Option<u32>,
    #[serde(deserialize_with = "loose")]
    pub sample_aspect_ratio: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub pix_fmt: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub field_order: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub color_range: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub color_space: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub color_transfer: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub color_primaries: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub r_frame_rate: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub avg_frame_rate: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub channels: Option<u16>,
    #[serde(deserialize_with = "loose")]
    pub channel_layout: Option<String>,
    #[serde(deserialize_with = "loose")]
    pub sample_rate: Option<u32>,
    pub disposition: Map<String, Value>,
    pub tags: Map<String, Value>,
    #[serde(deserialize_with = "first_ones")]
    pub side_data_list: Vec<Map<String, Value>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Chapter {
    #[serde(deserialize_with = "loose")]
    pub start_time: Option<f64>,
    #[serde(deserialize_with = "loose")]
    pub end_time: Option<f64>,
    pub tags: Map<String, Value>,
}

impl Report {
    pub fn parse(json: &[u8]) -> Option<Self> {
        serde_json::from_str(&String::from_utf8_lossy(json)).ok()
    }
}

impl Stream {
    pub fn is(&self, kind: &str) -> bool {
        self.codec_type.as_deref() == Some(kind)
    }

    /// `None` for a codec that ffprobe has no name for.
    pub fn codec(&self) -> Option<&str> {
        self.codec_name.as_deref().filter(|name| !matches!(*name, "none" | "unknown"))
    }

    pub fn has(&self, disposition: &str) -> bool {
        self.disposition.get(disposition).and_then(number) == Some(1.0)
    }

    pub fn tag(&self, name: &str) -> Option<&str> {
        tag(&self.tags, name)
    }

    /// A number of the first side data that carries it: `rotation`, `dv_profile`.
    pub fn side(&self, field: &str) -> Option<f64> {
        self.side_data_list.iter().find_map(|data| data.get(field)).and_then(number)
    }

    pub fn area(&self) -> u64 {
        u64::from(self.width.unwrap_or(0)) * u64::from(self.height.unwrap_or(0))
    }
}

/// Some containers write the names of tags large.
pub fn tag<'a>(tags: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    let (_, value) = tags.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    value.as_str().map(str::trim).filter(|text| !text.is_empty())
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
    .filter(|number: &f64| number.is_finite())
}

/// Passes over what comes after the first [`MOST`] of a list.
fn first_ones<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    struct List<T>(PhantomData<T>);

    impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
        type Value = Vec<T>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
            let mut first = Vec::new();
            while first.len() < MOST {
                let Some(one) = list.next_element()? else { return Ok(first) };
                first.push(one);
            }
            while list.next_element::<IgnoredAny>()?.is_some() {}
            Ok(first)
        }
    }

    deserializer.deserialize_seq(List(PhantomData))
}

/// Takes `"30"` for `30`, and `"N/A"`, an overflow or another kind of value for nothing.
fn loose<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_end_is_not_taken_in() {
        let json = format!(r#"{{"chapters":[{{}}],"streams":[{{"index":7}}{}]}}"#, ",{}".repeat(100_000));

        let report = Report::parse(json.as_bytes()).unwrap();

        assert_eq!((report.streams.len(), report.chapters.len()), (MOST, 1));
        assert_eq!(report.streams[0].index, Some(7));
    }

    #[test]
    fn numbers_may_be_strings_and_nonsense_is_nothing() {
        let json =
            br#"{"streams":[{"index":"3","width":-1,"height":99999999999,"channels":"2","start_time":"N/A",
            "pix_fmt":7,"disposition":{"default":"1"},"tags":{"LANGUAGE":" eng "},"unheard_of":[]}]}"#;

        let report = Report::parse(json).unwrap();

        let stream = &report.streams[0];
        assert_eq!((stream.index, stream.width, stream.height), (Some(3), None, None));
        assert_eq!((stream.channels, stream.start_time), (Some(2), None));
        assert!(stream.has("default"));
        assert_eq!(stream.tag("language"), Some("eng"));
        assert!(Report::parse(b"{").is_none());
    }
}
