//! Cancelling a job: at once, also what runs; a late commit is refused.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;
use crate::job;
use crate::settle::{Ending, end, settle_job};
use crate::wake::Topic;
use rules::JobId;
use rules::job::{Command, Outcome, Refusal};

impl Store {
    /// Cancels a job that has not ended. `version`, where given, is the one the caller has seen. What was committed counts:
    /// a job whose last commit only waits to be settled has completed, and is told so.
    pub async fn cancel(&self, id: JobId, version: Option<i64>) -> Result<()> {
        let decided = again(|| self.cancel_once(id, version)).await?;
        self.wake.up(Topic::Event);
        Ok(decided?)
    }

    /// A refusal is an answer and no error, for what was settled before it is kept.
    async fn cancel_once(&self, id: JobId, version: Option<i64>) -> Result<Result<(), Refusal>> {
        let mut tx = self.db.write(Step::Cancel).await?;
        let job = job::lock_one(&mut tx, id, version).await?;
        if job.is_open() {
            settle_job(&mut tx, job).await?;
        }
        let before = job::state_of(&mut tx, id).await?;
        let decided = rules::job::decide(before, Command::Cancel).map(drop);
        if decided.is_ok() {
            let reason = Some("cancelled by a person".into());
            end(&mut tx, &[Ending { job: id, before, outcome: Outcome::Cancelled, reason }]).await?;
        }
        tx.commit().await?;
        Ok(decided)
    }
}
