//! Exact fractions: frame rates, time bases, aspect ratios.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A positive fraction in lowest terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ratio {
    pub num: u32,
    pub den: u32,
}

impl Ratio {
    pub const ONE: Ratio = Ratio { num: 1, den: 1 };

    /// `None` unless both are positive.
    pub fn new(num: u32, den: u32) -> Option<Self> {
        if num == 0 || den == 0 {
            return None;
        }
        let divisor = gcd(num, den);
        Some(Ratio { num: num / divisor, den: den / divisor })
    }

    pub fn to_f64(self) -> f64 {
        f64::from(self.num) / f64::from(self.den)
    }

    pub fn inverse(self) -> Self {
        Ratio { num: self.den, den: self.num }
    }

    /// `count` of these, rounded to the nearest whole.
    pub fn of(self, count: u64) -> u64 {
        let (num, den) = (u128::from(self.num), u128::from(self.den));
        u64::try_from((u128::from(count) * num + den / 2) / den).unwrap_or(u64::MAX)
    }
}

impl Ratio {
    /// The fraction with the smallest terms from `low` to `high`, if it fits.
    pub fn simplest_between(low: f64, high: f64) -> Option<Self> {
        if !(low > 0.0 && low <= high && high.is_finite()) {
            return None;
        }
        // The continued fraction, as far as both ends share it: each step keeps the two last convergents.
        let (mut low, mut high) = (low, high);
        let (mut before, mut last) = ((0.0, 1.0), (1.0, 0.0));
        for _ in 0..40 {
            let whole = low.floor();
            let found = whole == low || whole + 1.0 <= high;
            let term = if whole == low { whole } else { whole + f64::from(u8::from(found)) };
            (before, last) = (last, (term * last.0 + before.0, term * last.1 + before.1));
            let (num, den): (f64, f64) = last;
            if num.max(den) > f64::from(u32::MAX) {
                return None;
            }
            if found {
                return Ratio::new(num as u32, den as u32);
            }
            (low, high) = (1.0 / (high - whole), 1.0 / (low - whole));
        }
        None
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// As ffmpeg writes and reads it: `30000/1001`.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.num, self.den)
    }
}

/// Reads `30000/1001`, `16:9` and `25`.
impl std::str::FromStr for Ratio {
    type Err = NotARatio;

    fn from_str(text: &str) -> Result<Self, NotARatio> {
        let (num, den) = text.split_once(['/', ':']).unwrap_or((text, "1"));
        let parsed = num.trim().parse().ok().zip(den.trim().parse().ok());
        parsed.and_then(|(num, den)| Ratio::new(num, den)).ok_or_else(|| NotARatio(text.into()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a fraction of two positive numbers")]
pub struct NotARatio(String);

impl Serialize for Ratio {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_read_in_all_its_spellings_and_kept_in_lowest_terms() {
        for (text, num, den) in [("30000/1001", 30000, 1001), ("16:9", 16, 9), ("25", 25, 1), ("50/2", 25, 1)]
        {
            assert_eq!(text.parse(), Ok(Ratio { num, den }), "{text}");
        }
        for wrong in ["", "0/1", "1/0", "-1/2", "a/b", "1/2/3"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_simplest_fraction_of_a_range_is_found() {
        for (low, high, num, den) in [
            (29.9, 30.1, 30, 1),
            (23.49, 23.51, 47, 2),
            (0.3, 0.35, 1, 3),
            (29.96, 29.98, 899, 30),
            (2.0, 2.0, 2, 1),
        ] {
            let found = Ratio::simplest_between(low, high).unwrap();
            assert!(found.to_f64() >= low && found.to_f64() <= high, "{found}");
            assert!(found.den <= den, "{found} is not as simple as {num}/{den}");
        }
        for (low, high) in [(0.0, 1.0), (2.0, 1.0), (f64::NAN, 1.0), (1.0, f64::INFINITY), (1e300, 2e300)] {
            assert_eq!(Ratio::simplest_between(low, high), None);
        }
    }

    #[test]
    fn counting_rounds_to_the_nearest() {
        let rate = Ratio { num: 30000, den: 1001 };

        assert_eq!(rate.of(2), 60);
        assert_eq!(rate.inverse().of(60), 2);
    }
}
