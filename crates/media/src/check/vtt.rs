//! Segments of subtitles.

use super::folder::Window;
use super::part::Part;
use std::io::Read;

/// Of text; an hour of speech has less than 100 kB.
const MAX_BYTES: u64 = 16 << 20;

pub fn is_vtt(head: &[u8]) -> bool {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).starts_with(b"WEBVTT")
}

/// Only the bytes are measured. `Err` says what is wrong.
pub fn part(window: Window) -> Result<Part, String> {
    let bytes = window.size();
    let mut content = Vec::new();
    window.take(MAX_BYTES).read_to_end(&mut content).map_err(|error| error.to_string())?;
    let text = std::str::from_utf8(&content).map_err(|_| "it is not UTF-8 text")?;
    if !is_vtt(&content) {
        return Err("it does not begin with WEBVTT".into());
    }
    let mut header = text.lines().skip(1).take_while(|line| !line.trim().is_empty());
    match header.find_map(|line| line.strip_prefix("X-TIMESTAMP-MAP=")) {
        Some(map) if map.contains("LOCAL:") && map.contains("MPEGTS:") => {
            Ok(Part { bytes, payload: bytes, runs: Vec::new() })
        }
        Some(_) => Err("its X-TIMESTAMP-MAP lacks LOCAL or MPEGTS".into()),
        None => Err("it has no X-TIMESTAMP-MAP".into()),
    }
}
