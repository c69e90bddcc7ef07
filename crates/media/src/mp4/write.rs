//! The init segment, and fragments.

use super::bytes::atoms;
use super::{Error, Sample, malformed};

/// One track of CMAF, in fragments whose times stand in `tfdt`.
const FTYP: &[u8] = b"\0\0\0\x1cftypiso6\0\0\0\0iso6cmfcmp41";
/// A CMAF segment.
pub const STYP: &[u8] = b"\0\0\0\x18stypmsdh\0\0\0\0msdhcmfs";

const SYNC_FLAGS: u32 = 0x0200_0000;
const OTHER_FLAGS: u32 = 0x0101_0000;

/// The whole init segment from the body of a `moov`. Tags go, which are the source's affair, and so does a duration that
/// only the whole track could tell. An edit list of our own says by how much the first picture is shown later than it is
/// decoded, so that it is shown at time 0. Negative offsets would say the same, but libavformat, and with it many a
/// player, takes them for a delay of the whole track.
pub fn init(moov: &[u8], delay: u32) -> Result<Vec<u8>, Error> {
    let mut out = FTYP.to_vec();
    write_box(&mut out, b"moov", |out| copy_without_extras(moov, out, delay))?;
    Ok(out)
}

fn copy_without_extras(body: &[u8], out: &mut Vec<u8>, delay: u32) -> Result<(), Error> {
    for atom in atoms(body)? {
        match &atom.kind.0 {
            b"udta" | b"edts" | b"meta" | b"mehd" => {}
            b"trak" | b"mvex" => {
                write_box(out, &atom.kind.0, |out| copy_without_extras(atom.body, out, delay))?
            }
            b"tkhd" if delay > 0 => {
                out.extend(atom.whole);
                write_box(out, b"edts", |out| {
                    write_box(out, b"elst", |out| words(out, &[0, 1, 0, delay, 0x1_0000]))
                })?;
            }
            _ => out.extend(atom.whole),
        }
    }
    Ok(())
}

/// The head of one fragment: all of it but the samples' bytes, which follow.
pub struct Fragment<'a> {
    pub sequence: u32,
    /// When the first sample is decoded.
    pub start: u64,
    /// Those of one track.
    pub samples: &'a [Sample],
}

impl Fragment<'_> {
    /// Up to and including the header of the `mdat`.
    pub fn head(&self) -> Result<Vec<u8>, Error> {
        let mut out = Vec::new();
        write_box(&mut out, b"moof", |out| {
            write_box(out, b"mfhd", |out| words(out, &[0, self.sequence]))?;
            write_box(out, b"traf", |out| self.traf(out))
        })?;
        let data_offset = out.len() + 8;
        let at = self.data_offset_at();
        out[at..at + 4].copy_from_slice(&size(data_offset)?.to_be_bytes());
        let data: u64 = self.samples.iter().map(|sample| u64::from(sample.size)).sum();
        words(&mut out, &[size(data + 8)?])?;
        out.extend(b"mdat");
        Ok(out)
    }

    fn traf(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let track = self.samples.first().map_or(1, |sample| sample.track);
        write_box(out, b"tfhd", |out| words(out, &[0x2_0028, track, self.duration(), self.flags()]))?;
        write_box(out, b"tfdt", |out| {
            words(out, &[0x0100_0000])?;
            out.extend(self.start.to_be_bytes());
            Ok(())
        })?;
        write_box(out, b"trun", |out| self.trun(out))
    }

    /// Data offset, size; and, where needed, flags of the first, durations, composition offsets.
    fn trun(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let is_uneven = self.samples.iter().any(|sample| sample.duration != self.duration());
        let is_reordered = self.samples.iter().any(|sample| sample.cts != 0);
        let optional = |flag: u32, is_there: bool| if is_there { flag } else { 0 };
        let flags = 0x201 | 0x4 | optional(0x100, is_uneven) | optional(0x800, is_reordered);
        words(out, &[0x0100_0000 | flags, size(self.samples.len())?, 0, SYNC_FLAGS])?;
        for sample in self.samples {
            if is_uneven {
                words(out, &[sample.duration])?;
            }
            words(out, &[sample.size])?;
            if is_reordered {
                words(out, &[sample.cts as u32])?;
            }
        }
        Ok(())
    }

    /// `moof`, `mfhd`, `traf` with `tfhd` and `tfdt`, and the head of `trun` before the field.
    fn data_offset_at(&self) -> usize {
        8 + 16 + 8 + 24 + 20 + 16
    }

    fn duration(&self) -> u32 {
        self.samples.first().map_or(0, |sample| sample.duration)
    }

    /// Of all samples but the first, which is always a sync sample.
    fn flags(&self) -> u32 {
        if self.samples.iter().all(|sample| sample.is_sync) {
            SYNC_FLAGS
        } else {
            OTHER_FLAGS
        }
    }
}

fn write_box(
    out: &mut Vec<u8>,
    kind: &[u8; 4],
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>,
) -> Result<(), Error> {
    let start = out.len();
    out.extend([0; 4]);
    out.extend(kind);
    body(out)?;
    let bytes = size(out.len() - start)?;
    out[start..start + 4].copy_from_slice(&bytes.to_be_bytes());
    Ok(())
}

fn words(out: &mut Vec<u8>, words: &[u32]) -> Result<(), Error> {
    out.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    Ok(())
}

fn size(bytes: impl TryInto<u32>) -> Result<u32, Error> {
    bytes.try_into().map_err(|_| malformed("a fragment of more than four gigabytes"))
}
