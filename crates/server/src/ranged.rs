//! A file over HTTP: ranges, validators, and the cache's instructions.

use crate::problem::{Error, Result};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

/// How a file is told.
pub struct Told<'a> {
    pub content_type: &'a str,
    /// Strong: the same only for the same bytes.
    pub etag: String,
    pub cache: &'a str,
}

const BLOCK: usize = 64 << 10;

pub async fn respond(
    path: &Path,
    told: &Told<'_>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let disk = |error: std::io::Error| Error::disk("reading the file", &error);
    let mut file = File::open(path).await.map_err(disk)?;
    let found = file.metadata().await.map_err(disk)?;
    if !found.is_file() {
        return Err(Error::NotFound("file"));
    }
    let (length, etag) = (found.len(), format!("\"{}\"", told.etag));
    let response = Response::builder()
        .header(header::ETAG, &etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CACHE_CONTROL, told.cache)
        .header(header::CONTENT_TYPE, told.content_type);
    if named(headers, header::IF_NONE_MATCH).is_some_and(|known| known == "*" || known.contains(&etag)) {
        return finish(response.status(StatusCode::NOT_MODIFIED), Body::empty());
    }
    let is_same = named(headers, header::IF_RANGE).is_none_or(|known| known == etag);
    let wanted =
        named(headers, header::RANGE).filter(|_| is_same).map_or(Range::Whole, |text| parse(text, length));
    let (response, from, bytes) = match wanted {
        Range::Whole => (response.status(StatusCode::OK), 0, length),
        Range::Part(from, to) => {
            let range = format!("bytes {from}-{to}/{length}");
            (
                response.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range),
                from,
                to - from + 1,
            )
        }
        Range::None => {
            let range = format!("bytes */{length}");
            let response =
                response.status(StatusCode::RANGE_NOT_SATISFIABLE).header(header::CONTENT_RANGE, range);
            return finish(response, Body::empty());
        }
    };
    let response = response.header(header::CONTENT_LENGTH, bytes);
    if method == Method::HEAD {
        return finish(response, Body::empty());
    }
    file.seek(std::io::SeekFrom::Start(from)).await.map_err(disk)?;
    finish(response, Body::from_stream(ReaderStream::with_capacity(file.take(bytes), BLOCK)))
}

fn finish(response: axum::http::response::Builder, body: Body) -> Result<Response<Body>> {
    response.body(body).map_err(|error| Error::Internal(error.to_string()))
}

fn named(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[derive(Debug, PartialEq, Eq)]
enum Range {
    Whole,
    /// First and last byte.
    Part(u64, u64),
    None,
}

/// One range; of several, or of what is not understood, the whole may be sent.
fn parse(text: &str, length: u64) -> Range {
    let Some(spec) = text.strip_prefix("bytes=").filter(|spec| !spec.contains(',')) else {
        return Range::Whole;
    };
    let Some((from, to)) = spec.trim().split_once('-') else { return Range::Whole };
    let (from, to) = (from.trim(), to.trim());
    let part = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) if from <= to => (from, to.min(length.saturating_sub(1))),
        (Ok(from), Err(_)) if to.is_empty() => (from, length.saturating_sub(1)),
        (Err(_), Ok(last)) if from.is_empty() && last > 0 => {
            (length.saturating_sub(last), length.saturating_sub(1))
        }
        (Err(_), Ok(_)) if from.is_empty() => return Range::None,
        _ => return Range::Whole,
    };
    if part.0 < length { Range::Part(part.0, part.1) } else { Range::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_has_them() {
        for (text, range) in [
            ("bytes=0-0", Range::Part(0, 0)),
            ("bytes=2-", Range::Part(2, 9)),
            ("bytes=2-99", Range::Part(2, 9)),
            ("bytes=-3", Range::Part(7, 9)),
            ("bytes=-99", Range::Part(0, 9)),
            ("bytes=10-", Range::None),
            ("bytes=-0", Range::None),
            ("bytes=5-2", Range::Whole),
            ("bytes=0-1,3-4", Range::Whole),
            ("lines=1-2", Range::Whole),
        ] {
            assert_eq!(parse(text, 10), range, "{text}");
        }
        assert_eq!(parse("bytes=0-", 0), Range::None);
    }
}
