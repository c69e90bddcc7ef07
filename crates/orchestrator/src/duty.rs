//! A duty: look, act, wait for a wake-up or the next poll; and keep calm when the database is away.

use std::time::Duration;
use store::{Error, Result};
use tokio::sync::watch;

/// What a look found.
pub(crate) enum Look {
    /// Nothing is left to do.
    Idle,
    /// Something was held by another orchestrator: look again soon, for its holder may be done by then.
    Again,
}

const SOON: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(30);

/// How much longer those wait who do not lead: nothing rests on the leader, so they look too, now and then.
pub(crate) const FOLLOWERS: u32 = 10;

/// When to look again.
pub(crate) enum When {
    /// When woken, and after this time though nobody says so.
    Woken(watch::Receiver<u64>, Duration),
    /// By the clock. One of several orchestrators does so for all, if it is known which.
    Clock(Duration, Option<watch::Receiver<bool>>),
}

impl When {
    /// Interest in wake-ups is registered before the look, so that none falls in between.
    fn register(&mut self) {
        match self {
            When::Woken(hints, _) => hints.mark_unchanged(),
            When::Clock(_, Some(leads)) => leads.mark_unchanged(),
            When::Clock(_, None) => {}
        }
    }

    fn interval(&self) -> Duration {
        match self {
            When::Clock(interval, Some(leads)) if !*leads.borrow() => *interval * FOLLOWERS,
            When::Woken(_, interval) | When::Clock(interval, _) => *interval,
        }
    }

    /// Returns early for a wake-up, and when the lead has changed.
    async fn wait(&mut self, wait: Duration) {
        let early = async {
            let told = match self {
                When::Woken(hints, _) => hints.changed().await,
                When::Clock(_, Some(leads)) => leads.changed().await,
                When::Clock(_, None) => std::future::pending().await,
            };
            if told.is_err() {
                // Nobody is left who could say anything.
                std::future::pending::<()>().await;
            }
        };
        let _ = tokio::time::timeout(wait, early).await;
    }
}

/// Repeats `look` for ever.
pub(crate) async fn repeat<F: Future<Output = Result<Look>>>(
    name: &'static str,
    mut when: When,
    mut look: impl FnMut() -> F,
) {
    let mut failures = 0;
    loop {
        when.register();
        let wait = match look().await {
            Ok(Look::Idle) => when.interval(),
            Ok(Look::Again) => SOON.min(when.interval()),
            Err(error) => {
                failures += 1;
                complain(name, &error, failures);
                tokio::time::sleep(calm(failures)).await;
                continue;
            }
        };
        failures = 0;
        when.wait(wait).await;
    }
}

/// One line when trouble begins, not one for each attempt.
fn complain(name: &str, error: &Error, failures: u32) {
    let source = std::error::Error::source(error).map(|source| format!(": {source}")).unwrap_or_default();
    match failures {
        1 if error.is_unavailable() => tracing::warn!("cannot {name}, trying again: {error}{source}"),
        1 => tracing::error!("cannot {name}, trying again: {error}{source}"),
        _ => tracing::debug!("still cannot {name}: {error}{source}"),
    }
}

/// 250 ms, doubling up to half a minute; spread, so that a fleet does not return all at once.
fn calm(failures: u32) -> Duration {
    let nominal = Duration::from_millis(250).saturating_mul(1 << failures.min(7)).min(PATIENCE);
    nominal.mul_f64(rand::random_range(0.5..1.0))
}
