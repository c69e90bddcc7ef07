//! Speaking for the dead: who knows for sure that a worker is gone need not wait for its leases to run out.

use crate::Store;
use crate::error::Result;
use rules::{Fence, TaskId, Token, WorkerId, failure};
use wire::{Answer, Failure, Proof, Renewal, Usage};

const HELD: &str = "
SELECT id, fence, token, progress FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL AND ($1 = '' OR worker_id = $1)
ORDER BY id";

const HELD_LOCALLY: &str = "
SELECT id, fence, token, progress FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL
  AND $1 = '' AND worker_id IN (SELECT id FROM worker WHERE kind = 'local')
ORDER BY id";

impl Store {
    /// Gives back, as a draining worker would, whatever is leased to anybody; how much that was. The caller must know
    /// that no worker of this database is alive, as one does who holds the only lock to its folder.
    pub async fn bury_all_workers(&self) -> Result<usize> {
        self.bury(HELD, String::new()).await
    }

    /// As [`Store::bury_all_workers`], for those that had the database on their own machine: who holds the lock to it
    /// knows that they are gone, and those on other machines go on.
    pub async fn bury_local_workers(&self) -> Result<usize> {
        self.bury(HELD_LOCALLY, String::new()).await
    }

    /// As [`Store::bury_all_workers`], for one of which that is known.
    pub async fn bury_worker(&self, worker: WorkerId) -> Result<usize> {
        self.bury(HELD, worker.to_string()).await
    }

    async fn bury(&self, held: &'static str, worker: String) -> Result<usize> {
        let mut read = self.db.look().await?;
        let held: Vec<(i64, i64, i64, i64)> = read.query(held).bind(worker).all().await?;
        drop(read);
        // A lease that ran out unnoticed can still be renewed, and only a live one be given back.
        let renewals: Vec<Renewal> = held
            .into_iter()
            .map(|(task, fence, token, progress)| Renewal {
                proof: Proof { task: TaskId(task), fence: Fence(fence), token: Token(token) },
                progress: progress + 1,
            })
            .collect();
        if renewals.is_empty() {
            return Ok(0);
        }
        self.renew(&renewals).await?;
        let given_back: Vec<Failure> = renewals.iter().map(|renewal| given_back(renewal.proof)).collect();
        let answers = self.fail(&given_back).await?;
        Ok(answers.iter().filter(|answer| **answer == Answer::Accepted).count())
    }
}

fn given_back(proof: Proof) -> Failure {
    Failure {
        proof,
        kind: failure::Kind::Drained,
        message: "its worker is gone".into(),
        usage: Usage::default(),
        steps: Vec::new(),
    }
}
