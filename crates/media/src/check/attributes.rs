//! `NAME=value,NAME="value"`: what follows most tags.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attributes(BTreeMap<String, String>);

impl Attributes {
    /// What could be read, and the first thing that could not.
    pub fn parse(text: &str) -> (Self, Option<String>) {
        let mut found = BTreeMap::new();
        let mut wrong = None;
        let mut rest = text.trim();
        while !rest.is_empty() {
            let Some((name, value, after)) = next(rest) else {
                wrong.get_or_insert_with(|| format!("`{}` is no attribute", shortened(rest)));
                rest = rest.split_once(',').map_or("", |(_, after)| after.trim_start());
                continue;
            };
            if found.insert(name.to_owned(), value.to_owned()).is_some() {
                wrong.get_or_insert_with(|| format!("attribute {} occurs twice", shortened(name)));
            }
            rest = after;
        }
        (Attributes(found), wrong)
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name)?.parse().ok()
    }
}

/// The first attribute, and what follows its comma.
fn next(text: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = text.split_once('=')?;
    let is_name = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-';
    let name = name.trim();
    if name.is_empty() || !name.bytes().all(is_name) {
        return None;
    }
    let (value, rest) = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"')?,
        None => rest.split_at(rest.find(',').unwrap_or(rest.len())),
    };
    match rest.trim_start() {
        "" => Some((name, value.trim(), "")),
        rest => Some((name, value.trim(), rest.strip_prefix(',')?.trim_start())),
    }
}

/// Enough of a text to recognise it.
pub fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(60).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_in_quotes_do_not_part() {
        let (attributes, wrong) =
            Attributes::parse(r#"BANDWIDTH=12, CODECS="avc1.64001f,mp4a.40.2",RESOLUTION=640x360"#);

        assert_eq!(wrong, None);
        assert_eq!(attributes.number("BANDWIDTH"), Some(12));
        assert_eq!(attributes.get("CODECS"), Some("avc1.64001f,mp4a.40.2"));
        assert_eq!(attributes.get("RESOLUTION"), Some("640x360"));
    }

    #[test]
    fn what_is_no_attribute_is_named() {
        for text in ["BANDWIDTH", "bandwidth=1", "A=\"x", "A=\"x\"y", "=1", "A=1,A=2", "A=1,,B=2"] {
            assert!(Attributes::parse(text).1.is_some(), "{text}");
        }
    }
}
