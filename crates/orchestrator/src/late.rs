//! A process that stood still must not hold the time against others.
//!
//! A server that was stopped, or whose machine slept, wakes up with every lease expired, because nobody could renew one
//! meanwhile. The same is true after the database was away, and when the clock is set forward. Workers are given time
//! to be heard before anything is taken from them.

use crate::Options;
use crate::duty::FOLLOWERS;
use rules::Millis;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use store::{Result, Store};
use tokio::sync::watch;

/// Notices that a duty is done much later than it was meant to be.
pub(crate) struct Late<'a> {
    interval: Duration,
    leads: Option<&'a watch::Receiver<bool>>,
    /// By the database's clock; 0 before the first look.
    looked_at: AtomicI64,
}

impl<'a> Late<'a> {
    pub fn new(options: &'a Options, interval: Duration) -> Self {
        Late { interval, leads: options.leads.as_ref(), looked_at: AtomicI64::new(0) }
    }

    /// The first look is meant to be after this time. A process may stand still before it, too.
    pub async fn begin(&self, store: &Store, first: Duration) {
        if let Ok(now) = store.now().await {
            let first = now + Millis(i64::try_from(first.as_millis()).unwrap_or(i64::MAX));
            self.looked_at.store(first.0, Ordering::Relaxed);
        }
        tokio::time::sleep(first).await;
    }

    /// Waits if this look is late, and long enough for workers to renew their leases.
    pub async fn wait(&self, store: &Store) -> Result<()> {
        let now = store.now().await?;
        let before = Millis(self.looked_at.swap(now.0, Ordering::Relaxed));
        if before == Millis(0) || !self.is_late(now - before, store.options().lease) {
            return Ok(());
        }
        let grace = grace(store);
        tracing::warn!(
            "this process or its database stood still for {} s, or the clock was set forward: workers have {} s to be \
             heard before anything is taken from them",
            (now - before).0 / 1000,
            grace.0 / 1000
        );
        tokio::time::sleep(Duration::from_millis(u64::try_from(grace.0).unwrap_or_default())).await;
        self.looked_at.store(store.now().await?.0, Ordering::Relaxed);
        Ok(())
    }

    /// A pause that is shorter than this lets no lease expire, because workers renew after a third of it.
    fn is_late(&self, passed: Millis, lease: Millis) -> bool {
        let is_follower = self.leads.is_some_and(|leads| !*leads.borrow());
        let interval = if is_follower { self.interval * FOLLOWERS } else { self.interval };
        let usual = Millis(i64::try_from(interval.as_millis()).unwrap_or(i64::MAX));
        passed > Millis(lease.0 / 2).max(usual + usual)
    }
}

/// One heartbeat interval, and not less than the time between two renewals.
fn grace(store: &Store) -> Millis {
    store.options().heartbeat_interval.max(Millis(store.options().lease.0 / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Millis = Millis::from_secs(60);

    #[test]
    fn a_look_is_late_after_half_a_lease() {
        let options = Options::default();
        let late = Late::new(&options, Duration::from_secs(1));

        assert!(!late.is_late(Millis::from_secs(30), LEASE));
        assert!(late.is_late(Millis::from_secs(31), LEASE));
    }

    #[test]
    fn who_looks_seldom_is_not_late_for_that() {
        let (_sender, leads) = watch::channel(false);
        let options = Options { leads: Some(leads), ..Options::default() };
        let late = Late::new(&options, Duration::from_secs(10));

        assert!(!late.is_late(Millis::from_secs(200), LEASE));
        assert!(late.is_late(Millis::from_secs(201), LEASE));
    }
}
