//! The retry policy at work: `ERROR→READY` when the backoff is over.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;
use crate::lost_worker;
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
        let (mut retried, mut on_trial) = (0, Vec::new());
        for mut task in task::lock(&mut tx, found.iter().copied(), Busy::Skip).await? {
            let is_last_chance = lost_worker::is_last_chance(&task);
            if moves.make(&mut task, &Command::Retry, Words::default()).is_ok() {
                retried += 1;
                on_trial.extend(is_last_chance.then_some(task.id));
            }
        }
        moves.save(&mut tx).await?;
        lost_worker::put_on_trial(&mut tx, &on_trial).await?;
        tx.commit().await?;
        Ok((retried, moves.readied()))
    }
}
