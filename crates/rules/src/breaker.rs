//! Spares a server that fails, and those who wait for it: after several failures in a row nobody asks it for a while,
//! then one does, for all.
//!
//! Like everything here it has no clock and throws no dice: both are the caller's.

use crate::Millis;
use crate::backoff::{Backoff, Jitter};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// So many failures in a row are no accident.
pub const THRESHOLD: u32 = 5;

/// From one failed trial to the next. The longest pause is well below any lease.
const PAUSES: Backoff = Backoff { initial: Millis(500), max: Millis(10_000) };

#[derive(Debug)]
pub struct Breaker(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    /// Pauses since the last success.
    pauses: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        until: Instant,
    },
    /// Somebody asks for all.
    Trying,
}

impl Default for Breaker {
    fn default() -> Self {
        Breaker(Mutex::new(Inner { state: State::Closed { failures: 0 }, pauses: 0 }))
    }
}

impl Breaker {
    /// Lets a request pass, unless it is certain enough to fail.
    pub fn enter(&self, now: Instant) -> Option<Pass<'_>> {
        let mut inner = self.inner();
        let is_trial = match inner.state {
            State::Closed { .. } => false,
            State::Open { until } if until <= now => {
                inner.state = State::Trying;
                true
            }
            State::Open { .. } | State::Trying => return None,
        };
        Some(Pass { breaker: self, is_trial, since: now })
    }

    /// Whether requests pass.
    pub fn is_closed(&self) -> bool {
        matches!(self.inner().state, State::Closed { .. })
    }

    fn succeeded(&self) {
        *self.inner() = Inner { state: State::Closed { failures: 0 }, pauses: 0 };
    }

    fn failed(&self, is_trial: bool, now: Instant, jitter: Jitter) {
        let mut inner = self.inner();
        match inner.state {
            State::Closed { failures } if failures + 1 < THRESHOLD => {
                inner.state = State::Closed { failures: failures + 1 };
            }
            State::Closed { .. } => inner.open(now, jitter),
            State::Trying if is_trial => inner.open(now, jitter),
            // It was asked before the others gave up.
            State::Open { .. } | State::Trying => {}
        }
    }

    /// A trial whose asker lost interest tells nothing: the next may try.
    fn abandoned(&self, since: Instant) {
        let mut inner = self.inner();
        if inner.state == State::Trying {
            inner.state = State::Open { until: since };
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn open(&mut self, now: Instant, jitter: Jitter) {
        self.pauses = self.pauses.saturating_add(1);
        let pause = PAUSES.delay(self.pauses, jitter).0.unsigned_abs();
        self.state = State::Open { until: now + Duration::from_millis(pause) };
    }
}

/// A request under way.
#[derive(Debug)]
pub struct Pass<'a> {
    breaker: &'a Breaker,
    is_trial: bool,
    since: Instant,
}

impl Pass<'_> {
    pub fn succeeded(mut self) {
        self.breaker.succeeded();
        self.is_trial = false;
    }

    pub fn failed(mut self, now: Instant, jitter: Jitter) {
        self.breaker.failed(self.is_trial, now, jitter);
        self.is_trial = false;
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.breaker.abandoned(self.since);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const MIDDLE: Jitter = Jitter(500);
    const LONGEST: Duration = Duration::from_secs(10);

    fn fail(breaker: &Breaker, now: Instant, times: u32) {
        for _ in 0..times {
            breaker.enter(now).expect("closed").failed(now, MIDDLE);
        }
    }

    #[test]
    fn failures_in_a_row_open_it_and_one_success_between_them_does_not() {
        let (breaker, now) = (Breaker::default(), Instant::now());

        fail(&breaker, now, THRESHOLD - 1);
        breaker.enter(now).unwrap().succeeded();
        fail(&breaker, now, THRESHOLD - 1);
        assert!(breaker.enter(now).is_some() && breaker.is_closed());
        fail(&breaker, now, 1);

        assert!(breaker.enter(now).is_none() && !breaker.is_closed());
    }

    #[test]
    fn after_the_pause_one_tries_for_all_and_a_failed_trial_pauses_for_longer() {
        let (breaker, mut now) = (Breaker::default(), Instant::now());
        fail(&breaker, now, THRESHOLD);

        let mut pauses = Vec::new();
        for _ in 0..8 {
            let began = now;
            let trial = loop {
                match breaker.enter(now) {
                    Some(trial) => break trial,
                    None => now += Duration::from_millis(50),
                }
            };
            pauses.push(now - began);
            assert!(breaker.enter(now).is_none(), "one at a time");
            trial.failed(now, MIDDLE);
        }

        assert!(pauses[0] < pauses[3] && pauses[3] < pauses[7], "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause <= LONGEST), "{pauses:?}");
    }

    #[test]
    fn a_success_closes_it_and_a_dropped_trial_lets_the_next_try() {
        let (breaker, now) = (Breaker::default(), Instant::now());
        fail(&breaker, now, THRESHOLD);
        let later = now + 2 * LONGEST;

        drop(breaker.enter(later).unwrap());
        let trial = breaker.enter(later).expect("the dropped trial told nothing");
        trial.succeeded();

        fail(&breaker, later, THRESHOLD - 1);
        assert!(breaker.enter(later).is_some());
    }
}
