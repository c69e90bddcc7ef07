//! The retry policy at work: `ERROR→READY` when the backoff is over.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;
use crate::moves::{Moves, Words};
use crate::readied::Readied;
use crate::task::{self, Busy};
use rules::TaskId;
use rules::task::Command;
use telemetry::metrics::TASK_RETRIES;

impl Store {
    /// Makes tasks READY again whose backoff is over; how many.
    pub async fn retry(&self, tasks: &[TaskId]) -> Result<usize> {
        if tasks.is_empty() {
            return Ok(0);
        }
        let (retried, readied) = again(|| self.retry_once(tasks)).await?;
        TASK_RETRIES.add([], retried as f64);
        self.wake.ready(readied);
        Ok(retried)
    }

    async fn retry_once(&self, found: &[TaskId]) -> Result<(usize, Readied)> {
        let mut tx = self.db.write(Step::Retry).await?;
        let mut moves = Moves::new(tx.now());
        let mut retried = 0;
        for mut task in task::lock(&mut tx, found.iter().copied(), Busy::Skip).await? {
            if moves.make(&mut task, &Command::Retry, Words::default()).is_ok() {
                retried += 1;
            }
        }
        moves.save(&mut tx).await?;
        tx.commit().await?;
        Ok((retried, moves.readied()))
    }
}
