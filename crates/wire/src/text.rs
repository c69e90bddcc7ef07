//! Text that others wrote: cut and cleaned where it comes in, and made visible where it goes to a terminal.

use std::borrow::Cow;

/// Whether a terminal or a reader could take this character for something else than text: controls (escape sequences begin
/// with one), and characters that turn the direction of text or break lines unseen.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Drops hidden characters but line feeds and tabs, and what is beyond so many bytes.
pub fn clean(text: &str, most: usize) -> String {
    let mut clean = String::with_capacity(text.len().min(most));
    for c in text.chars().filter(|c| !is_hidden(*c) || matches!(c, '\n' | '\t')) {
        if clean.len() + c.len_utf8() > most {
            break;
        }
        clean.push(c);
    }
    clean
}

/// As [`clean`], on one line: for names.
pub fn clean_name(text: &str, most: usize) -> String {
    let spaced: Cow<'_, str> = if text.contains(['\n', '\t']) {
        text.replace(['\n', '\t'], " ").into()
    } else {
        text.into()
    };
    clean(spaced.trim(), most)
}

/// For a terminal: hidden characters but line feeds and tabs are written out, as `\u{1b}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| matches!(c, '\n' | '\t'), |c| format!("\\u{{{:x}}}", u32::from(c)))
}

/// For a cell of a table: all hidden characters are written out.
pub fn printable_cell(text: &str) -> Cow<'_, str> {
    escape(text, |_| false, |c| c.escape_default().to_string())
}

/// JSON for a terminal: hidden characters stand in strings alone, and are written as JSON has them.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    escape(json, |c| c == '\n', |c| format!("\\u{:04x}", u32::from(c)))
}

fn escape(text: &str, is_kept: impl Fn(char) -> bool, written: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(|c| is_hidden(c) && !is_kept(c)) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) && !is_kept(c) {
            true => shown.push_str(&written(c)),
            false => shown.push(c),
        }
    }
    shown.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVIL: &str = "a\x1b[31mred\u{9b}2J\r\x07\u{202e}gpj.exe\n\tb\0";

    #[test]
    fn nothing_hidden_reaches_a_terminal() {
        for shown in [printable(EVIL), printable_cell(EVIL), printable_json(EVIL), clean(EVIL, 999).into()] {
            assert!(!shown.contains(|c| is_hidden(c) && !matches!(c, '\n' | '\t')), "{shown:?}");
        }
        assert!(!printable_cell(EVIL).contains('\n') && !clean_name(EVIL, 999).contains('\n'));
        assert!(printable(EVIL).contains("\\u{1b}[31m") && printable(EVIL).contains("\n\tb"));
        for plain in ["", "Über Café 日本 👍🏽", "two\nlines"] {
            assert_eq!((printable(plain), clean(plain, 999)), (plain.into(), plain.into()));
        }
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "message": EVIL, "name": "日本" });

        let shown = printable_json(&value.to_string()).into_owned();

        assert!(!shown.contains(is_hidden), "{shown:?}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value));
    }

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!((clean("ééé", 5).as_str(), clean("abc", 2).as_str()), ("éé", "ab"));
    }
}
