//! Text as both engines can hold it: PostgreSQL has no NUL, and what programs print has.

use std::borrow::Cow;

/// Stands in for a NUL.
const REPLACEMENT: &str = "\u{fffd}";

pub fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', REPLACEMENT).into()
    } else {
        text.into()
    }
}

/// The same for a JSON text, where a NUL is written `\u0000`; a backslash before that would be another's.
pub fn json(json: String) -> String {
    const NUL: &str = "\\u0000";
    let mut rest = json.as_str();
    let mut made = String::new();
    while let Some(at) = rest.find(NUL) {
        let (before, after) = rest.split_at(at);
        let backslashes = before.len() - before.trim_end_matches('\\').len();
        made.push_str(before);
        made.push_str(if backslashes % 2 == 0 { REPLACEMENT } else { NUL });
        rest = &after[NUL.len()..];
    }
    if made.is_empty() && rest.len() == json.len() {
        return json;
    }
    made.push_str(rest);
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_replaced_wherever_it_stands() {
        assert_eq!(plain("\0a\0"), "\u{fffd}a\u{fffd}");
        assert_eq!(plain("a"), "a");
        for text in ["\0", "a\0\0b", "\\\0", "\0\\"] {
            let held = json(serde_json::to_string(text).unwrap());
            assert_eq!(serde_json::from_str::<String>(&held).unwrap(), plain(text), "{text:?}");
        }
    }

    #[test]
    fn what_only_looks_like_one_stays() {
        for text in ["", "\\u0000", "\\\\u0000", "u0000", "\\"] {
            let written = serde_json::to_string(text).unwrap();
            assert_eq!(json(written.clone()), written);
        }
        let nested = serde_json::to_string(&serde_json::to_string("\0").unwrap()).unwrap();
        assert_eq!(json(nested.clone()), nested, "JSON within JSON is text");
    }
}
