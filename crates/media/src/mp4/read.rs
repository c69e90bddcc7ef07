//! A file, box by box.

use super::bytes::{Bytes, FourCc};
use super::fragment::{Context, Sample};
use super::movie::Movie;
use super::{Error, malformed};
use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom, Write};

/// A `moov` of hours of ffmpeg's output has a few hundred bytes; one with an index, some megabytes.
const MAX_MOOV: u64 = 64 << 20;
/// Sixteen bytes for each of a million samples.
const MAX_MOOF: u64 = 32 << 20;

/// Reads a fragmented file from front to back, holding one fragment's description at a time.
pub struct Reader<R> {
    input: R,
    movie: Movie,
    moov: Vec<u8>,
    /// Where the next box begins.
    at: u64,
    bytes: u64,
    next_dts: HashMap<u32, u64>,
    /// Bytes of all samples so far.
    described: u64,
}

/// A `moof` and the samples it describes.
#[derive(Debug, Clone)]
pub struct Fragment {
    /// Where its `moof` begins.
    pub offset: u64,
    pub samples: Vec<Sample>,
}

impl<R: Read + Seek> Reader<R> {
    /// Reads up to and including the `moov`.
    pub fn open(mut input: R) -> Result<Self, Error> {
        let bytes = input.seek(SeekFrom::End(0))?;
        let mut at = 0;
        while let Some(header) = Header::read(&mut input, at, bytes)? {
            match &header.kind.0 {
                b"moov" => {
                    let moov = header.body(&mut input, MAX_MOOV)?;
                    let movie = Movie::parse(&moov)?;
                    let (next_dts, described) = (HashMap::new(), 0);
                    return Ok(Reader { input, movie, moov, at: header.end, bytes, next_dts, described });
                }
                b"moof" | b"mdat" => return Err(malformed("media before its description")),
                _ => at = header.end,
            }
        }
        Err(malformed("box `moov` is missing"))
    }

    /// Reads a media segment, whose `moov` is in an init segment that was read before.
    pub fn segment(mut input: R, movie: Movie) -> Result<Self, Error> {
        let bytes = input.seek(SeekFrom::End(0))?;
        let (moov, next_dts) = (Vec::new(), HashMap::new());
        Ok(Reader { input, movie, moov, at: 0, bytes, next_dts, described: 0 })
    }

    pub fn movie(&self) -> &Movie {
        &self.movie
    }

    /// The body of the `moov` box; empty for a media segment.
    pub(super) fn moov(&self) -> &[u8] {
        &self.moov
    }

    /// The next fragment, or `None` at the end of the file.
    pub fn next_fragment(&mut self) -> Result<Option<Fragment>, Error> {
        while let Some(header) = Header::read(&mut self.input, self.at, self.bytes)? {
            let offset = self.at;
            self.at = header.end;
            if &header.kind.0 == b"moof" {
                let moof = header.body(&mut self.input, MAX_MOOF)?;
                let (movie, next_dts) = (&self.movie, &mut self.next_dts);
                let mut context = Context { movie, next_dts, moof_at: offset, file_bytes: self.bytes };
                let samples = context.samples(&moof)?;
                self.count(&samples)?;
                return Ok(Some(Fragment { offset, samples }));
            }
        }
        Ok(None)
    }

    /// Refuses samples that share their bytes: a small file could describe terabytes, and copying them would write these.
    fn count(&mut self, samples: &[Sample]) -> Result<(), Error> {
        self.described += samples.iter().map(|sample| u64::from(sample.size)).sum::<u64>();
        match self.described <= self.bytes {
            true => Ok(()),
            false => Err(malformed("the samples have more bytes than the file")),
        }
    }

    /// Copies the bytes of these samples, one after the other; neighbours in the file at once.
    pub(super) fn copy(&mut self, samples: &[Sample], out: &mut impl Write) -> Result<(), Error> {
        for run in samples.chunk_by(|a, b| a.end() == b.offset) {
            let start = run[0].offset;
            let bytes = run.iter().map(|sample| u64::from(sample.size)).sum();
            self.input.seek(SeekFrom::Start(start))?;
            if io::copy(&mut self.input.by_ref().take(bytes), out)? != bytes {
                return Err(malformed("the file became shorter while it was read"));
            }
        }
        Ok(())
    }
}

/// Of a box at the top of a file.
struct Header {
    kind: FourCc,
    body_at: u64,
    end: u64,
}

impl Header {
    /// `None` at the end of the file.
    fn read(input: &mut (impl Read + Seek), at: u64, bytes: u64) -> Result<Option<Self>, Error> {
        if at == bytes {
            return Ok(None);
        }
        input.seek(SeekFrom::Start(at))?;
        let mut head = Vec::with_capacity(16);
        input.by_ref().take(16).read_to_end(&mut head)?;
        let mut fields = Bytes(&head);
        let (size, kind) = (fields.u32()?, fields.kind()?);
        let (header, size) = match size {
            0 => (8, bytes - at),
            1 => (16, fields.u64()?),
            size => (8, u64::from(size)),
        };
        let end = at.checked_add(size).filter(|end| size >= header && *end <= bytes);
        let end = end.ok_or_else(|| malformed(format!("box `{kind}` does not fit into the file")))?;
        Ok(Some(Header { kind, body_at: at + header, end }))
    }

    fn body(&self, input: &mut (impl Read + Seek), limit: u64) -> Result<Vec<u8>, Error> {
        let size = self.end - self.body_at;
        if size > limit {
            return Err(malformed(format!("box `{}` has {size} bytes, more than {limit}", self.kind)));
        }
        input.seek(SeekFrom::Start(self.body_at))?;
        let mut body = Vec::new();
        input.by_ref().take(size).read_to_end(&mut body)?;
        if body.len() as u64 != size {
            return Err(malformed("the file became shorter while it was read"));
        }
        Ok(body)
    }
}
