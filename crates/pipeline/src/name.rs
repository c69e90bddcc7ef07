//! Names and relative paths that are safe to join to a folder.

use serde::{Deserialize, Deserializer, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::path::Path;
use std::str::FromStr;

/// The name of a rendition, a sound track or a subtitle track: 1 to 64 ASCII letters, digits, `-` and `_`. It does not
/// begin with `-`. It is also the name of the track's folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Name(String);

/// The path of a file below the folder of the execution that made it: up to eight parts with `/` between them. A part has
/// 1 to 255 ASCII letters, digits and `-_.+@=`, and does not begin with `.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct FilePath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("`{0}` is not a usable name; use 1 to 64 letters, digits, `-` and `_`")]
    Name(String),
    #[error("`{0}` is not a usable path; use letters, digits and `-_.+@=`, with `/` between parts")]
    Path(String),
}

const LONGEST_NAME: usize = 64;
const LONGEST_PATH: usize = 1024;
const LONGEST_PART: usize = 255;
const MOST_PARTS: usize = 8;
/// How much of an unusable name an error repeats.
const QUOTED: usize = 80;

impl Name {
    pub fn is_valid(text: &str) -> bool {
        (1..=LONGEST_NAME).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(is_in_name)
    }

    /// The name nearest to `text`: other characters become `_`, and what is too long is cut.
    pub fn nearest(text: &str) -> Self {
        let byte = |c: char| u8::try_from(c).ok().filter(|byte| is_in_name(*byte)).map_or('_', char::from);
        let mut name: String = text.chars().take(LONGEST_NAME).map(byte).collect();
        if name.is_empty() || name.starts_with('-') {
            name.insert(0, '_');
            name.truncate(LONGEST_NAME);
        }
        Name(name)
    }
}

impl FilePath {
    pub fn is_valid(text: &str) -> bool {
        text.len() <= LONGEST_PATH
            && text.split('/').count() <= MOST_PARTS
            && text.split('/').all(Self::is_valid_part)
    }

    /// Whether `text` is a path of one part.
    pub fn is_valid_part(text: &str) -> bool {
        (1..=LONGEST_PART).contains(&text.len())
            && !text.starts_with('.')
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+@=".contains(&byte))
    }

    /// The last part.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

fn is_in_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_'
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED).flat_map(char::escape_debug).collect()
}

impl TryFrom<String> for Name {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        if Self::is_valid(&text) {
            Ok(Name(text))
        } else {
            Err(BadName::Name(quoted(&text)))
        }
    }
}

impl TryFrom<String> for FilePath {
    type Error = BadName;

    fn try_from(text: String) -> Result<Self, BadName> {
        if Self::is_valid(&text) {
            Ok(FilePath(text))
        } else {
            Err(BadName::Path(quoted(&text)))
        }
    }
}

macro_rules! text_that_was_checked {
    ($($kind:ident)*) => {$(
        impl $kind {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $kind {
            type Err = BadName;

            fn from_str(text: &str) -> Result<Self, BadName> {
                text.to_owned().try_into()
            }
        }

        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.try_into().map_err(serde::de::Error::custom)
            }
        }

        impl Deref for $kind {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<Path> for $kind {
            fn as_ref(&self) -> &Path {
                self.0.as_ref()
            }
        }

        impl Borrow<str> for $kind {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl PartialEq<str> for $kind {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $kind {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<String> for $kind {
            fn eq(&self, other: &String) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<$kind> for String {
            fn eq(&self, other: &$kind) -> bool {
                *self == other.0
            }
        }

        impl From<$kind> for String {
            fn from(checked: $kind) -> String {
                checked.0
            }
        }

        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    )*};
}

text_that_was_checked![Name FilePath];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const ASTRAY: [&str; 16] = [
        "",
        "/",
        "..",
        ".",
        "../x",
        "a/../b",
        "/etc/passwd",
        "a//b",
        "a/",
        ".hidden",
        "a/.b",
        "a\\b",
        "a b",
        "a\0b",
        "ü",
        "http://host/x",
    ];

    #[test]
    fn a_name_cannot_be_a_path_or_an_option() {
        for good in
            ["1080p", "audio-en", "audio-zh-Hant-2", "720p-h264", "subtitles-und", "a_b", &"x".repeat(64)]
        {
            assert_eq!(good.parse::<Name>().unwrap(), good);
        }
        for bad in ASTRAY.into_iter().chain(["-rf", "a.b", "a=b", "a%d", &"x".repeat(65)]) {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
            assert!(serde_json::from_value::<Name>(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_path_stays_below_its_folder() {
        for good in ["720p/seg-00001.m4s", "master.m3u8", "a/b/c.vtt", "a/b/c/d/e/f/g/h"] {
            assert_eq!(good.parse::<FilePath>().unwrap(), good);
        }
        let long = format!("a/{}", "x".repeat(256));
        for bad in ASTRAY.into_iter().chain([long.as_str(), "a/b/c/d/e/f/g/h/i", "a%d"]) {
            assert!(bad.parse::<FilePath>().is_err(), "{bad}");
            assert!(serde_json::from_value::<FilePath>(bad.into()).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_nearest_name_is_a_name() {
        for text in ["1080p", "", "-x", "../x", "audio-ü", &"long-".repeat(30)] {
            assert!(Name::is_valid(&Name::nearest(text)), "{text}");
        }
        assert_eq!(Name::nearest("audio-zh-Hant"), "audio-zh-Hant");
    }

    #[test]
    fn an_error_repeats_no_control_characters() {
        let error = "\u{1b}[2J".parse::<Name>().unwrap_err().to_string();

        assert!(!error.contains('\u{1b}'), "{error}");
    }
}
