//! A slice read from front to back, and the boxes in it.

use super::{Error, malformed};
use std::fmt;

/// What is left to read. Reading past the end is an error, not a panic.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a>(pub &'a [u8]);

impl<'a> Bytes<'a> {
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], Error> {
        let (head, tail) =
            self.0.split_at_checked(count).ok_or_else(|| malformed("a box ends in the middle of a field"))?;
        self.0 = tail;
        Ok(head)
    }

    pub fn skip(&mut self, count: usize) -> Result<(), Error> {
        self.take(count).map(drop)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        Ok(self.take(N)?.try_into().expect("as many bytes as were taken"))
    }

    pub fn u8(&mut self) -> Result<u8, Error> {
        Ok(u8::from_be_bytes(self.array()?))
    }

    pub fn u16(&mut self) -> Result<u16, Error> {
        Ok(u16::from_be_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, Error> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    pub fn kind(&mut self) -> Result<FourCc, Error> {
        Ok(FourCc(self.array()?))
    }

    /// Of a "full" box: its version and its flags.
    pub fn version(&mut self) -> Result<(u8, u32), Error> {
        let word = self.u32()?;
        Ok(((word >> 24) as u8, word & 0x00ff_ffff))
    }
}

/// The four letters that name a box, a brand or a codec.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct FourCc(pub [u8; 4]);

impl fmt::Display for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FourCc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{self}`")
    }
}

#[derive(Debug, Clone, Copy)]
pub struct Atom<'a> {
    pub kind: FourCc,
    /// Without its header.
    pub body: &'a [u8],
    /// With its header.
    pub whole: &'a [u8],
}

impl Atom<'_> {
    pub fn is(&self, kind: &[u8; 4]) -> bool {
        &self.kind.0 == kind
    }
}

/// The boxes that follow each other in `bytes`; up to seven bytes of rest are padding, as some writers leave it.
pub fn atoms(bytes: &[u8]) -> Result<Vec<Atom<'_>>, Error> {
    let mut rest = Bytes(bytes);
    let mut found = Vec::new();
    while rest.0.len() >= 8 {
        let start = rest.0;
        let (size, kind) = (rest.u32()?, rest.kind()?);
        let size = match size {
            0 => start.len() as u64,
            1 => rest.u64()?,
            size => u64::from(size),
        };
        let header = start.len() - rest.0.len();
        let size = usize::try_from(size).ok().filter(|size| (header..=start.len()).contains(size));
        let size = size.ok_or_else(|| malformed(format!("box `{kind}` does not fit where it is")))?;
        let (whole, tail) = start.split_at(size);
        found.push(Atom { kind, body: &whole[header..], whole });
        rest = Bytes(tail);
    }
    Ok(found)
}

/// The first box of that kind.
pub fn find<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Result<Option<&'a [u8]>, Error> {
    Ok(atoms(bytes)?.into_iter().find(|atom| atom.is(kind)).map(|atom| atom.body))
}

/// As [`find`], where the file makes no sense without the box.
pub fn need<'a>(bytes: &'a [u8], kind: &[u8; 4]) -> Result<&'a [u8], Error> {
    find(bytes, kind)?.ok_or_else(|| malformed(format!("box `{}` is missing", FourCc(*kind))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_box_that_is_larger_than_its_place_or_smaller_than_its_header_is_refused() {
        for size in [2_u32, 7, 17, u32::MAX] {
            let mut bytes = [size.to_be_bytes(), *b"free"].concat();
            bytes.extend([0; 8]);

            assert!(matches!(atoms(&bytes), Err(Error::Malformed(_))), "{size}");
        }
    }

    #[test]
    fn all_three_spellings_of_a_size_are_read() {
        let long = [&[0, 0, 0, 1][..], b"free", &17_u64.to_be_bytes(), b"a"].concat();
        let short = [&[0, 0, 0, 9][..], b"skip", b"b"].concat();
        let open = [&[0, 0, 0, 0][..], b"mdat", b"cde"].concat();
        let bytes = [long, short, open].concat();

        let found: Vec<_> = atoms(&bytes).unwrap().iter().map(|atom| atom.body).collect();

        assert_eq!(found, [&b"a"[..], b"b", b"cde"]);
    }
}
