//! Names of codecs as playlists have them (RFC 6381): what they ask of a decoder.

/// What a name of a picture's codec says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand<'a> {
    /// `avc1`
    pub entry: &'a str,
    profile: u32,
    /// In tenths: 31 is level 3.1.
    pub level: u32,
    bits: u32,
}

impl<'a> Demand<'a> {
    /// `None` for what is no complete name of H.264, HEVC or AV1.
    pub fn parse(codec: &'a str) -> Option<Self> {
        let mut parts = codec.split('.');
        let entry = parts.next()?;
        let (profile, level, bits) = match entry {
            "avc1" | "avc3" => {
                let digits = parts.next().filter(|it| it.len() == 6)?;
                let byte = |at: usize| u32::from_str_radix(digits.get(at..at + 2)?, 16).ok();
                (byte(0)?, byte(4)?, 8)
            }
            "hvc1" | "hev1" => {
                let profile = parts.next()?.parse().ok()?;
                let tier_and_level = parts.nth(1)?;
                let level: u32 = tier_and_level.strip_prefix(['L', 'H'])?.parse().ok()?;
                (profile, level / 3, 8)
            }
            "av01" => {
                let profile = parts.next()?.parse().ok()?;
                let level: u32 = parts.next()?.strip_suffix(['M', 'H'])?.parse().ok()?;
                (profile, 20 + level / 4 * 10 + level % 4, parts.next()?.parse().ok()?)
            }
            _ => return None,
        };
        Some(Demand { entry, profile, level, bits })
    }

    /// Whether all decoders of the codec have its profile: eight bits, and colours at half the size. H.264 has three such.
    pub fn is_common_profile(&self) -> bool {
        match self.entry {
            "avc1" | "avc3" => matches!(self.profile, 66 | 77 | 100),
            "hvc1" | "hev1" => self.profile == 1,
            _ => self.profile == 0 && self.bits == 8,
        }
    }
}

/// The name of what a player needs for both. `None` if they are different codecs, or different profiles of which neither has
/// the other in it.
pub fn for_both(one: &str, other: &str) -> Option<String> {
    if one == other {
        return Some(one.into());
    }
    let (a, b) = (Demand::parse(one)?, Demand::parse(other)?);
    if a.entry != b.entry || !a.is_common_profile() || !b.is_common_profile() {
        return None;
    }
    if matches!(a.entry, "avc1" | "avc3") {
        let of_profile = if a.profile < b.profile { other } else { one };
        return Some(format!("{}{:02x}", of_profile.get(..9)?, a.level.max(b.level)));
    }
    Some(if a.level < b.level { other.into() } else { one.into() })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_profile_and_level() {
        for (name, level) in [
            ("avc1.64001f", 31),
            ("avc1.42c00d", 13),
            ("hvc1.1.6.L93.B0", 31),
            ("hvc1.1.6.H120", 40),
            ("av01.0.04M.08", 30),
            ("av01.0.13M.08.0.111.01.01.01.0", 51),
        ] {
            let demand = Demand::parse(name).unwrap();
            assert_eq!((demand.level, demand.is_common_profile()), (level, true), "{name}");
        }
        for name in ["avc1.f4001f", "avc1.6e0028", "hvc1.2.4.L93", "av01.0.04M.10", "av01.1.04M.08"] {
            assert!(!Demand::parse(name).unwrap().is_common_profile(), "{name}");
        }
        for name in
            ["", "avc1", "avc1.64001", "avc1.64001fff", "avc1.é0001f", "hvc1.1", "av01.0", "mp4a.40.2"]
        {
            assert_eq!(Demand::parse(name), None, "{name}");
        }
    }

    #[test]
    fn what_serves_both_is_the_higher_of_profile_and_of_level() {
        let both = |one, other| for_both(one, other).unwrap();

        assert_eq!(both("avc1.64001f", "avc1.64001f"), "avc1.64001f");
        assert_eq!(both("avc1.64001f", "avc1.42c028"), "avc1.640028");
        assert_eq!(both("avc1.4d4028", "avc1.64001e"), "avc1.640028");
        assert_eq!(both("hvc1.1.6.L93.B0", "hvc1.1.6.L120.B0"), "hvc1.1.6.L120.B0");
        assert_eq!(both("av01.0.08M.08", "av01.0.04M.08"), "av01.0.08M.08");
        assert_eq!(both("mp4a.40.2", "mp4a.40.2"), "mp4a.40.2");
        for (one, other) in [
            ("avc1.64001f", "avc3.64001f"),
            ("avc1.64001f", "avc1.f4001f"),
            ("avc1.64001f", "hvc1.1.6.L93.B0"),
            ("mp4a.40.2", "mp4a.40.5"),
        ] {
            assert_eq!(for_both(one, other), None, "{one} {other}");
        }
    }
}
