//! A file over HTTP: ranges, validators, and the cache's instructions.

use crate::problem::{Error, Result};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use files::Place;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
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

/// Who waits for longer has gone away.
const PATIENCE: Duration = Duration::from_secs(10);

pub async fn respond(
    place: &Place,
    told: &Told<'_>,
    method: &Method,
    headers: &HeaderMap,
) -> Result<Response<Body>> {
    let answering = async {
        let (mut content, length) = Content::open(place).await?;
        let (response, range) = head(told, length, headers);
        match range.filter(|_| method != Method::HEAD) {
            Some((from, bytes)) => finish(response, content.body(from, bytes).await?),
            None => finish(response, Body::empty()),
        }
    };
    let late = || Error::Protocol {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "storage_away",
        detail: "the storage takes too long; try again".into(),
    };
    tokio::time::timeout(PATIENCE, answering).await.unwrap_or_else(|_| Err(late()))
}

/// What can be read, here or there.
enum Content {
    Disk(Option<File>),
    Bucket(files::Bucket, String),
}

impl Content {
    async fn open(place: &Place) -> Result<(Self, u64)> {
        match place {
            Place::Disk(path) => Content::of_file(path).await,
            Place::Below(root, name) => {
                let (root, name) = (root.clone(), name.clone());
                let opening = move || files::Tree::open(&root).and_then(|tree| tree.read(&name));
                let opened = tokio::task::spawn_blocking(opening).await;
                let opened = opened.map_err(|error| Error::Internal(error.to_string()))?;
                let file = opened.map_err(|error| match error.kind() {
                    // A link in place of a file or folder is neither.
                    ErrorKind::NotADirectory | ErrorKind::InvalidInput | ErrorKind::InvalidFilename => {
                        Error::NotFound("file")
                    }
                    _ => Error::disk("reading the file", &error),
                })?;
                let bytes = file.metadata().map_err(|error| Error::disk("reading the file", &error))?.len();
                Ok((Content::Disk(Some(File::from_std(file))), bytes))
            }
            Place::Bucket(bucket, name) => {
                let bytes = bucket.look(name).await?.bytes;
                Ok((Content::Bucket(bucket.clone(), name.clone()), bytes))
            }
        }
    }

    async fn of_file(path: &Path) -> Result<(Self, u64)> {
        let disk = |error: std::io::Error| Error::disk("reading the file", &error);
        let file = File::open(path).await.map_err(disk)?;
        let found = file.metadata().await.map_err(disk)?;
        if found.is_file() {
            Ok((Content::Disk(Some(file)), found.len()))
        } else {
            Err(Error::NotFound("file"))
        }
    }

    async fn body(&mut self, from: u64, bytes: u64) -> Result<Body> {
        let disk = |error: std::io::Error| Error::disk("reading the file", &error);
        match self {
            Content::Disk(file) => {
                let mut file = file.take().ok_or(Error::NotFound("file"))?;
                file.seek(std::io::SeekFrom::Start(from)).await.map_err(disk)?;
                Ok(Body::from_stream(ReaderStream::with_capacity(file.take(bytes), BLOCK)))
            }
            Content::Bucket(_, _) if bytes == 0 => Ok(Body::empty()),
            Content::Bucket(bucket, name) => {
                Ok(Body::from_stream(bucket.read(name, Some(from..from + bytes)).await?.stream))
            }
        }
    }
}

/// The head of the answer, and which bytes follow it, if any.
fn head(
    told: &Told<'_>,
    length: u64,
    headers: &HeaderMap,
) -> (axum::http::response::Builder, Option<(u64, u64)>) {
    let etag = format!("\"{}\"", told.etag);
    let response = Response::builder()
        .header(header::ETAG, &etag)
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::CACHE_CONTROL, told.cache)
        .header(header::CONTENT_TYPE, told.content_type);
    if named(headers, header::IF_NONE_MATCH).is_some_and(|known| known == "*" || known.contains(&etag)) {
        return (response.status(StatusCode::NOT_MODIFIED), None);
    }
    let is_same = named(headers, header::IF_RANGE).is_none_or(|known| known == etag);
    let wanted =
        named(headers, header::RANGE).filter(|_| is_same).map_or(Range::Whole, |text| parse(text, length));
    match wanted {
        Range::Whole => {
            (response.status(StatusCode::OK).header(header::CONTENT_LENGTH, length), Some((0, length)))
        }
        Range::Part(from, to) => {
            let range = format!("bytes {from}-{to}/{length}");
            let response = response.status(StatusCode::PARTIAL_CONTENT).header(header::CONTENT_RANGE, range);
            (response.header(header::CONTENT_LENGTH, to - from + 1), Some((from, to - from + 1)))
        }
        Range::None => {
            let range = format!("bytes */{length}");
            (response.status(StatusCode::RANGE_NOT_SATISFIABLE).header(header::CONTENT_RANGE, range), None)
        }
    }
}

fn finish(response: axum::http::response::Builder, body: Body) -> Result<Response<Body>> {
    response.body(body).map_err(|error| Error::Internal(error.to_string()))
}

fn named(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Range {
    Whole,
    /// First and last byte.
    Part(u64, u64),
    None,
}

/// One range; of several, or of what is not understood, the whole may be sent.
pub(crate) fn parse(text: &str, length: u64) -> Range {
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
