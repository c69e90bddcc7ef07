//! Settling commits: `COMMITTED→DONE`, and what a commit means for its job. Also what recovery does after a crash
//! between the two, for nothing here depends on who committed or when.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::job::{self, JobRow};
use crate::log::{self, NewLog};
use crate::moves::{Moves, Words};
use crate::stage::{self, StageRow};
use crate::task::{self, Busy, Loaded};
use crate::wake::Topic;
use crate::{audit, outbox, plan};
use rules::execution::Status;
use rules::job::Outcome;
use rules::task::Command;
use rules::{JobId, Priority, TaskId};

/// Found without a lock; what is still so is seen under it.
const COMMITTED: &str = "
SELECT task_id FROM execution
WHERE finished_at IS NULL AND status = 'COMMITTED'
ORDER BY task_id LIMIT $1";

impl Store {
    /// Settles up to `max` commits. Any number of orchestrators may do so at once: a job another is busy with is
    /// passed over. Returns how many were found, settled or not.
    pub async fn settle(&self, max: i64) -> Result<Settled> {
        let mut read = self.db.look().await?;
        let found: Vec<(i64,)> = read.query(COMMITTED).bind(max).all().await?;
        drop(read);
        let found: Vec<TaskId> = found.into_iter().map(|(id,)| TaskId(id)).collect();
        if found.is_empty() {
            return Ok(Settled::default());
        }
        let settled = again(|| self.settle_once(&found)).await?;
        if settled.readied {
            self.wake.up(Topic::Ready);
        }
        Ok(Settled { found: found.len(), ..settled })
    }

    async fn settle_once(&self, found: &[TaskId]) -> Result<Settled> {
        let mut tx = self.db.write(Step::Settle).await?;
        let jobs = job::lock_free(&mut tx, found.iter().map(|id| id.job())).await?;
        let ids = found.iter().copied().filter(|id| jobs.contains_key(&id.job()));
        let tasks = task::lock(&mut tx, ids, Busy::Wait).await?;
        let mut stages = stage::of_jobs(&mut tx, jobs.keys().copied()).await?;
        let mut moves = Moves::new(tx.now());
        let mut settled = 0;
        for mut task in tasks {
            let is_committed =
                task.execution.as_ref().is_some_and(|execution| execution.is(Status::Committed));
            if !is_committed || moves.make(&mut task, &Command::Settle, Words::default()).is_err() {
                continue;
            }
            settled += 1;
            let (Some(job), Some(stages)) = (jobs.get(&task.id.job()), stages.get_mut(&task.id.job())) else {
                continue;
            };
            count_settled(&mut tx, &task, job, stages).await?;
        }
        for (id, job) in &jobs {
            let Some(stages) = stages.get_mut(id) else { continue };
            if job.is_open() {
                advance(&mut tx, *id, stages, &mut moves).await?;
            } else {
                stage::save(&mut tx, stages).await?;
            }
        }
        moves.save(&mut tx).await?;
        tx.commit().await?;
        Ok(Settled { found: found.len(), settled, readied: moves.readied() })
    }
}

/// What one round of settling came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub found: usize,
    pub settled: usize,
    pub readied: bool,
}

/// Counts a settled task, and expands the stages whose plan it is.
async fn count_settled(tx: &mut Tx, task: &Loaded, job: &JobRow, stages: &mut [StageRow]) -> Result<()> {
    if let Some(stage) = stages.iter_mut().find(|stage| stage.position == task.row.stage) {
        stage.open -= 1;
    }
    let result = task.execution.as_ref().and_then(|execution| execution.result.as_deref());
    let planned = |stage: &&mut StageRow| stage.expands == Some(task.row.stage) && !stage.is_expanded;
    for stage in stages.iter_mut().filter(planned) {
        let priority = Priority::try_from(job.priority).unwrap_or_default();
        plan::expand(tx, stage, result, priority, job.max_attempts).await?;
    }
    Ok(())
}

/// Releases what is next and ends the job when nothing is left.
pub(crate) async fn advance(
    tx: &mut Tx,
    job: JobId,
    stages: &mut [StageRow],
    moves: &mut Moves,
) -> Result<()> {
    loop {
        let due = stage::releasable(stages)?;
        if due.is_empty() {
            break;
        }
        for position in due {
            stages[position].is_released = true;
            for mut task in stage::new_tasks(tx, job, position as i64).await? {
                moves.make(&mut task, &Command::Advance, Words::default())?;
            }
        }
    }
    let is_finished = stages.iter().all(|stage| stage.progress().is_finished());
    let before = if is_finished { Some(job::state_of(tx, job).await?) } else { None };
    stage::save(tx, stages).await?;
    match before {
        Some(before) => end(tx, job, before, Outcome::Completed, None).await,
        None => Ok(()),
    }
}

/// Releases the first stages of a job that was just submitted or is tried again.
pub(crate) async fn release(tx: &mut Tx, job: JobId, moves: &mut Moves) -> Result<()> {
    let mut stages = stage::of_jobs(tx, [job]).await?;
    match stages.get_mut(&job) {
        Some(stages) => advance(tx, job, stages, moves).await,
        None => Ok(()),
    }
}

/// Ends a job: writes its outcome, withdraws what is left of it, and tells the outside. Moves made before must have
/// been saved.
pub(crate) async fn end(
    tx: &mut Tx,
    job: JobId,
    before: rules::job::State,
    outcome: Outcome,
    reason: Option<String>,
) -> Result<()> {
    job::set_outcome(tx, job, outcome, reason.as_deref()).await?;
    if outcome != Outcome::Completed {
        withdraw(tx, job).await?;
    }
    let role = if outcome == Outcome::Cancelled { "user" } else { "orchestrator" };
    let command = match outcome {
        Outcome::Completed => "complete",
        Outcome::Failed => "fail",
        Outcome::Cancelled => "cancel",
    };
    let row = audit::AuditRow::of_job(job, role, command, reason.clone(), tx.now())
        .between(before, outcome.state());
    audit::insert(tx, &[row]).await?;
    log::insert(tx, &[NewLog::of_job(job, outcome, reason.as_deref())]).await?;
    let version = job::version_of(tx, job).await?;
    let message = outbox::Message {
        key: format!("job/{job}/{version}/{outcome}"),
        topic: "job",
        job: Some(job),
        payload: serde_json::json!({ "job": job, "outcome": outcome, "error": reason }),
    };
    outbox::insert(tx, &[message]).await
}

const LEFT: &str = "
SELECT id, stage, segment, state, fence, attempts, max_attempts, queued_at, due_at, failure FROM task
WHERE id BETWEEN $1 AND $2 AND (state IN ('READY', 'RUNNING') OR due_at IS NOT NULL)
ORDER BY id
FOR UPDATE";

async fn withdraw(tx: &mut Tx, job: JobId) -> Result<()> {
    let mut moves = Moves::new(tx.now());
    let (first, last) = TaskId::range(job);
    let rows = tx.query(LEFT).bind(first).bind(last).all().await?;
    for mut task in task::with_executions(tx, rows).await? {
        moves.make(&mut task, &Command::Withdraw, Words::default())?;
    }
    moves.save(tx).await
}
