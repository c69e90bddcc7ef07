//! A person retries a failed job: what was committed stays, what failed begins with fresh attempts.

use crate::Store;
use crate::audit::{self, AuditRow};
use crate::db::{Step, again};
use crate::error::{Error, Result};
use crate::hedge::{self, Rivals};
use crate::job;
use crate::log::{Level, NewLog};
use crate::moves::{Moves, Words};
use crate::readied::Readied;
use crate::settle::advance;
use crate::stage::{self, StageRow};
use crate::submit::NewJob;
use crate::task::{self, select_tasks};
use rules::spec::Spec;
use rules::task::Command;
use rules::{JobId, TaskId, VideoId};

const FAILED: &str = select_tasks!(
    "FROM task t
WHERE t.id BETWEEN $1 AND $2 AND t.state = 'ERROR' AND t.twin_of IS NULL
ORDER BY t.id
FOR UPDATE"
);

/// What a failed job has made is not kept beside a newer one that completed; and it would hide what that one made.
const NEWER: &str = "
SELECT newer.id FROM job JOIN job AS newer ON newer.video_id = job.video_id AND newer.id > job.id
WHERE job.id = $1 AND newer.outcome = 'completed'
ORDER BY newer.id DESC LIMIT 1";

const REOPEN: &str = "
UPDATE job SET outcome = NULL, ended_at = NULL, error = NULL, version = version + 1, updated_at = $1 WHERE id = $2";

const SPEC: &str = "SELECT spec, video_id FROM job WHERE id = $1";

impl Store {
    /// Submits a failed job once more, as another job: what it has committed stays committed, and cannot be read any more.
    /// The reasons stand in the logs of both.
    pub async fn make_again(&self, id: JobId, lost: &[String]) -> Result<JobId> {
        let mut tx = self.db.read().await?;
        let before = job::state_of(&mut tx, id).await?;
        rules::job::decide(before, rules::job::Command::Retry)?;
        if let Some((newer,)) = tx.query(NEWER).bind(id).optional().await? {
            return Err(rules::job::Refusal::Outdated(JobId(newer)).into());
        }
        let found: Option<(String, Option<i64>)> = tx.query(SPEC).bind(id).optional().await?;
        drop(tx);
        let (spec, video) = found.ok_or(Error::NotFound("job"))?;
        let new = NewJob {
            spec: serde_json::from_str(&spec)?,
            video: video.map(VideoId),
            // Asked twice, it is made again once, as long as nothing else has failed since.
            idempotency_key: Some(format!("make-again/{id}")),
        };
        let again = self.submit(&new).await?.id();
        let shown = lost.iter().take(20).map(String::as_str).collect::<Vec<_>>().join("; ");
        let more = lost.len().saturating_sub(20);
        let log = |job, message| NewLog {
            job,
            task: None,
            level: Level::Warn,
            stage: None,
            message,
            metadata: None,
        };
        self.log(&[
            log(id, format!("job {again} makes this one again, because committed files are gone: {shown} ({more} more)")),
            log(again, format!("this job makes job {id} again, because files that it had committed are gone")),
        ])
        .await?;
        Ok(again)
    }

    /// A job as it was submitted.
    pub async fn spec_of(&self, id: JobId) -> Result<Spec> {
        let mut tx = self.db.read().await?;
        let found: Option<(String, Option<i64>)> = tx.query(SPEC).bind(id).optional().await?;
        let (spec, _) = found.ok_or(Error::NotFound("job"))?;
        Ok(serde_json::from_str(&spec)?)
    }

    /// Opens a failed job again.
    pub async fn retry_job(&self, id: JobId, version: Option<i64>) -> Result<()> {
        let readied = again(|| self.retry_job_once(id, version)).await?;
        self.wake.ready(readied);
        Ok(())
    }

    async fn retry_job_once(&self, id: JobId, version: Option<i64>) -> Result<Readied> {
        let mut tx = self.db.write(Step::Rerun).await?;
        job::lock_one(&mut tx, id, version).await?;
        let before = job::state_of(&mut tx, id).await?;
        let after = rules::job::decide(before, rules::job::Command::Retry)?;
        if let Some((newer,)) = tx.query(NEWER).bind(id).optional().await? {
            return Err(rules::job::Refusal::Outdated(JobId(newer)).into());
        }
        let mut jobs = stage::of_jobs(&mut tx, [id]).await?;
        let stages = jobs.entry(id).or_default();
        let mut moves = Moves::new(tx.now());

        let (first, last) = TaskId::range(id);
        let failed = tx.query(FAILED).bind(first).bind(last).all().await?;
        for mut task in task::loaded(failed)? {
            let Some(stage) = stages.iter_mut().find(|stage| stage.position == task.stage) else {
                continue;
            };
            if stage.is_optional && stage.progress().is_finished() {
                continue; // Others may have gone on without it.
            }
            moves.make(&mut task, &Command::Rerun, Words::default())?;
            stage.forget_failures();
        }
        let released = stages.iter().filter(|stage| stage.is_released).flat_map(StageRow::task_ids);
        let released: Vec<TaskId> = released.collect();
        let rivals = match hedge::is_possible(&jobs) {
            true => Rivals::of(&mut tx, released.iter().copied()).await?,
            false => Rivals::default(),
        };
        let left = released.into_iter().filter(|task| !rivals.has_lost(*task));
        for mut task in stage::new_tasks(&mut tx, &moves, left.collect()).await? {
            moves.make(&mut task, &Command::Advance, Words::default())?;
        }
        let now = tx.now();
        tx.query(REOPEN).bind(now).bind(id).execute().await?;
        let row = AuditRow::of_job(id, "user", "retry", None, now).between(before, after);
        audit::insert(&mut tx, &[row]).await?;
        advance(&mut tx, &mut jobs, &mut moves).await?;
        moves.save(&mut tx).await?;
        tx.commit().await?;
        Ok(moves.readied())
    }
}
