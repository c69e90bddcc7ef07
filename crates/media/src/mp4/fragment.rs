//! `moof`: the samples.

use super::bytes::{Bytes, atoms, find, need};
use super::movie::{Defaults, Movie};
use super::{Error, malformed};
use std::collections::HashMap;

/// Six hours of sound in one fragment. A run without fields of its own could claim four billion samples in 16 bytes.
const MAX_SAMPLES: usize = 1 << 20;

const NOT_SYNC: u32 = 0x0001_0000;

/// One picture or packet, and where its bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// The id of its track.
    pub track: u32,
    /// When it is decoded.
    pub dts: u64,
    /// How much later than decoded it is presented.
    pub cts: i32,
    pub duration: u32,
    pub size: u32,
    /// Whether decoding can begin here.
    pub is_sync: bool,
    /// From the beginning of the file. The bytes lie within the file.
    pub offset: u64,
}

impl Sample {
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.size)
    }

    /// When it is presented.
    pub fn pts(&self) -> i128 {
        i128::from(self.dts) + i128::from(self.cts)
    }
}

/// What one fragment must know of those before it, and of the file around it.
pub(super) struct Context<'a> {
    pub movie: &'a Movie,
    /// Where the next fragment of each track goes on if it does not say.
    pub next_dts: &'a mut HashMap<u32, u64>,
    /// Where the `moof` begins.
    pub moof_at: u64,
    pub file_bytes: u64,
}

impl Context<'_> {
    /// The samples of the body of a `moof`, in the file's order.
    pub fn samples(&mut self, moof: &[u8]) -> Result<Vec<Sample>, Error> {
        let mut samples = Vec::new();
        let mut data_end = self.moof_at;
        for traf in atoms(moof)?.iter().filter(|atom| atom.is(b"traf")) {
            data_end = self.track(traf.body, data_end, &mut samples)?;
        }
        Ok(samples)
    }

    fn track(&mut self, traf: &[u8], data_end: u64, samples: &mut Vec<Sample>) -> Result<u64, Error> {
        let header = Header::parse(need(traf, b"tfhd")?, self.movie)?;
        let told = find(traf, b"tfdt")?.map(parse_decode_time).transpose()?;
        let next_dts = self.next_dts.get(&header.track).copied().unwrap_or(0);
        let base = match header.base {
            Base::At(offset) => offset,
            Base::Moof => self.moof_at,
            Base::AfterPrevious => data_end,
        };
        let mut run = Run {
            track: header.track,
            defaults: header.defaults,
            base,
            at: base,
            dts: told.unwrap_or(next_dts),
            file_bytes: self.file_bytes,
        };
        for trun in atoms(traf)?.iter().filter(|atom| atom.is(b"trun")) {
            run.read(trun.body, samples)?;
        }
        self.next_dts.insert(header.track, run.dts);
        Ok(run.at)
    }
}

struct Header {
    track: u32,
    base: Base,
    defaults: Defaults,
}

/// What the data offsets of a track's runs count from.
enum Base {
    At(u64),
    Moof,
    AfterPrevious,
}

impl Header {
    fn parse(tfhd: &[u8], movie: &Movie) -> Result<Self, Error> {
        let mut body = Bytes(tfhd);
        let (_, flags) = body.version()?;
        let track = body.u32()?;
        let known =
            movie.track(track).ok_or_else(|| malformed(format!("a fragment of no track: {track}")))?;
        let mut defaults = known.defaults;
        let base = match (flags & 0x1 != 0, flags & 0x2_0000 != 0) {
            (true, _) => Base::At(body.u64()?),
            (false, true) => Base::Moof,
            (false, false) => Base::AfterPrevious,
        };
        body.skip(if flags & 0x2 != 0 { 4 } else { 0 })?;
        for (flag, field) in
            [(0x8, &mut defaults.duration), (0x10, &mut defaults.size), (0x20, &mut defaults.flags)]
        {
            if flags & flag != 0 {
                *field = body.u32()?;
            }
        }
        Ok(Header { track, base, defaults })
    }
}

fn parse_decode_time(tfdt: &[u8]) -> Result<u64, Error> {
    let mut body = Bytes(tfdt);
    match body.version()?.0 {
        0 => body.u32().map(u64::from),
        _ => body.u64(),
    }
}

/// Walks over the runs of one track in one fragment.
struct Run {
    track: u32,
    defaults: Defaults,
    base: u64,
    at: u64,
    dts: u64,
    file_bytes: u64,
}

impl Run {
    fn read(&mut self, trun: &[u8], samples: &mut Vec<Sample>) -> Result<(), Error> {
        let mut body = Bytes(trun);
        let (_, flags) = body.version()?;
        let count = body.u32()? as usize;
        if count > MAX_SAMPLES - samples.len() {
            return Err(malformed(format!("a fragment of more than {MAX_SAMPLES} samples")));
        }
        if flags & 0x1 != 0 {
            let offset = i64::from(body.u32()? as i32);
            let at = self.base.checked_add_signed(offset);
            self.at = at.ok_or_else(|| malformed("a run whose data lies outside of the file"))?;
        }
        let mut first_flags = if flags & 0x4 != 0 { Some(body.u32()?) } else { None };
        for _ in 0..count {
            let sample = self.sample(&mut body, flags, first_flags.take())?;
            samples.push(sample);
        }
        Ok(())
    }

    /// Offsets are read as signed in either version: no file means four billion ticks by one.
    fn sample(&mut self, body: &mut Bytes<'_>, flags: u32, first: Option<u32>) -> Result<Sample, Error> {
        let mut field = |flag: u32, default: u32| if flags & flag != 0 { body.u32() } else { Ok(default) };
        let duration = field(0x100, self.defaults.duration)?;
        let size = field(0x200, self.defaults.size)?;
        let own_flags = field(0x400, first.unwrap_or(self.defaults.flags))?;
        let cts = field(0x800, 0)? as i32;
        let is_sync = own_flags & NOT_SYNC == 0;
        let sample =
            Sample { track: self.track, dts: self.dts, cts, duration, size, is_sync, offset: self.at };
        let end = self.at.checked_add(size.into()).filter(|end| *end <= self.file_bytes);
        self.at = end.ok_or_else(|| malformed("a sample that lies beyond the end of the file"))?;
        let next = self.dts.checked_add(duration.into());
        self.dts = next.ok_or_else(|| malformed("a time beyond the end of time"))?;
        Ok(sample)
    }
}
