//! Byte ranges as HTTP writes them.

use std::ops::Range;

/// What a request's `Range` asks for of a file of `bytes`; none for a range there is nothing in.
///
/// Several ranges at once, or words nobody knows, are answered with all of it, as the standard allows.
pub(super) fn asked(header: Option<&str>, bytes: u64) -> Option<Range<u64>> {
    let whole = Some(0..bytes);
    let Some((first, last)) = header.and_then(|header| header.trim().strip_prefix("bytes=")?.split_once('-'))
    else {
        return whole;
    };
    let range = match (first.trim().parse::<u64>(), last.trim()) {
        (Ok(first), "") => first..bytes,
        (Ok(first), last) => match last.parse::<u64>() {
            Ok(last) => first..bytes.min(last.saturating_add(1)),
            Err(_) => return whole,
        },
        (Err(_), last) => match last.parse::<u64>() {
            Ok(length) if first.trim().is_empty() => bytes.saturating_sub(length)..bytes,
            _ => return whole,
        },
    };
    (range.start < range.end).then_some(range)
}

/// Where an answer's `Content-Range` begins, and how long the whole file is: `bytes 0-511/4096`.
pub(super) fn given(header: &str) -> Option<(u64, u64)> {
    let (range, whole) = header.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, _) = range.split_once('-')?;
    Some((first.trim().parse().ok()?, whole.trim().parse().ok()?))
}

/// For a request's `Range`.
pub(super) fn header(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

/// For a `Content-Range`.
pub(super) fn content(range: &Range<u64>, whole: u64) -> String {
    format!("bytes {}-{}/{whole}", range.start, range.end.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_what_the_standard_says() {
        for (header, range) in [
            (None, Some(0..100)),
            (Some("bytes=0-"), Some(0..100)),
            (Some("bytes=10-19"), Some(10..20)),
            (Some("bytes=90-900"), Some(90..100)),
            (Some("bytes=-5"), Some(95..100)),
            (Some("bytes=-500"), Some(0..100)),
            (Some("bytes=100-"), None),
            (Some("bytes=20-10"), None),
            (Some("bytes=-0"), None),
            (Some("bytes=0-1,5-6"), Some(0..100)),
            (Some("frames=1-2"), Some(0..100)),
            (Some("bytes=x-y"), Some(0..100)),
        ] {
            assert_eq!(asked(header, 100), range, "{header:?}");
        }
    }

    #[test]
    fn where_an_answer_begins_is_read_back() {
        assert_eq!(given(&content(&(10..20), 100)), Some((10, 100)));
        assert_eq!(header(&(10..20)), "bytes=10-19");
        for nonsense in ["", "bytes */100", "bytes 1-2/*", "bytes 1/3", "1-2/3"] {
            assert_eq!(given(nonsense), None, "{nonsense}");
        }
    }
}
