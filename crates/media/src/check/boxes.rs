//! What an init segment says beside what [`crate::mp4`] reads: edit lists and colours. What is malformed is left out.

/// The body of the box at the end of a path of boxes.
fn find<'a>(mut bytes: &'a [u8], path: &[&[u8; 4]]) -> Option<&'a [u8]> {
    for kind in path {
        bytes = all(bytes).find(|(found, _)| found == *kind)?.1;
    }
    Some(bytes)
}

/// The boxes that follow each other, as kind and body, up to the first that does not fit.
fn all(mut bytes: &[u8]) -> impl Iterator<Item = ([u8; 4], &[u8])> {
    std::iter::from_fn(move || {
        let size = usize::try_from(number(bytes, 0, 4)?).ok()?;
        let kind = bytes.get(4..8)?.try_into().ok()?;
        let size = if size == 0 { bytes.len() } else { size };
        let body = bytes.get(8..size)?;
        bytes = &bytes[size..];
        Some((kind, body))
    })
}

/// A big-endian number of `count` bytes.
fn number(bytes: &[u8], at: usize, count: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(count)?)?;
    Some(field.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Extras of the track with this id, in a whole init segment.
pub struct Track<'a> {
    trak: &'a [u8],
    mvhd: &'a [u8],
    movie_timescale: f64,
}

impl<'a> Track<'a> {
    pub fn find(init: &'a [u8], id: u32) -> Option<Self> {
        let moov = find(init, &[b"moov"])?;
        let mvhd = find(moov, &[b"mvhd"])?;
        let movie_timescale = timescale(mvhd)?;
        let is_wanted = |trak: &[u8]| {
            let tkhd = find(trak, &[b"tkhd"]).unwrap_or_default();
            let at = if tkhd.first() == Some(&1) { 20 } else { 12 };
            number(tkhd, at, 4) == Some(id.into())
        };
        let mut traks = all(moov).filter(|(kind, _)| kind == b"trak").map(|(_, body)| body);
        Some(Track { trak: traks.find(|trak| is_wanted(trak))?, mvhd, movie_timescale })
    }

    /// By how many seconds its edit list moves what is shown: later where it begins with an empty edit, earlier by
    /// what it cuts off.
    pub fn shift(&self) -> Option<f64> {
        let own = timescale(find(self.trak, &[b"mdia", b"mdhd"])?)?;
        let elst = find(self.trak, &[b"edts", b"elst"])?;
        let wide = if elst.first() == Some(&1) { 8 } else { 4 };
        let entries = elst.get(8..)?.chunks_exact(2 * wide + 4);
        let mut shift = 0.0;
        for entry in entries.take(16) {
            let media_time = number(entry, wide, wide)?;
            let is_empty = media_time == u64::MAX >> (64 - 8 * wide);
            if !is_empty {
                return Some(shift - media_time as f64 / own);
            }
            shift += number(entry, 0, wide)? as f64 / self.movie_timescale;
        }
        None
    }

    /// Whether neither the movie nor the track turns, mirrors, moves or scales it.
    pub fn is_upright(&self) -> bool {
        let matrix = |header: &'a [u8], at: [usize; 2]| {
            let at = at[usize::from(header.first() == Some(&1))];
            header.get(at..at + UPRIGHT.len())
        };
        let tkhd = find(self.trak, &[b"tkhd"]).unwrap_or_default();
        [matrix(self.mvhd, [36, 48]), matrix(tkhd, [40, 52])].iter().all(|it| *it == Some(&UPRIGHT))
    }

    /// How wide and high its `pasp` box says a pixel is.
    pub fn pixel(&self) -> Option<(u64, u64)> {
        let pasp = find(self.entry()?, &[b"pasp"])?;
        Some((number(pasp, 0, 4)?, number(pasp, 4, 4)?))
    }

    /// The boxes in its sample entry.
    fn entry(&self) -> Option<&'a [u8]> {
        let stsd = find(self.trak, &[b"mdia", b"minf", b"stbl", b"stsd"])?;
        let (_, entry) = all(stsd.get(8..)?).next()?;
        entry.get(78..)
    }

    /// What the transfer function in its `colr` box means for VIDEO-RANGE.
    pub fn range(&self) -> Option<&'static str> {
        let colr = find(self.entry()?, &[b"colr"])?;
        if colr.get(..4)? != b"nclx" {
            return None;
        }
        Some(match number(colr, 6, 2)? {
            16 => "PQ",
            18 => "HLG",
            _ => "SDR",
        })
    }
}

/// The matrix that changes nothing: 1 in fixed point twice, and once with another point.
const UPRIGHT: [u8; 36] = {
    let mut matrix = [0; 36];
    matrix[1] = 1;
    matrix[17] = 1;
    matrix[32] = 0x40;
    matrix
};

/// Of `mvhd` and `mdhd` alike.
fn timescale(header: &[u8]) -> Option<f64> {
    let at = if header.first()? == &1 { 20 } else { 12 };
    number(header, at, 4).filter(|timescale| *timescale > 0).map(|timescale| timescale as f64)
}
