//! H.264 in a byte stream: its sequence parameters, and whether a picture needs no other.

/// What a sequence parameter set says.
pub struct Sps {
    pub codec: String,
    /// `None` when what leads up to it is not understood.
    pub size: Option<(u32, u32)>,
}

/// The units that follow start codes, without them.
fn units(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let starts: Vec<_> =
        (0..bytes.len().saturating_sub(3)).filter(|at| bytes[*at..*at + 3] == [0, 0, 1]).collect();
    let ends: Vec<_> = starts.iter().skip(1).copied().chain([bytes.len()]).collect();
    starts.into_iter().zip(ends).map(|(start, end)| &bytes[start + 3..end])
}

pub fn has_idr(bytes: &[u8]) -> bool {
    units(bytes).any(|unit| unit.first().is_some_and(|head| head & 0x1f == 5))
}

pub fn find(bytes: &[u8]) -> Option<Sps> {
    let unit = units(bytes).find(|unit| unit.first().is_some_and(|head| head & 0x1f == 7))?;
    let [_, profile, constraints, level, ..] = unit else { return None };
    let codec = format!("avc1.{profile:02x}{constraints:02x}{level:02x}");
    let body = unescaped(&unit[4..]);
    Some(Sps { codec, size: size(*profile, &mut Bits { bytes: &body, at: 0 }) })
}

/// Without the bytes that keep start codes from appearing by chance.
fn unescaped(bytes: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(bytes.len());
    let mut zeros = 0;
    for byte in bytes {
        if zeros >= 2 && *byte == 3 {
            zeros = 0;
            continue;
        }
        zeros = if *byte == 0 { zeros + 1 } else { 0 };
        out.push(*byte);
    }
    out
}

/// Profiles that say how colours are sampled.
const HIGH: [u8; 12] = [100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134];

/// ISO 14496-10, 7.3.2.1.1, up to and including the cropping.
fn size(profile: u8, bits: &mut Bits<'_>) -> Option<(u32, u32)> {
    bits.number()?;
    let mut chroma = 1;
    if HIGH.contains(&profile) {
        chroma = bits.number()?;
        if chroma == 3 {
            bits.bit()?;
        }
        bits.number()?;
        bits.number()?;
        bits.bit()?;
        // Scaling matrices: nobody who writes them is met often enough to read them.
        if bits.bit()? == 1 {
            return None;
        }
    }
    bits.number()?;
    match bits.number()? {
        0 => drop(bits.number()?),
        1 => {
            bits.bit()?;
            bits.number()?;
            bits.number()?;
            for _ in 0..bits.number()?.min(255) {
                bits.number()?;
            }
        }
        _ => {}
    }
    bits.number()?;
    bits.bit()?;
    let width = bits.number()?.checked_add(1)?.checked_mul(16)?;
    let map_units = bits.number()?.checked_add(1)?;
    let is_frames = bits.bit()?;
    let height = map_units.checked_mul(16)?.checked_mul(2 - is_frames)?;
    if is_frames == 0 {
        bits.bit()?;
    }
    bits.bit()?;
    if bits.bit()? == 0 {
        return Some((width, height));
    }
    let [left, right, top, bottom] = [bits.number()?, bits.number()?, bits.number()?, bits.number()?];
    let (unit_x, unit_y) = match chroma {
        1 => (2, 2 * (2 - is_frames)),
        2 => (2, 2 - is_frames),
        _ => (1, 2 - is_frames),
    };
    let crop_x = left.checked_add(right)?.checked_mul(unit_x)?;
    let crop_y = top.checked_add(bottom)?.checked_mul(unit_y)?;
    Some((width.checked_sub(crop_x)?, height.checked_sub(crop_y)?))
}

struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Bits<'_> {
    fn bit(&mut self) -> Option<u32> {
        let bit = *self.bytes.get(self.at / 8)? >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit.into())
    }

    /// An Exp-Golomb code.
    fn number(&mut self) -> Option<u32> {
        let mut zeros = 0;
        while self.bit()? == 0 {
            zeros += 1;
            if zeros > 31 {
                return None;
            }
        }
        let mut value = 1_u64;
        for _ in 0..zeros {
            value = value << 1 | u64::from(self.bit()?);
        }
        u32::try_from(value - 1).ok()
    }
}
