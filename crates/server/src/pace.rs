//! How fast the requests of clients that have not authenticated are taken up.
//!
//! Connections alone do not bound the work that a client makes: one connection can carry thousands of requests a second.
//! What a client asks beyond its pace waits, so that it never keeps the processors from others.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Between two requests of one address, in the long run. Some hundred viewers behind one address ask for less.
const INTERVAL: Duration = Duration::from_millis(2);

/// So far ahead of its pace an address may be before it waits.
const AHEAD: Duration = Duration::from_secs(1);

/// Addresses that are remembered before those that are within their pace are forgotten.
const MANY: usize = 4096;

#[derive(Default)]
pub struct Pace {
    /// When all that an address has asked so far is within its pace.
    paid: Mutex<HashMap<IpAddr, Instant>>,
}

impl Pace {
    /// Waits for as long as the client is ahead of its pace.
    pub async fn keep(&self, client: IpAddr) {
        let wait = self.ask(client, Instant::now());
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
    }

    fn ask(&self, client: IpAddr, now: Instant) -> Duration {
        let mut paid = self.paid();
        if paid.len() >= MANY {
            paid.retain(|_, until| *until > now);
        }
        let until = paid.entry(client).or_insert(now);
        *until = (*until).max(now) + INTERVAL;
        until.saturating_duration_since(now + AHEAD)
    }

    fn paid(&self) -> MutexGuard<'_, HashMap<IpAddr, Instant>> {
        self.paid.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    fn address(number: u32) -> IpAddr {
        IpAddr::V4(Ipv4Addr::from(number))
    }

    #[test]
    fn who_asks_without_end_waits_and_others_do_not() {
        let (pace, now) = (Pace::default(), Instant::now());
        let burst = AHEAD.as_millis() / INTERVAL.as_millis();

        assert!((0..burst).all(|_| pace.ask(address(1), now).is_zero()));

        assert_eq!(pace.ask(address(1), now), INTERVAL);
        assert_eq!(pace.ask(address(1), now), 2 * INTERVAL);
        assert!(pace.ask(address(2), now).is_zero());
        assert!(pace.ask(address(1), now + AHEAD).is_zero(), "it has waited");
    }

    #[test]
    fn addresses_are_forgotten_once_they_are_within_their_pace() {
        let (pace, now) = (Pace::default(), Instant::now());
        for number in 0..3 * MANY as u32 {
            pace.ask(address(number), now + number * INTERVAL);
        }

        assert!(pace.paid().len() <= MANY);
    }
}
