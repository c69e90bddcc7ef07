//! Pages for browsers, and the headers that say what they may do: run their own scripts, and nothing else.

use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest, Sha256};
use std::io::Write;

/// A text that never changes, compressed once: a client that reads slowly holds no compressor.
#[derive(Clone)]
pub struct Static {
    content_type: &'static str,
    cache: &'static str,
    plain: Bytes,
    compressed: Bytes,
}

impl Static {
    pub fn new(content_type: &'static str, cache: &'static str, text: impl Into<Bytes>) -> Self {
        let plain = text.into();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        // Without it the text is sent as it is.
        let compressed = encoder.write_all(&plain).and_then(|()| encoder.finish()).unwrap_or_default();
        Static { content_type, cache, plain, compressed: compressed.into() }
    }

    pub fn answer(&self, headers: &HeaderMap) -> Response {
        let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
        let takes_gzip = accepted.is_some_and(|value| {
            value.split(',').any(|coding| coding.trim().split(';').next() == Some("gzip"))
        });
        let (encoding, body) = match takes_gzip && !self.compressed.is_empty() {
            true => ("gzip", self.compressed.clone()),
            // Said so that it is not compressed on the way out.
            false => ("identity", self.plain.clone()),
        };
        let headers = [
            (header::CONTENT_TYPE, self.content_type),
            (header::CACHE_CONTROL, self.cache),
            (header::CONTENT_ENCODING, encoding),
            (header::VARY, "accept-encoding"),
        ];
        (headers, body).into_response()
    }
}

/// What the inline scripts and styles of a page are allowed by: the hash of each.
pub struct Policy {
    scripts: String,
    styles: String,
}

impl Policy {
    pub fn of(page: &str) -> Self {
        Policy { scripts: hashes(page, "script"), styles: hashes(page, "style") }
    }

    /// The header, with sources of media and data besides this server, and who may show the page in a frame.
    pub fn header(&self, elsewhere: &str, ancestors: &str) -> String {
        format!(
            "default-src 'none'; script-src 'self'{}; style-src{}; connect-src 'self'{elsewhere}; \
             img-src 'self' data:; media-src 'self' blob:{elsewhere}; worker-src 'self' blob:; base-uri 'none'; \
             form-action 'self'; frame-ancestors {ancestors}",
            self.scripts, self.styles
        )
    }
}

/// ` 'sha256-…'` for every inline element of this kind.
fn hashes(page: &str, tag: &str) -> String {
    let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
    let mut hashes = String::new();
    for part in page.split(&open).skip(1) {
        let Some((attributes, rest)) = part.split_once('>') else { continue };
        let Some((content, _)) = rest.split_once(&close) else { continue };
        if !attributes.contains("src=") {
            hashes.push_str(&format!(" 'sha256-{}'", STANDARD.encode(Sha256::digest(content.as_bytes()))));
        }
    }
    hashes
}

const ALWAYS: [(HeaderName, &str); 2] =
    [(header::X_CONTENT_TYPE_OPTIONS, "nosniff"), (header::REFERRER_POLICY, "no-referrer")];

const OF_PAGES: [(HeaderName, &str); 2] = [
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// What is no page runs nothing and is shown in no frame.
const OF_OTHERS: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Says in every answer what a browser must not make of it. Players of other sites may load streams, and programs of other
/// sites may use the API where they know a secret; see `cors`.
pub fn protect(headers: &mut HeaderMap) {
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind.is_some_and(|kind| kind.starts_with("text/html")) {
        for (name, value) in OF_PAGES {
            headers.insert(name, HeaderValue::from_static(value));
        }
    } else {
        let resource = HeaderName::from_static("cross-origin-resource-policy");
        headers.insert(resource, HeaderValue::from_static("cross-origin"));
    }
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(OF_OTHERS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_scripts_and_styles_are_allowed_by_their_hashes_alone() {
        let page =
            "<style>a{}</style><script src=\"/x.js\"></script><script type=\"module\">alert(1)</script>";

        let header = Policy::of(page).header("", "'none'");

        let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
        assert!(header.contains(&format!("script-src 'self' {};", hash("alert(1)"))), "{header}");
        assert!(header.contains(&format!("style-src {};", hash("a{}"))), "{header}");
        assert!(!header.contains("unsafe") && header.ends_with("frame-ancestors 'none'"), "{header}");
    }
}
