//! Housekeeping: old jobs into the archive, old history away, next month's partitions ahead of time.

use crate::Options;
use crate::duty::{Look, repeat};
use rules::Millis;
use std::time::Duration;
use store::{Result, Store};

/// Jobs archived in one transaction: few, so that nothing waits for it.
const BATCH: i64 = 20;

pub(crate) async fn run(store: &Store, options: &Options) {
    let interval = failpoint::shortened("VODMILL_HOUSEKEEPING_SECONDS", options.housekeeping_interval);
    repeat("keep house", options.by_clock(interval), || keep(store, options)).await;
}

async fn keep(store: &Store, options: &Options) -> Result<Look> {
    store.prepare_history().await?;
    let now = store.now().await?;
    let before = |age: Duration| now - Millis(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
    while store.archive(before(options.archive_after), BATCH).await? > 0 {}
    while store.prune_messages(before(options.messages_after), 1000).await? > 0 {}
    while store.prune_workers(before(options.workers_after), 1000).await? > 0 {}
    if let Some(age) = options.history_after {
        while store.drop_history(before(age)).await? > 0 {}
    }
    Ok(Look::Idle)
}
