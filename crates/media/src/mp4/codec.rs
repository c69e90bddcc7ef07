//! A sample entry's configuration, and its name for playlists (RFC 6381).

use super::bytes::{Bytes, FourCc, find, need};
use super::{Error, malformed};

/// What a track's sample description says, as far as playlists repeat it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    Video { codec: String, width: u32, height: u32 },
    Audio { codec: String, channels: u16, sample_rate: u32 },
}

/// Reads the first sample entry of a `stsd` of picture.
pub fn video(stsd: &[u8]) -> Result<Entry, Error> {
    let (kind, body) = first_entry(stsd)?;
    let mut fixed = Bytes(body);
    fixed.skip(24)?;
    let (width, height) = (u32::from(fixed.u16()?), u32::from(fixed.u16()?));
    fixed.skip(50)?;
    let codec = match &kind.0 {
        b"avc1" | b"avc3" => avc(kind, need(fixed.0, b"avcC")?)?,
        b"hvc1" | b"hev1" => hevc(kind, need(fixed.0, b"hvcC")?)?,
        b"av01" => av1(need(fixed.0, b"av1C")?, find(fixed.0, b"colr")?)?,
        _ => return Err(Error::Codec(kind.to_string())),
    };
    Ok(Entry::Video { codec, width, height })
}

/// Reads the first sample entry of a `stsd` of sound. The codec's own configuration is believed before the entry's
/// fixed fields, which ffmpeg fills with "stereo" whatever the sound is.
pub fn audio(stsd: &[u8]) -> Result<Entry, Error> {
    let (kind, body) = first_entry(stsd)?;
    let mut fixed = Bytes(body);
    fixed.skip(16)?;
    let channels = fixed.u16()?;
    fixed.skip(6)?;
    let sample_rate = fixed.u32()? >> 16;
    let entry = |codec: &str, channels| Entry::Audio { codec: codec.into(), channels, sample_rate };
    match &kind.0 {
        b"mp4a" => mpeg4(need(fixed.0, b"esds")?, channels, sample_rate),
        b"Opus" => Ok(entry("opus", u16::from(nth(need(fixed.0, b"dOps")?, 1)?))),
        b"ac-3" => Ok(entry("ac-3", ac3_channels(need(fixed.0, b"dac3")?)?)),
        b"ec-3" => Ok(entry("ec-3", ec3_channels(need(fixed.0, b"dec3")?)?)),
        b"fLaC" => Ok(entry("fLaC", channels)),
        _ => Err(Error::Codec(kind.to_string())),
    }
}

fn first_entry(stsd: &[u8]) -> Result<(FourCc, &[u8]), Error> {
    let mut head = Bytes(stsd);
    head.skip(8)?;
    let entry = super::bytes::atoms(head.0)?.into_iter().next();
    let entry = entry.ok_or_else(|| malformed("a track without a sample entry"))?;
    Ok((entry.kind, entry.body))
}

fn nth(bytes: &[u8], index: usize) -> Result<u8, Error> {
    bytes.get(index).copied().ok_or_else(|| malformed("a codec's configuration is cut short"))
}

fn avc(kind: FourCc, config: &[u8]) -> Result<String, Error> {
    let (profile, constraints, level) = (nth(config, 1)?, nth(config, 2)?, nth(config, 3)?);
    Ok(format!("{kind}.{profile:02x}{constraints:02x}{level:02x}"))
}

fn hevc(kind: FourCc, config: &[u8]) -> Result<String, Error> {
    let mut config = Bytes(config);
    config.skip(1)?;
    let profile = config.u8()?;
    let compatibility = config.u32()?.reverse_bits();
    let constraints = config.take(6)?;
    let level = config.u8()?;
    let space = ["", "A", "B", "C"][usize::from(profile >> 6)];
    let tier = if profile & 0x20 == 0 { 'L' } else { 'H' };
    let mut codec = format!("{kind}.{space}{}.{compatibility:X}.{tier}{level}", profile & 0x1f);
    let told = constraints.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    for byte in &constraints[..told] {
        codec += &format!(".{byte:X}");
    }
    Ok(codec)
}

/// The optional fields are told where the file has a `colr` box to take them from: players assume BT.709 without.
fn av1(config: &[u8], colr: Option<&[u8]>) -> Result<String, Error> {
    let (first, second) = (nth(config, 1)?, nth(config, 2)?);
    let bit = |shift: u8| second >> shift & 1;
    let (profile, level) = (first >> 5, first & 0x1f);
    let tier = if bit(7) == 0 { 'M' } else { 'H' };
    let depth = match (bit(6), bit(5)) {
        (0, _) => 8,
        (_, 0) => 10,
        _ => 12,
    };
    let mut codec = format!("av01.{profile}.{level:02}{tier}.{depth:02}");
    if let Some((primaries, transfer, matrix, is_full)) = colr.and_then(nclx) {
        let position = if bit(3) == 1 && bit(2) == 1 { second & 3 } else { 0 };
        let (monochrome, x, y) = (bit(4), bit(3), bit(2));
        codec += &format!(
            ".{monochrome}.{x}{y}{position}.{primaries:02}.{transfer:02}.{matrix:02}.{}",
            u8::from(is_full)
        );
    }
    Ok(codec)
}

/// Primaries, transfer, matrix, and whether the range is full.
fn nclx(colr: &[u8]) -> Option<(u16, u16, u16, bool)> {
    let mut colr = Bytes(colr);
    if &colr.kind().ok()?.0 != b"nclx" {
        return None;
    }
    Some((colr.u16().ok()?, colr.u16().ok()?, colr.u16().ok()?, colr.u8().ok()? & 0x80 != 0))
}

const SAMPLE_RATES: [u32; 13] =
    [96000, 88200, 64000, 48000, 44100, 32000, 24000, 22050, 16000, 12000, 11025, 8000, 7350];

fn mpeg4(esds: &[u8], channels: u16, sample_rate: u32) -> Result<Entry, Error> {
    let mut body = Bytes(esds);
    body.version()?;
    let mut es = Bytes(descriptor(&mut body, 3)?);
    es.skip(2)?;
    let flags = es.u8()?;
    es.skip(if flags & 0x80 != 0 { 2 } else { 0 })?;
    if flags & 0x40 != 0 {
        let url = es.u8()?;
        es.skip(url.into())?;
    }
    es.skip(if flags & 0x20 != 0 { 2 } else { 0 })?;
    let mut config = Bytes(descriptor(&mut es, 4)?);
    let object = config.u8()?;
    config.skip(12)?;
    if object != 0x40 {
        return Ok(Entry::Audio { codec: format!("mp4a.{object:02x}"), channels, sample_rate });
    }
    let mut bits = Bits { bytes: descriptor(&mut config, 5)?, at: 0 };
    let kind = match bits.read(5)? {
        31 => 32 + bits.read(6)?,
        kind => kind,
    };
    let sample_rate = match bits.read(4)? {
        15 => bits.read(24)?,
        index => SAMPLE_RATES.get(index as usize).copied().unwrap_or(sample_rate),
    };
    let channels = match bits.read(4)? {
        count @ 1..=6 => count as u16,
        11 => 7,
        7 | 12 | 14 => 8,
        _ => channels,
    };
    Ok(Entry::Audio { codec: format!("mp4a.40.{kind}"), channels, sample_rate })
}

/// The body of an MPEG-4 descriptor, which must have this tag.
fn descriptor<'a>(bytes: &mut Bytes<'a>, tag: u8) -> Result<&'a [u8], Error> {
    if bytes.u8()? != tag {
        return Err(malformed("`esds` does not hold the descriptors it should"));
    }
    let mut size = 0;
    for _ in 0..4 {
        let byte = bytes.u8()?;
        size = size << 7 | usize::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            break;
        }
    }
    bytes.take(size)
}

/// Full-range channels by Dolby's `acmod`.
const ACMOD_CHANNELS: [u16; 8] = [2, 1, 2, 3, 3, 4, 4, 5];

fn ac3_channels(dac3: &[u8]) -> Result<u16, Error> {
    let mut bits = Bits { bytes: dac3, at: 10 };
    Ok(ACMOD_CHANNELS[bits.read(3)? as usize] + bits.read(1)? as u16)
}

/// Of the first independent substream.
fn ec3_channels(dec3: &[u8]) -> Result<u16, Error> {
    let mut bits = Bits { bytes: dec3, at: 16 + 12 };
    Ok(ACMOD_CHANNELS[bits.read(3)? as usize] + bits.read(1)? as u16)
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn read(&mut self, count: usize) -> Result<u32, Error> {
        let mut value = 0;
        for at in self.at..self.at + count {
            value = value << 1 | u32::from(nth(self.bytes, at / 8)? >> (7 - at % 8) & 1);
        }
        self.at += count;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_named_as_players_ask_for_them() {
        let avc_config = [1, 0x64, 0, 0x1f, 0xff];
        let hevc_main = [1, 0x01, 0x60, 0, 0, 0, 0xb0, 0, 0, 0, 0, 0, 93];
        let hevc_main10_high_tier = [1, 0x22, 0x20, 0, 0, 0, 0x90, 0, 0x40, 0, 0, 0, 153];
        let av1_main = [0x81, 0x04, 0x0c, 0];
        let av1_main10 = [0x81, 0x08, 0x4d, 0];
        let pq = [&b"nclx"[..], &[0, 9, 0, 16, 0, 9, 0]].concat();

        assert_eq!(avc(FourCc(*b"avc1"), &avc_config).unwrap(), "avc1.64001f");
        assert_eq!(hevc(FourCc(*b"hvc1"), &hevc_main).unwrap(), "hvc1.1.6.L93.B0");
        assert_eq!(hevc(FourCc(*b"hev1"), &hevc_main10_high_tier).unwrap(), "hev1.2.4.H153.90.0.40");
        assert_eq!(av1(&av1_main, None).unwrap(), "av01.0.04M.08");
        assert_eq!(av1(&av1_main10, Some(&pq)).unwrap(), "av01.0.08M.10.0.111.09.16.09.0");
    }

    #[test]
    fn six_channels_of_aac_are_found_in_its_own_configuration() {
        let config = [5, 5, 0x11, 0xb0, 0x56, 0xe5, 0];
        let decoder = [&[4, 20, 0x40, 0x15][..], &[0; 11], &config].concat();
        let esds = [&[0, 0, 0, 0, 3, 25, 0, 1, 0][..], &decoder].concat();

        let found = mpeg4(&esds, 2, 44100).unwrap();

        let codec = "mp4a.40.2".into();
        assert_eq!(found, Entry::Audio { codec, channels: 6, sample_rate: 48000 });
    }

    #[test]
    fn dolby_counts_its_low_frequency_channel() {
        // 48 kHz, bsid 8, bsmod 0, acmod 7 (3/2), lfe on.
        assert_eq!(ac3_channels(&[0b0001_0000, 0b0011_1100, 0]).unwrap(), 6);
        assert_eq!(ec3_channels(&[0, 0, 0b0010_0000, 0b0000_1111, 0]).unwrap(), 6);
    }
}
