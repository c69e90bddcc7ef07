//! I-frame playlists: each range must begin with a fragment whose first picture needs no other.

use super::finding::Findings;
use super::folder::{Folder, Range};
use super::rendition::{Container, Rendition};
use super::{rule, ts};
use crate::mp4::{Fragment, Reader};
use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom};

pub fn check(folder: &Folder, rendition: &Rendition, findings: &mut Findings) {
    let mut known: HashMap<&str, Option<Vec<Head>>> = HashMap::new();
    for (index, segment) in rendition.media.segments.iter().enumerate() {
        let Some(file) = rendition.files.get(index).and_then(Option::as_ref) else { continue };
        let whole = || Range { offset: 0, bytes: folder.bytes(file).unwrap_or(0) };
        let range = segment.range.unwrap_or_else(whole);
        let wrong = match rendition.container {
            Container::Fmp4 => {
                let heads = known.entry(file).or_insert_with(|| heads(folder, rendition, index));
                // A file that cannot be read is a finding of the playlist that it belongs to.
                heads.as_deref().and_then(|heads| wrong_fragment(heads, range))
            }
            Container::Ts => wrong_packet(folder, file, range),
            Container::WebVtt | Container::Unknown => None,
        };
        if let Some(wrong) = wrong {
            findings.add(&rule::I_FRAME, rendition.segment_place(index), format!("{file}: {wrong}"));
        }
    }
}

/// Of a fragment.
struct Head {
    offset: u64,
    is_key: bool,
    /// Where its first sample ends.
    first_end: u64,
}

impl From<&Fragment> for Head {
    fn from(fragment: &Fragment) -> Self {
        let first = fragment.samples.first();
        Head {
            offset: fragment.offset,
            is_key: first.is_some_and(|sample| sample.is_sync),
            first_end: first.map_or(fragment.offset, |sample| sample.end()),
        }
    }
}

/// All fragments of the file that a segment is in.
fn heads(folder: &Folder, rendition: &Rendition, segment: usize) -> Option<Vec<Head>> {
    let (_, init, _) = rendition.init_of(segment)?;
    let file = rendition.files.get(segment)?.as_ref()?;
    let mut reader = Reader::segment(folder.window(file, None).ok()?, init.movie.clone()).ok()?;
    let mut heads = Vec::new();
    while let Some(fragment) = reader.next_fragment().ok()? {
        heads.push(Head::from(&fragment));
    }
    Some(heads)
}

fn wrong_fragment(heads: &[Head], range: Range) -> Option<String> {
    let end = range.end()?;
    let at = heads.partition_point(|head| head.offset < range.offset);
    // Boxes that describe the segment may stand before its first fragment.
    let Some(head) = heads.get(at).filter(|head| head.offset == range.offset || at == 0 && range.offset == 0)
    else {
        return Some(format!("no fragment begins at byte {}", range.offset));
    };
    if !head.is_key {
        return Some(format!("the fragment at byte {} does not begin with a key frame", range.offset));
    }
    let missing = head.first_end.checked_sub(end).filter(|missing| *missing > 0)?;
    Some(format!("the range from byte {} on ends {missing} bytes before its key frame does", range.offset))
}

fn wrong_packet(folder: &Folder, file: &str, range: Range) -> Option<String> {
    let mut window = folder.window(file, Some(range)).ok()?;
    let mut first = [0];
    window.seek(SeekFrom::Start(0)).and_then(|_| window.read_exact(&mut first)).ok()?;
    (first[0] != ts::SYNC).then(|| format!("no packet begins at byte {}", range.offset))
}
