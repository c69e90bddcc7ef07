//! Wrong secrets and keys, counted for each address: nobody gets to guess many.
//!
//! Whoever has been let in before is let in again, however many guess from the same address: a secret that was right is
//! looked at in any case, and never counts. One that is not known yet is not even looked at once there were too many.

use axum::http::request::Parts;
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// In so much time an address may be wrong as often as it is allowed.
const WINDOW: Duration = Duration::from_secs(60);

/// Addresses that are remembered at most, and credentials that were right.
const MOST: usize = 10_000;

/// Whom a connection is from. The listener says so.
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub IpAddr);

pub struct Guesses {
    allowed: u32,
    /// The header in which a proxy tells whom a request is from.
    header: Option<String>,
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
    pub fn new(allowed: u32, header: Option<String>) -> Self {
        Guesses { allowed, header, seen: Mutex::default() }
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

    pub fn was_right(&self, offered: &str) {
        let mut seen = self.seen();
        if seen.right.len() >= MOST {
            seen.right.clear();
        }
        seen.right.insert(hash(offered));
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

    /// Whom a request is from. Neighbours in IPv6 are one: a household has more addresses than anybody could count.
    pub fn client(&self, parts: &Parts) -> IpAddr {
        let told = self.header.as_ref().and_then(|name| parts.headers.get_all(name).iter().next_back());
        // The last is what our own proxy saw; those before it anybody may have written.
        let told = told.and_then(|value| value.to_str().ok()?.rsplit(',').next()?.trim().parse().ok());
        let peer = parts.extensions.get::<Peer>().map(|peer| peer.0);
        match told.or(peer).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)).to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from(u128::from(address) >> 64 << 64)),
            address => address,
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
    use axum::http::Request;

    fn address(last: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + last))
    }

    #[test]
    fn after_too_many_an_address_waits_and_others_do_not() {
        let (guesses, begin) = (Guesses::new(3, None), Instant::now());
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
        let (guesses, now) = (Guesses::new(1, None), Instant::now());
        guesses.was_right("key");
        guesses.was_wrong(address(1), "guess", now);

        assert_eq!(guesses.may_try(address(1), "key", now), Ok(()));
        guesses.was_wrong(address(1), "key", now);
        assert!(guesses.may_try(address(1), "key", now).is_err());
    }

    #[test]
    fn however_many_guess_few_are_remembered() {
        let (guesses, now) = (Guesses::new(1, None), Instant::now());
        for n in 0..2 * MOST as u32 {
            guesses.was_wrong(address(n), "guess", now + Duration::from_millis(n.into()));
            guesses.was_right(&n.to_string());
        }

        let seen = guesses.seen();
        assert!(seen.wrong.len() <= MOST && seen.right.len() <= MOST);
        assert!(seen.wrong.contains_key(&address(2 * MOST as u32 - 1)), "the newest is");
    }

    #[test]
    fn a_request_is_from_its_peer_or_from_whom_the_proxy_says() {
        let from = |guesses: &Guesses, peer: &str, told: &str| {
            let request = Request::builder().header("x-forwarded-for", told);
            let mut parts = request.body(()).unwrap().into_parts().0;
            parts.extensions.insert(Peer(peer.parse().unwrap()));
            guesses.client(&parts).to_string()
        };
        let (direct, proxied) = (Guesses::new(1, None), Guesses::new(1, Some("x-forwarded-for".into())));

        assert_eq!(from(&direct, "192.0.2.1", "198.51.100.7"), "192.0.2.1");
        assert_eq!(from(&direct, "::ffff:192.0.2.1", ""), "192.0.2.1");
        assert_eq!(from(&direct, "2001:db8:1:2:3:4:5:6", ""), "2001:db8:1:2::");
        assert_eq!(from(&proxied, "192.0.2.1", "203.0.113.9, 198.51.100.7"), "198.51.100.7");
        assert_eq!(from(&proxied, "192.0.2.1", "nonsense"), "192.0.2.1");
    }
}
