//! Cancelling a job: at once, also what runs; a late commit is refused.

use crate::Store;
use crate::db::{Step, again};
use crate::error::Result;
use crate::job;
use crate::settle::{Ending, end};
use crate::wake::Topic;
use rules::JobId;
use rules::job::{Command, Outcome};

impl Store {
    /// Cancels a job that has not ended. `version`, where given, is the one the caller has seen.
    pub async fn cancel(&self, id: JobId, version: Option<i64>) -> Result<()> {
        again(|| self.cancel_once(id, version)).await?;
        self.wake.up(Topic::Deliver);
        Ok(())
    }

    async fn cancel_once(&self, id: JobId, version: Option<i64>) -> Result<()> {
        let mut tx = self.db.write(Step::Cancel).await?;
        job::lock_one(&mut tx, id, version).await?;
        let before = job::state_of(&mut tx, id).await?;
        rules::job::decide(before, Command::Cancel)?;
        let reason = Some("cancelled by a person".into());
        end(&mut tx, &[Ending { job: id, before, outcome: Outcome::Cancelled, reason }]).await?;
        tx.commit().await
    }
}
