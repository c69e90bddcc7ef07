//! Whether an execution is still its worker's: asked before it is given anything or brings anything.

use crate::Store;
use crate::error::Result;
use rules::task::Refusal;
use rules::{ExecutionId, VideoId, WorkerId};
use wire::Proof;

const FIND: &str = "
SELECT token, worker_id, status, failure FROM execution WHERE task_id = $1 AND fence = $2";

/// It is not over, or goes on when somebody retries it, which [`Store::retry_job`] refuses once a newer one has completed.
macro_rules! goes_on {
    () => {
        "(job.outcome IS NULL OR job.outcome = 'failed' AND NOT EXISTS (
    SELECT 1 FROM job AS newer
    WHERE newer.video_id = job.video_id AND newer.id > job.id AND newer.outcome = 'completed'))"
    };
}

const NEEDED: &str = concat!(
    "
SELECT failure FROM execution
WHERE task_id = $1 AND fence = $2 AND EXISTS (SELECT 1 FROM job WHERE id = $3 AND ",
    goes_on!(),
    ")"
);

const SOURCE: &str = "SELECT id FROM video WHERE source = $1 LIMIT 1";

const WORKED_ON: &str = concat!("SELECT id FROM job WHERE video_id = $1 AND ", goes_on!(), " LIMIT 1");

const VIDEO: &str = "SELECT video_id FROM job WHERE id = $1";

impl Store {
    /// An expired lease that nobody has taken back yet still counts: it may be renewed.
    pub async fn holds(&self, worker: WorkerId, proof: Proof) -> Result<Result<(), Refusal>> {
        let mut tx = self.db.look().await?;
        let row: Option<(i64, String, String, Option<String>)> =
            tx.query(FIND).bind(proof.task).bind(proof.fence.0).optional().await?;
        Ok(match row {
            Some((token, holder, ..)) if token != proof.token.0 || holder != worker.to_string() => {
                Err(Refusal::StaleToken)
            }
            Some((.., None)) if matches!(status(&row), Some("LEASED" | "IN_PROGRESS")) => Ok(()),
            Some((.., None)) => Err(Refusal::CommittedByYou),
            Some(_) | None => Err(Refusal::NotRunning),
        })
    }

    /// Whether what an execution made may still be read: it runs, or it has committed and its job is not over or can be
    /// retried.
    pub async fn needs_files(&self, execution: ExecutionId) -> Result<bool> {
        let mut tx = self.db.look().await?;
        let found: Option<(Option<String>,)> = tx
            .query(NEEDED)
            .bind(execution.task)
            .bind(execution.fence.0)
            .bind(execution.task.job())
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

fn status(row: &Option<(i64, String, String, Option<String>)>) -> Option<&str> {
    row.as_ref().map(|(_, _, status, _)| status.as_str())
}
