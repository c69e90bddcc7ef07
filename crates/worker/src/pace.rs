//! How long to wait before trying again: longer each time, and never in step with other workers.

use std::time::Duration;

use rules::Millis;
use rules::backoff::{Backoff, Jitter};

#[derive(Debug)]
pub(crate) struct Pace {
    backoff: Backoff,
    tries: u32,
}

impl Pace {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Pace { backoff: Backoff { initial: millis(first), max: millis(longest) }, tries: 0 }
    }

    pub fn next(&mut self) -> Duration {
        self.tries = self.tries.saturating_add(1);
        let delay = self.backoff.delay(self.tries, Jitter(rand::random_range(0..=1000)));
        Duration::from_millis(delay.0.max(0).unsigned_abs())
    }

    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// Nothing has been waited for since the last success.
    pub fn is_fresh(&self) -> bool {
        self.tries == 0
    }
}

fn millis(span: Duration) -> Millis {
    Millis(i64::try_from(span.as_millis()).unwrap_or(i64::MAX))
}
