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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_replaced_wherever_it_stands() {
        assert_eq!(plain("\0a\0"), "\u{fffd}a\u{fffd}");
        assert_eq!(plain("a"), "a");
    }
}
