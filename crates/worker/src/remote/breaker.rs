//! Spares a server that fails, and those who wait for it: after several failures in a row nobody asks it for a while,
//! then one does, for all.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::pace::Pace;

/// So many failures in a row are no accident.
const THRESHOLD: u32 = 5;

/// The longest pause is well below any lease.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Breaker(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    /// Grows from one failed trial to the next.
    pause: Pace,
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

impl Breaker {
    pub fn new() -> Self {
        let pause = Pace::new(FIRST_PAUSE, LONGEST_PAUSE);
        Breaker(Mutex::new(Inner { state: State::Closed { failures: 0 }, pause }))
    }

    /// Lets a request pass, unless it is certain enough to fail.
    pub fn enter(&self) -> Option<Pass<'_>> {
        let mut inner = self.inner();
        let is_trial = match inner.state {
            State::Closed { .. } => false,
            State::Open { until } if until <= Instant::now() => {
                inner.state = State::Trying;
                true
            }
            State::Open { .. } | State::Trying => return None,
        };
        Some(Pass { breaker: self, is_trial })
    }

    fn succeeded(&self) {
        let mut inner = self.inner();
        inner.state = State::Closed { failures: 0 };
        inner.pause.reset();
    }

    fn failed(&self, is_trial: bool) {
        let mut inner = self.inner();
        match inner.state {
            State::Closed { failures } if failures + 1 < THRESHOLD => {
                inner.state = State::Closed { failures: failures + 1 };
            }
            State::Closed { .. } => inner.open(),
            State::Trying if is_trial => inner.open(),
            // It was asked before the others gave up.
            State::Open { .. } | State::Trying => {}
        }
    }

    /// A trial whose asker lost interest tells nothing: the next may try.
    fn abandoned(&self) {
        let mut inner = self.inner();
        if inner.state == State::Trying {
            inner.state = State::Open { until: Instant::now() };
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn open(&mut self) {
        self.state = State::Open { until: Instant::now() + self.pause.next() };
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Pass<'a> {
    breaker: &'a Breaker,
    is_trial: bool,
}

impl Pass<'_> {
    pub fn settle(mut self, is_success: bool) {
        if is_success {
            self.breaker.succeeded();
        } else {
            self.breaker.failed(self.is_trial);
        }
        self.is_trial = false;
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.is_trial {
            self.breaker.abandoned();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::time::advance;

    fn fail(breaker: &Breaker, times: u32) {
        for _ in 0..times {
            breaker.enter().expect("closed").settle(false);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_open_it_and_one_success_between_them_does_not() {
        let breaker = Breaker::new();

        fail(&breaker, THRESHOLD - 1);
        breaker.enter().unwrap().settle(true);
        fail(&breaker, THRESHOLD - 1);
        assert!(breaker.enter().is_some());
        fail(&breaker, 1);

        assert!(breaker.enter().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_pause_one_tries_for_all_and_a_failed_trial_pauses_for_longer() {
        let breaker = Breaker::new();
        fail(&breaker, THRESHOLD);

        let mut pauses = Vec::new();
        for _ in 0..8 {
            let began = Instant::now();
            let trial = loop {
                match breaker.enter() {
                    Some(trial) => break trial,
                    None => advance(Duration::from_millis(50)).await,
                }
            };
            pauses.push(began.elapsed());
            assert!(breaker.enter().is_none(), "one at a time");
            trial.settle(false);
        }

        assert!(pauses[0] < pauses[3] && pauses[3] < pauses[7], "{pauses:?}");
        assert!(pauses.iter().all(|pause| *pause < LONGEST_PAUSE * 3 / 2), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_closes_it_and_a_dropped_trial_lets_the_next_try() {
        let breaker = Breaker::new();
        fail(&breaker, THRESHOLD);
        advance(LONGEST_PAUSE * 2).await;

        drop(breaker.enter().unwrap());
        let trial = breaker.enter().expect("the dropped trial told nothing");
        trial.settle(true);

        fail(&breaker, THRESHOLD - 1);
        assert!(breaker.enter().is_some());
    }
}
