//! How long to wait before the next attempt.

use crate::Millis;
use serde::{Deserialize, Serialize};

/// Exponential: `initial` × 2ⁿ, at most `max`, spread by [`Jitter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Backoff {
    /// After the first failure. Default 10 s.
    pub initial: Millis,
    /// Never longer than this. Default 5 min.
    pub max: Millis,
}

/// Where in its spread a delay falls, in thousandths; drawn by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Jitter(pub u16);

impl Default for Backoff {
    fn default() -> Self {
        Backoff { initial: Millis::from_secs(10), max: Millis::from_secs(300) }
    }
}

impl Backoff {
    /// Delay after the `failures`-th failure (from 1): between 75 % and 125 % of the nominal, never over `max`.
    pub fn delay(&self, failures: u32, jitter: Jitter) -> Millis {
        let doublings = failures.saturating_sub(1).min(62);
        let nominal = i128::from(self.initial.0.max(0)) << doublings;
        let nominal = nominal.min(i128::from(self.max.0.max(0)));
        let spread = nominal * (750 + i128::from(jitter.0.min(1000)) / 2) / 1000;
        Millis(spread.min(i128::from(self.max.0.max(0))) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: Jitter = Jitter(500);

    #[test]
    fn doubles_from_ten_seconds_up_to_five_minutes() {
        let delays: Vec<i64> = (1..=8).map(|n| Backoff::default().delay(n, MIDDLE).0 / 1000).collect();

        assert_eq!(delays, [10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn jitter_spreads_and_never_exceeds_the_maximum() {
        let backoff = Backoff::default();

        assert_eq!(backoff.delay(1, Jitter(0)), Millis(7_500));
        assert_eq!(backoff.delay(1, Jitter(1000)), Millis(12_500));
        assert_eq!(backoff.delay(9, Jitter(1000)), backoff.max);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let backoff = Backoff { initial: Millis(i64::MAX), max: Millis(i64::MAX) };

        assert_eq!(backoff.delay(u32::MAX, Jitter(u16::MAX)), Millis(i64::MAX));
        assert_eq!(Backoff { initial: Millis(-5), max: Millis(-5) }.delay(3, MIDDLE), Millis(0));
    }
}
