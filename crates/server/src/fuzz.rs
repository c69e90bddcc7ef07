//! Parsers of untrusted bytes, as the crate `fuzz` calls them. Nothing else does.

use crate::problem::Error;
use crate::ranged::Range;
use crate::worker::allowance::{MOST_FILES, Most};
use axum::http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};
use std::path::Path;
use wire::http::Output;

pub fn unpack(archive: &[u8], to: &Path, limit: u64) -> Result<Vec<Output>, Error> {
    let most = Most { bytes: limit, files: MOST_FILES };
    crate::worker::archive::extract(archive, to, most, &files::Reserve::default())
}

pub fn tus_metadata(text: &str) -> Result<Map<String, Value>, Error> {
    crate::api::tus::metadata(text)
}

/// First and last byte that are sent, where a part is.
pub fn range(text: &str, length: u64) -> Option<(u64, u64)> {
    match crate::ranged::parse(text, length) {
        Range::Part(first, last) => Some((first, last)),
        Range::Whole | Range::None => None,
    }
}

/// Where a piece of an output begins, and how long the whole is.
pub fn content_range(text: &str) -> Result<(u64, u64), Error> {
    let mut headers = HeaderMap::new();
    let value = HeaderValue::from_str(text).map_err(|error| Error::Invalid(error.to_string()))?;
    headers.insert(axum::http::header::CONTENT_RANGE, value);
    crate::worker::outputs::piece(&headers).map(|piece| (piece.from, piece.total))
}

pub fn is_output_path(text: &str) -> bool {
    crate::data::is_tame(text)
}

pub fn slug(title: &str) -> String {
    crate::ingest::slug_of(title)
}

pub fn is_slug(text: &str) -> bool {
    crate::ingest::is_slug(text)
}
