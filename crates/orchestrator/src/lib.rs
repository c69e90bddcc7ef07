//! The orchestrator: everything that happens to jobs without a worker's hand.
//!
//! | duty | when | file |
//! | --- | --- | --- |
//! | settle commits, release what is next, expand plans, retry, judge final errors | woken, and a poll behind | [`advance`] |
//! | take back expired leases, notice silent workers and stragglers, note the time | by the clock | [`recovery`] |
//! | deliver effects | woken, and a poll behind | [`effects`] |
//! | post alerts | woken, and a poll behind | [`webhook`] |
//! | archive, prune, prepare and drop history | now and then | [`housekeeping`] |
//!
//! Any number may run at once: each duty is a store transaction that passes over what another is busy with, and is
//! safe to repeat. One of them may lead in what the clock brings, which saves looks and decides nothing. Killed at any
//! line, an orchestrator leaves nothing that the next look does not find.

mod advance;
mod duty;
pub mod effects;
mod housekeeping;
mod late;
mod recovery;
pub mod webhook;

use duty::When;
use std::time::Duration;
use store::Store;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone)]
pub struct Options {
    /// How often to look for commits, due retries and effects when nothing wakes it. Default 500 ms.
    pub poll: Duration,
    /// How often to look for expired leases. Default 1 s.
    pub recovery_interval: Duration,
    /// How long after its start it takes nothing back: workers that could not reach a server meanwhile renew first, so that
    /// a restart costs no work. Default 0.
    pub grace: Duration,
    /// The same for calling a worker offline. Default 0.
    pub offline_grace: Duration,
    /// How often to look for work that is far behind. Default 2 s.
    pub hedge_interval: Duration,
    /// How often to look for silent workers. Default 60 s.
    pub offline_interval: Duration,
    /// How often to archive, prune and prepare partitions. Default 5 min.
    pub housekeeping_interval: Duration,
    /// Ended jobs older than this are archived. Default 30 days.
    pub archive_after: Duration,
    /// Audit rows, logs and steps older than this are dropped. Default: never.
    pub history_after: Option<Duration>,
    /// Delivered messages older than this are forgotten. Default 7 days.
    pub messages_after: Duration,
    /// Workers that left longer ago than this are forgotten. Default 7 days.
    pub workers_after: Duration,
    /// Where alerts are posted. Default: nowhere.
    pub webhook: Option<webhook::Options>,
    /// Whether this one does what the clock brings, for all; the others look ten times more seldom. Default: it does.
    pub leads: Option<watch::Receiver<bool>>,
}

impl Options {
    fn by_clock(&self, interval: Duration) -> When {
        When::Clock(interval, self.leads.clone())
    }
}

impl Default for Options {
    fn default() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Options {
            poll: Duration::from_millis(500),
            recovery_interval: Duration::from_secs(1),
            grace: Duration::ZERO,
            offline_grace: Duration::ZERO,
            hedge_interval: Duration::from_secs(2),
            offline_interval: Duration::from_secs(60),
            housekeeping_interval: Duration::from_secs(300),
            archive_after: 30 * DAY,
            history_after: None,
            messages_after: 7 * DAY,
            workers_after: 7 * DAY,
            webhook: None,
            leads: None,
        }
    }
}

/// Does all duties until `shutdown`.
pub async fn run(store: Store, options: Options, shutdown: CancellationToken) {
    let carrier = store.wake().clone();
    tokio::select! {
        () = shutdown.cancelled() => {}
        () = carrier.run() => {}
        _ = async {
            tokio::join!(
                advance::commits(&store, &options),
                advance::failures(&store, &options),
                recovery::clock(&store, &options),
                recovery::leases(&store, &options),
                recovery::workers(&store, &options),
                recovery::stragglers(&store, &options),
                effects::run(&store, &options),
                webhook::run(&store, &options),
                housekeeping::run(&store, &options),
            )
        } => {}
    }
}
