//! Which executions are a worker's own, and which files are still needed.

use crate::Store;
use crate::error::Result;
use rules::execution::Status;
use rules::task::Refusal;
use rules::{ExecutionName, VideoId, WorkerId};
use wire::Proof;

const FIND: &str = "
SELECT token, worker_id, status FROM execution WHERE task_id = $1 AND fence = $2";

/// It is not over, or goes on when somebody retries it, which [`Store::retry_job`] refuses once a newer one has completed.
macro_rules! goes_on {
    () => {
        "(job.outcome IS NULL OR job.outcome = 'failed' AND NOT EXISTS (
    SELECT 1 FROM job AS newer
    WHERE newer.video_id = job.video_id AND newer.id > job.id AND newer.outcome = 'completed'))"
    };
}
pub(crate) use goes_on;

const NEEDED: &str = concat!(
    "
SELECT failure FROM execution
WHERE task_id = $1 AND fence = $2 AND ($4 IS NULL OR token = $4) AND EXISTS (SELECT 1 FROM job WHERE id = $3 AND ",
    goes_on!(),
    ")"
);

const SOURCE: &str = "SELECT id FROM video WHERE source = $1 LIMIT 1";

const WORKED_ON: &str = concat!("SELECT id FROM job WHERE video_id = $1 AND ", goes_on!(), " LIMIT 1");

const VIDEO: &str = "SELECT video_id FROM job WHERE id = $1";

/// What an execution is to the worker that shows a proof for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ownership {
    /// It holds the lease. An expired lease that nobody has taken back yet counts: it may be renewed.
    Current,
    /// It has committed.
    Committed,
    /// It held the lease, and lost it or gave it back.
    Lost,
    /// The token or the worker is another's.
    Foreign,
    /// There is no such execution, or no longer.
    Unknown,
}

impl Ownership {
    /// Only the current holder may read, write, extend or end an execution.
    pub fn current(self) -> Result<(), Refusal> {
        match self {
            Ownership::Current => Ok(()),
            Ownership::Committed => Err(Refusal::CommittedByYou),
            Ownership::Lost | Ownership::Unknown => Err(Refusal::NotRunning),
            Ownership::Foreign => Err(Refusal::StaleToken),
        }
    }
}

impl Store {
    pub async fn ownership(&self, proof: Proof) -> Result<Ownership> {
        let mut tx = self.db.look().await?;
        let row: Option<(i64, String, String)> =
            tx.query(FIND).bind(proof.task).bind(proof.fence.0).optional().await?;
        let Some((token, holder, status)) = row else { return Ok(Ownership::Unknown) };
        if token != proof.token.0 || holder != proof.worker.to_string() {
            return Ok(Ownership::Foreign);
        }
        Ok(match status.parse()? {
            Status::Leased | Status::InProgress => Ownership::Current,
            Status::Committed | Status::Done => Ownership::Committed,
            Status::Aborted => Ownership::Lost,
        })
    }

    /// The worker that holds or held an execution.
    pub(crate) async fn holder_of(&self, execution: ExecutionName) -> Result<Option<WorkerId>> {
        let mut tx = self.db.look().await?;
        let row: Option<(i64, String, String)> =
            tx.query(FIND).bind(execution.task).bind(execution.fence.0).optional().await?;
        let found = row.filter(|(token, ..)| execution.token.is_none_or(|it| it.0 == *token));
        Ok(found.and_then(|(_, holder, _)| holder.parse().ok()))
    }

    /// Whether this proof's token is right and the execution is another worker's.
    pub async fn is_token_of_another(&self, proof: Proof) -> Result<bool> {
        let mut tx = self.db.look().await?;
        let row: Option<(i64, String, String)> =
            tx.query(FIND).bind(proof.task).bind(proof.fence.0).optional().await?;
        let is_stolen = |(token, holder, _): (i64, String, String)| {
            token == proof.token.0 && holder != proof.worker.to_string()
        };
        Ok(row.is_some_and(is_stolen))
    }

    /// Whether what an execution made may still be read: it runs, or it has committed and its job is not over or can be
    /// retried. A name without a token is that of whichever execution has its number.
    pub async fn needs_files(&self, execution: impl Into<ExecutionName>) -> Result<bool> {
        let execution = execution.into();
        let mut tx = self.db.look().await?;
        let found: Option<(Option<String>,)> = tx
            .query(NEEDED)
            .bind(execution.task)
            .bind(execution.fence.0)
            .bind(execution.task.job())
            .bind(execution.token.map(|token| token.0))
            .optional()
            .await?;
        Ok(found.is_some_and(|(failure,)| failure.is_none()))
    }

    /// Whether a video was made of this file.
    pub async fn is_source(&self, path: &str) -> Result<bool> {
        let mut tx = self.db.look().await?;
        Ok(tx.query(SOURCE).bind(path).optional::<(i64,)>().await?.is_some())
    }

    /// Whether a job on this video may still publish something, perhaps after a retry.
    pub async fn may_be_published(&self, video: VideoId) -> Result<bool> {
        let mut tx = self.db.look().await?;
        Ok(tx.query(WORKED_ON).bind(video).optional::<(i64,)>().await?.is_some())
    }

    /// The video that a job is about.
    pub async fn video_of_job(&self, job: rules::JobId) -> Result<Option<VideoId>> {
        let mut tx = self.db.look().await?;
        let row: Option<(Option<i64>,)> = tx.query(VIDEO).bind(job).optional().await?;
        Ok(row.and_then(|(video,)| video).map(VideoId))
    }
}
