//! When a second execution of the same work is worth its cost: the last pieces of a stage sit with a slow worker, and
//! another is idle.

use crate::Millis;

/// Work that runs, among others of its stage that are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Straggler {
    pub running: Millis,
    /// How much is done, in thousandths, where it says so.
    pub permille: Option<u16>,
    /// What its fellows took.
    pub median: Millis,
}

/// Shorter work is over before a second execution has begun.
const WORTHWHILE: Millis = Millis::from_secs(5);

impl Straggler {
    /// It has taken twice as long as its fellows, and what is left of it would take longer than all of it elsewhere; or four
    /// times as long, whatever it says of itself.
    pub fn is_worth_hedging(&self) -> bool {
        let patience = (self.median + self.median).max(WORTHWHILE);
        let is_far_from_its_end = self.left().is_none_or(|left| left > self.median);
        self.running >= patience && (is_far_from_its_end || self.running >= patience + patience)
    }

    /// At the pace so far.
    fn left(&self) -> Option<Millis> {
        match self.permille {
            None | Some(0) => None,
            Some(done) => {
                let done = i64::from(done.min(1000));
                Some(Millis(self.running.0.saturating_mul(1000 - done) / done))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn straggler(running: i64, permille: Option<u16>) -> Straggler {
        Straggler { running: Millis::from_secs(running), permille, median: Millis::from_secs(10) }
    }

    #[test]
    fn only_what_is_slow_and_far_from_its_end_is_hedged() {
        assert!(straggler(20, None).is_worth_hedging());
        assert!(straggler(20, Some(0)).is_worth_hedging());
        assert!(straggler(20, Some(500)).is_worth_hedging());
        assert!(!straggler(20, Some(900)).is_worth_hedging(), "it will be done sooner than another could be");
        assert!(straggler(40, Some(999)).is_worth_hedging(), "it said so before");
        assert!(!straggler(19, None).is_worth_hedging(), "not slow yet");
        let short = Straggler { running: Millis(100), permille: None, median: Millis(1) };
        assert!(!short.is_worth_hedging());
    }
}
