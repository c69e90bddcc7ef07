//! How fast the requests of clients that have not authenticated are taken up.
//!
//! Connections alone do not bound the work that a client makes: one connection can carry thousands of requests a second.
//! A request beyond the pace of its address waits, so that it never keeps the processors from others. One that would wait
//! for too long is refused and costs nothing: closed connections leave a bounded debt to those that come next.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Addresses that are remembered before those that are within their pace are forgotten.
const MANY: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Between two requests of one address, in the long run.
    pub interval: Duration,
    /// An address may be so far ahead of its pace before it waits.
    pub ahead: Duration,
    /// A request that would wait for longer is refused.
    pub patience: Duration,
}

impl Default for Rate {
    /// Some hundred viewers behind one address ask for less. Only closed connections make anyone wait for so long: those
    /// that an address may have open ask for one request each at a time.
    fn default() -> Self {
        Rate {
            interval: Duration::from_millis(2),
            ahead: Duration::from_secs(1),
            patience: Duration::from_secs(2),
        }
    }
}

/// The address has asked for too much lately.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooFast;

pub struct Pace {
    rate: Rate,
    /// When all that an address has asked so far is within its pace.
    paid: Mutex<HashMap<IpAddr, Instant>>,
}

impl Pace {
    pub fn new(rate: Rate) -> Self {
        Pace { rate, paid: Mutex::default() }
    }

    /// Waits for as long as the client is ahead of its pace.
    pub async fn keep(&self, client: IpAddr) -> Result<(), TooFast> {
        let wait = self.ask(client, Instant::now())?;
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        Ok(())
    }

    fn ask(&self, client: IpAddr, now: Instant) -> Result<Duration, TooFast> {
        let mut paid = self.paid();
        if paid.len() >= MANY {
            paid.retain(|_, until| *until > now);
        }
        let until = paid.entry(client).or_insert(now);
        let due = (*until).max(now) + self.rate.interval;
        let wait = due.saturating_duration_since(now + self.rate.ahead);
        if wait > self.rate.patience {
            return Err(TooFast);
        }
        *until = due;
        Ok(wait)
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
        let (rate, now) = (Rate::default(), Instant::now());
        let pace = Pace::new(rate);
        let burst = rate.ahead.as_millis() / rate.interval.as_millis();

        assert!((0..burst).all(|_| pace.ask(address(1), now) == Ok(Duration::ZERO)));

        assert_eq!(pace.ask(address(1), now), Ok(rate.interval));
        assert_eq!(pace.ask(address(1), now), Ok(2 * rate.interval));
        assert_eq!(pace.ask(address(2), now), Ok(Duration::ZERO));
        assert_eq!(pace.ask(address(1), now + rate.ahead), Ok(Duration::ZERO), "it has waited");
    }

    #[test]
    fn however_much_an_address_has_asked_its_debt_is_bounded() {
        let (rate, now) = (Rate::default(), Instant::now());
        let pace = Pace::new(rate);

        let refused = (0..100_000).filter(|_| pace.ask(address(1), now) == Err(TooFast)).count();

        let most = (rate.ahead + rate.patience).as_millis() / rate.interval.as_millis();
        assert_eq!(100_000 - refused, usize::try_from(most).unwrap_or_default());
        assert_eq!(pace.ask(address(1), now + rate.interval), Ok(rate.patience));
        assert_eq!(pace.ask(address(1), now + rate.ahead + rate.patience), Ok(Duration::ZERO));
    }

    #[test]
    fn addresses_are_forgotten_once_they_are_within_their_pace() {
        let (rate, now) = (Rate::default(), Instant::now());
        let pace = Pace::new(rate);
        for number in 0..3 * MANY as u32 {
            let _ = pace.ask(address(number), now + number * rate.interval);
        }

        assert!(pace.paid().len() <= MANY);
    }
}
