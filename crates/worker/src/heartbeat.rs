//! Heartbeats, apart from the work: at their interval, and soon after the worker became busy, idle or
//! draining.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, error, warn};
use wire::Desk;

use crate::shared::Shared;

/// News is told at most so often: a worker with short tasks is busy and idle many times a second.
const GATHER: Duration = Duration::from_secs(1);

pub(crate) async fn run<D: Desk>(shared: Arc<Shared<D>>) {
    let mut count = shared.roster.count();
    let mut refusal = shared.refusal.subscribe();
    let mut is_lost = false;
    tokio::select! {
        _ = shared.registered.wait() => {}
        () = shared.ending.cancelled() => return,
    }
    while !shared.ending.is_cancelled() {
        let told =
            Told { is_busy: *count.borrow_and_update() > 0, is_draining: shared.shutdown.is_draining() };
        refusal.mark_unchanged();
        let told_at = Instant::now();
        is_lost = note(shared.beat(false).await, is_lost);
        let interval = shared.desk.heartbeat_interval().unwrap_or(shared.options.heartbeat_interval);
        tokio::select! {
            () = shared.ending.cancelled() => return,
            () = sleep(interval) => {}
            () = news(&shared, &mut count, &mut refusal, &told, told_at + GATHER.min(interval)) => {}
        }
    }
}

/// What the last heartbeat said of it.
struct Told {
    is_busy: bool,
    is_draining: bool,
}

/// Returns when there is something new to tell, and not before `earliest`.
async fn news<D: Desk>(
    shared: &Shared<D>,
    count: &mut watch::Receiver<u32>,
    refusal: &mut watch::Receiver<Option<String>>,
    told: &Told,
    earliest: Instant,
) {
    tokio::select! {
        Ok(()) = refusal.changed() => {}
        _ = count.wait_for(|count| (*count > 0) != told.is_busy) => {}
        () = shared.shutdown.draining(), if !told.is_draining => {}
    }
    sleep_until(earliest).await;
}

/// Says it once when heartbeats begin to fail; whether they do.
fn note(answer: Result<(), wire::Error>, was_lost: bool) -> bool {
    match answer {
        Ok(()) => return false,
        Err(error @ wire::Error::Rejected(_)) => error!("the heartbeat is not accepted: {error}"),
        Err(error) if !was_lost => warn!("nobody hears the heartbeat: {error}"),
        Err(error) => debug!("nobody hears the heartbeat: {error}"),
    }
    true
}
