//! Recovery (document 000): what crashed, slept or hung is noticed by the clock alone.

use crate::Options;
use crate::duty::{Look, repeat};
use crate::late::Late;
use std::time::Duration;
use store::{Result, Store};

const BATCH: i64 = 500;
const NOTED_EVERY: Duration = Duration::from_secs(1);

pub(crate) async fn leases(store: &Store, options: &Options) {
    let late = Late::new(options, options.recovery_interval);
    late.begin(store, options.grace).await;
    let look = || recover(store, &late);
    repeat("take back expired leases", options.by_clock(options.recovery_interval), look).await;
}

async fn recover(store: &Store, late: &Late<'_>) -> Result<Look> {
    late.wait(store).await?;
    loop {
        let recovered = store.recover(BATCH).await?;
        for lost in &recovered {
            tracing::warn!(
                job.id = %lost.execution.task.job(),
                task.id = %lost.task,
                execution.id = %lost.execution,
                worker.id = %lost.worker,
                "took back task {} from worker {}: its lease had expired; the task is {} now",
                lost.task,
                lost.worker,
                lost.now
            );
        }
        if recovered.is_empty() {
            return Ok(Look::Idle);
        }
    }
}

/// PostgreSQL's time goes on where it was when its clock is set back, because it is noted how far it was.
pub(crate) async fn clock(store: &Store, options: &Options) {
    let note = async || store.note_clock().await.map(|()| Look::Idle);
    repeat("note the time", options.by_clock(NOTED_EVERY), note).await;
}

/// Work that is far behind its fellows while workers are idle is begun a second time.
pub(crate) async fn stragglers(store: &Store, options: &Options) {
    repeat("look for stragglers", options.by_clock(options.hedge_interval), || hedge(store)).await;
}

async fn hedge(store: &Store) -> Result<Look> {
    for twin in store.hedge().await? {
        tracing::info!(job.id = %twin.job(), task.id = %twin, "began task {twin}, a second execution of a slow one");
    }
    Ok(Look::Idle)
}

/// A silent worker is only *said* to be offline: its leases expire by themselves.
pub(crate) async fn workers(store: &Store, options: &Options) {
    let late = Late::new(options, options.offline_interval);
    late.begin(store, options.offline_grace).await;
    let look = || mark(store, &late);
    repeat("look for silent workers", options.by_clock(options.offline_interval), look).await;
}

async fn mark(store: &Store, late: &Late<'_>) -> Result<Look> {
    late.wait(store).await?;
    for worker in store.mark_offline(BATCH).await? {
        tracing::warn!(worker.id = %worker, "worker {worker} has not been heard of and is offline");
    }
    Ok(Look::Idle)
}
