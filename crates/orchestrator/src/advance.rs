//! Carrying jobs forward: commits are settled, stages released, plans expanded, retries made, final errors judged.

use crate::Options;
use crate::duty::{Look, When, repeat};
use store::wake::Topic;
use store::{Result, Store};

/// How many tasks one transaction takes.
const BATCH: i64 = 1000;

pub(crate) async fn commits(store: &Store, options: &Options) {
    let wakeups = store.wake().subscribe(Topic::Settle);
    repeat("carry jobs forward", When::Woken(wakeups, options.poll), || settle(store)).await;
}

async fn settle(store: &Store) -> Result<Look> {
    loop {
        let settled = store.settle(BATCH).await?;
        match (settled.found, settled.settled) {
            (0, _) => return Ok(Look::Idle),
            (_, 0) => return Ok(Look::Again),
            _ => {}
        }
    }
}

pub(crate) async fn failures(store: &Store, options: &Options) {
    let wakeups = store.wake().subscribe(Topic::Judge);
    repeat("retry and judge what failed", When::Woken(wakeups, options.poll), || judge(store)).await;
}

async fn judge(store: &Store) -> Result<Look> {
    loop {
        let due = store.due(BATCH).await?;
        let retried = store.retry(&due.retries).await?;
        let judged = store.judge(&due.verdicts).await?;
        match (due.retries.len() + due.verdicts.len(), retried + judged) {
            (0, _) => return Ok(Look::Idle),
            (_, 0) => return Ok(Look::Again),
            _ => {}
        }
    }
}
