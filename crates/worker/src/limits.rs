//! Ends work that stands still or takes too long, before its lease runs out for the same reason and nobody
//! could say why any more. By this machine's clock, which measures spans as well as any; when the lease ends
//! is still the desk's to say.

use std::convert::Infallible;
use std::time::Duration;

use rules::lease::Ended;
use tokio::time::{Instant, sleep, sleep_until};

use crate::process::Progress;
use crate::roster::Running;
use crate::stop::Reason;

/// A command that is run within the same limits ends first, and knows more about it.
const LENIENCE: Duration = Duration::from_millis(100);

/// How often to look whether work moves, at most.
const LOOK: Duration = Duration::from_secs(1);

/// Goes on until dropped.
pub(crate) async fn watch(running: &Running) -> Infallible {
    tokio::select! {
        () = overdue(running) => running.stop.stop(Reason::Ended(Ended::Overdue)),
        () = stalled(running) => running.stop.stop(Reason::Ended(Ended::Stalled)),
    }
    std::future::pending().await
}

async fn overdue(running: &Running) {
    match running.context.timeout() {
        Some(timeout) => sleep_until(running.context.began() + timeout + LENIENCE).await,
        None => std::future::pending().await,
    }
}

async fn stalled(running: &Running) {
    match running.context.stall() {
        Some(stall) => still_for(&running.context.progress, stall + LENIENCE).await,
        None => std::future::pending().await,
    }
}

/// Returns when nothing has moved for so long.
pub(crate) async fn still_for(progress: &Progress, span: Duration) {
    let (mut beats, mut moved_at) = (progress.beats(), Instant::now());
    while let Some(left) = span.checked_sub(moved_at.elapsed()).filter(|left| !left.is_zero()) {
        sleep(LOOK.min(left)).await;
        let seen = progress.beats();
        if seen != beats {
            (beats, moved_at) = (seen, Instant::now());
        }
    }
}
