//! Carrying jobs forward: commits are settled, stages released, plans expanded, retries made, final errors judged.

use crate::Options;
use crate::duty::{Look, repeat};
use store::wake::Topic;
use store::{Result, Store};

/// How many tasks one transaction takes.
const BATCH: i64 = 1000;

pub(crate) async fn run(store: &Store, options: &Options) {
    let wakeups = store.wake().subscribe(Topic::Settle);
    repeat("carry jobs forward", options.poll, Some(wakeups), || look(store)).await;
}

async fn look(store: &Store) -> Result<Look> {
    loop {
        let settled = store.settle(BATCH).await?;
        let due = store.due(BATCH).await?;
        let retried = store.retry(&due.retries).await?;
        let judged = store.judge(&due.verdicts).await?;
        let found = settled.found + due.retries.len() + due.verdicts.len();
        let done = settled.settled + retried + judged;
        match (found, done) {
            (0, _) => return Ok(Look::Idle),
            (_, 0) => return Ok(Look::Again),
            _ => {}
        }
    }
}
