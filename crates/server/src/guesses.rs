//! Wrong secrets and keys, counted for each address: nobody gets to guess many.
//!
//! Whoever has been let in before is let in again, however many guess from the same address: a secret that was right is
//! looked at in any case, and never counts. One that is not known yet is not even looked at once there were too many.

use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In so much time an address may be wrong as often as it is allowed.
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered at most, and credentials that were right.
const MOST: usize = 10_000;

pub struct Guesses {
    allowed: u32,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    wrong: HashMap<IpAddr, Wrong>,
    right: HashSet<[u8; 32]>,
}

struct Wrong {
    since: Instant,
    times: u32,
}

impl Guesses {
    pub fn new(allowed: u32) -> Self {
        Guesses { allowed, seen: Mutex::default() }
    }

    /// Whether this credential may be looked at; otherwise, how long to wait.
    pub fn may_try(&self, from: IpAddr, offered: &str, now: Instant) -> Result<(), Duration> {
        let seen = self.seen();
        let left = seen.wrong.get(&from).and_then(|wrong| wrong.left(self.allowed, now));
        match left {
            Some(left) if !seen.right.contains(&hash(offered)) => Err(left),
            _ => Ok(()),
        }
    }

    /// Whether this credential was right, and has not been wrong since.
    pub fn is_known(&self, offered: &str) -> bool {
        self.seen().right.contains(&hash(offered))
    }

    pub fn was_right(&self, offered: &str) {
        let mut seen = self.seen();
        if seen.right.len() >= MOST {
            seen.right.clear();
        }
        seen.right.insert(hash(offered));
    }

    /// It is not right any more.
    pub fn forget(&self, offered: &str) {
        self.seen().right.remove(&hash(offered));
    }

    pub fn was_wrong(&self, from: IpAddr, offered: &str, now: Instant) {
        let mut seen = self.seen();
        // Right until it was revoked.
        seen.right.remove(&hash(offered));
        seen.make_room(from, now);
        let wrong = seen.wrong.entry(from).or_insert(Wrong { since: now, times: 0 });
        if wrong.is_over(now) {
            *wrong = Wrong { since: now, times: 0 };
        }
        wrong.times = wrong.times.saturating_add(1);
        if wrong.times == self.allowed {
            tracing::warn!("{from} has offered {} wrong secrets or keys within a minute", wrong.times);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn make_room(&mut self, newcomer: IpAddr, now: Instant) {
        if self.wrong.len() < MOST || self.wrong.contains_key(&newcomer) {
            return;
        }
        self.wrong.retain(|_, wrong| !wrong.is_over(now));
        if self.wrong.len() >= MOST {
            // The oldest tenth, so that this is seldom done.
            let mut since: Vec<Instant> = self.wrong.values().map(|wrong| wrong.since).collect();
            let (_, limit, _) = since.select_nth_unstable(MOST / 10);
            let limit = *limit;
            self.wrong.retain(|_, wrong| wrong.since > limit);
        }
    }
}

impl Wrong {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }

    /// How long it may not guess any more.
    fn left(&self, allowed: u32, now: Instant) -> Option<Duration> {
        let is_too_many = self.times >= allowed && !self.is_over(now);
        is_too_many.then(|| WINDOW.saturating_sub(now.saturating_duration_since(self.since)))
    }
}

fn hash(offered: &str) -> [u8; 32] {
    Sha256::digest(offered.as_bytes()).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + last))
    }

    #[test]
    fn after_too_many_an_address_waits_and_others_do_not() {
        let (guesses, begin) = (Guesses::new(3), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        for n in 0..3 {
            assert_eq!(guesses.may_try(address(1), "guess", at(n)), Ok(()));
            guesses.was_wrong(address(1), "guess", at(n));
        }

        assert_eq!(guesses.may_try(address(1), "guess", at(10)), Err(Duration::from_secs(50)));
        assert_eq!(guesses.may_try(address(2), "guess", at(10)), Ok(()));
        assert_eq!(guesses.may_try(address(1), "guess", at(60)), Ok(()));
    }

    #[test]
    fn what_was_right_is_looked_at_until_it_is_wrong() {
        let (guesses, now) = (Guesses::new(1), Instant::now());
        guesses.was_right("key");
        guesses.was_wrong(address(1), "guess", now);

        assert_eq!(guesses.may_try(address(1), "key", now), Ok(()));
        guesses.was_wrong(address(1), "key", now);
        assert!(guesses.may_try(address(1), "key", now).is_err());
    }

    #[test]
    fn however_many_guess_few_are_remembered() {
        let (guesses, now) = (Guesses::new(1), Instant::now());
        for n in 0..2 * MOST as u32 {
            guesses.was_wrong(address(n), "guess", now + Duration::from_millis(n.into()));
            guesses.was_right(&n.to_string());
        }

        let seen = guesses.seen();
        assert!(seen.wrong.len() <= MOST && seen.right.len() <= MOST);
        assert!(seen.wrong.contains_key(&address(2 * MOST as u32 - 1)), "the newest is");
    }
}
