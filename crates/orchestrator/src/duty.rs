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

/// Repeats `look` for ever. Interest in wake-ups is registered before the look, so that none falls in between.
pub(crate) async fn repeat<F: Future<Output = Result<Look>>>(
    name: &'static str,
    interval: Duration,
    mut wakeups: Option<watch::Receiver<u64>>,
    mut look: impl FnMut() -> F,
) {
    let mut failures = 0;
    loop {
        if let Some(wakeups) = &mut wakeups {
            wakeups.mark_unchanged();
        }
        let wait = match look().await {
            Ok(Look::Idle) => interval,
            Ok(Look::Again) => SOON.min(interval),
            Err(error) => {
                failures += 1;
                complain(name, &error, failures);
                tokio::time::sleep(calm(failures)).await;
                continue;
            }
        };
        failures = 0;
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = changed(&mut wakeups) => {}
        }
    }
}

async fn changed(wakeups: &mut Option<watch::Receiver<u64>>) {
    match wakeups {
        // The store lives as long as the duty, so its channel is never closed.
        Some(wakeups) => drop(wakeups.changed().await),
        None => std::future::pending().await,
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
