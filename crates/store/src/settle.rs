//! Settling commits: `COMMITTED→DONE`, and what a commit means for its job. Also what recovery does after a crash
//! between the two, for nothing here depends on who committed or when.

use crate::Store;
use crate::audit::{self, AuditRow};
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::hedge::{self, Rivals};
use crate::job::{self, JobRow};
use crate::log::{self, NewLog};
use crate::moves::{Moves, Words};
use crate::plan;
use crate::readied::Readied;
use crate::stage::{self, Special, StageRow, Stages};
use crate::task::{self, Loaded, TaskRow, select_tasks};
use crate::wake::Topic;
use rules::job::Outcome;
use rules::task::Command;
use rules::{JobId, Millis, Priority, TaskId};
use std::collections::HashMap;

/// Found without a lock; what is still so is seen under it.
const COMMITTED: &str = "
SELECT id FROM task
WHERE committed_at IS NOT NULL AND finished_at IS NULL
ORDER BY id LIMIT $1";

impl Store {
    /// Settles up to `max` commits. Any number of orchestrators may do so at once: a job another is busy with is
    /// passed over. Returns how many were found, settled or not.
    pub async fn settle(&self, max: i64) -> Result<Settled> {
        let mut read = self.db.look().await?;
        let found: Vec<(i64,)> = read.query(COMMITTED).bind(max).many().await?;
        drop(read);
        let found: Vec<TaskId> = found.into_iter().map(|(id,)| TaskId(id)).collect();
        if found.is_empty() {
            return Ok(Settled::default());
        }
        let settled = again(|| self.settle_once(&found)).await?;
        self.wake.ready(settled.readied);
        if settled.ended > 0 {
            self.wake.up(Topic::Event);
        }
        Ok(Settled { found: found.len(), ..settled })
    }

    async fn settle_once(&self, found: &[TaskId]) -> Result<Settled> {
        let mut tx = self.db.write(Step::Settle).await?;
        let jobs = job::lock_free(&mut tx, found.iter().map(|id| id.job())).await?;
        let ids = found.iter().copied().filter(|id| jobs.contains_key(&id.job()));
        let settled = settle_locked(&mut tx, &jobs, ids).await?;
        tx.commit().await?;
        Ok(settled)
    }
}

/// Settles what is committed of these tasks, for who holds their jobs' locks.
async fn settle_locked(
    tx: &mut Tx,
    jobs: &HashMap<JobId, JobRow>,
    ids: impl Iterator<Item = TaskId>,
) -> Result<Settled> {
    let tasks = task::committed(tx, ids).await?;
    let found = tasks.len();
    let mut stages = stage::of_jobs(tx, jobs.keys().copied()).await?;
    let mut moves = Moves::new(tx.now());
    let mut rivals = match hedge::is_possible(&stages) {
        true => Rivals::of(tx, tasks.iter().map(|(task, _)| task.id)).await?,
        false => Rivals::default(),
    };
    let mut settled = 0;
    for (mut task, result) in tasks {
        if moves.make(&mut task, &Command::Settle, Words::default()).is_err() {
            continue;
        }
        settled += 1;
        if !rivals.wins(task.id) {
            continue;
        }
        let (Some(job), Some(stages)) = (jobs.get(&task.id.job()), stages.get_mut(&task.id.job())) else {
            continue;
        };
        count_settled(tx, &mut moves, &task, result.as_deref(), job, stages).await?;
    }
    let is_open = |id: &JobId| jobs.get(id).is_some_and(JobRow::is_open);
    let (mut open, closed): (Stages, Stages) = stages.into_iter().partition(|(id, _)| is_open(id));
    stage::save(tx, closed.values().flatten()).await?;
    let ended = advance(tx, &mut open, &mut moves).await?;
    moves.save(tx).await?;
    rivals.withdraw(tx, jobs).await?;
    Ok(Settled { found, settled, ended, readied: moves.readied() })
}

const COMMITTED_OF_JOB: &str = "
SELECT id FROM task
WHERE id BETWEEN $1 AND $2 AND committed_at IS NOT NULL AND finished_at IS NULL
ORDER BY id";

/// Settles all that is committed of one job, which is locked, and lets nothing be committed meanwhile: what is left of it
/// is locked first.
pub(crate) async fn settle_job(tx: &mut Tx, job: JobRow) -> Result<()> {
    let id = JobId(job.id);
    let (first, last) = TaskId::range(id);
    let mut from = Some(first);
    while let Some(first) = from {
        from = left(tx, first).await?.1;
    }
    let found: Vec<(i64,)> = tx.query(COMMITTED_OF_JOB).bind(first).bind(last).all().await?;
    if !found.is_empty() {
        let ids = found.into_iter().map(|(id,)| TaskId(id));
        settle_locked(tx, &HashMap::from([(id, job)]), ids).await?;
    }
    Ok(())
}

/// Fewer commits than these are settled by an orchestrator, with others: that costs less.
pub(crate) const GATHERED: usize = 16;

/// Settles at once those of these commits that only count, for others of their stage are open: nothing of their job moves
/// on by them. What moves a job on is an orchestrator's, and so is a job that somebody else is busy with. How many were
/// settled.
pub(crate) async fn count(
    tx: &mut Tx,
    committed: impl Iterator<Item = TaskId> + Clone,
    tasks: &mut HashMap<TaskId, Loaded>,
    special: &HashMap<(JobId, i64), Special>,
    moves: &mut Moves,
) -> Result<usize> {
    let mut settled = 0;
    let mut jobs = job::lock_free(tx, committed.clone().map(|id| id.job())).await?;
    jobs.retain(|_, job| job.is_open());
    let mut stages = stage::of_jobs(tx, jobs.keys().copied()).await?;
    for id in committed {
        let (Some(stages), Some(task)) = (stages.get_mut(&id.job()), tasks.get_mut(&id)) else { continue };
        let Some(stage) = stages.iter_mut().find(|stage| stage.position == task.stage) else { continue };
        let is_plan = special.get(&(id.job(), stage.position)).is_some_and(|stage| stage.is_plan);
        if stage.open > 1 && !stage.is_hedged && !is_plan {
            moves.make(task, &Command::Settle, Words::default())?;
            stage.open -= 1;
            settled += 1;
        }
    }
    stage::save(tx, stages.values().flatten().filter(|stage| stage.has_counted())).await?;
    Ok(settled)
}

/// What one round of settling came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Settled {
    pub found: usize,
    pub settled: usize,
    /// Jobs of which nothing was left.
    pub ended: usize,
    pub readied: Readied,
}

/// Counts a settled task, and expands the stages whose plan it is.
async fn count_settled(
    tx: &mut Tx,
    moves: &mut Moves,
    task: &Loaded,
    result: Option<&str>,
    job: &JobRow,
    stages: &mut [StageRow],
) -> Result<()> {
    if let Some(stage) = stages.iter_mut().find(|stage| stage.position == task.stage) {
        stage.open -= 1;
    }
    let planned = |stage: &&mut StageRow| stage.expands == Some(task.stage) && !stage.is_expanded;
    for stage in stages.iter_mut().filter(planned) {
        let priority = Priority::try_from(job.priority).unwrap_or_default();
        plan::expand(tx, moves, stage, result, priority, job.max_attempts).await?;
    }
    Ok(())
}

/// Releases what is next in these jobs, and ends those of which nothing is left; how many. All must be open.
pub(crate) async fn advance(tx: &mut Tx, jobs: &mut Stages, moves: &mut Moves) -> Result<usize> {
    while release_next(tx, jobs, moves).await? {}
    audit::insert(tx, &stage::moved_on(jobs, tx.now())?).await?;
    let is_finished = |stages: &[StageRow]| stages.iter().all(|stage| stage.progress().is_finished());
    let finished = jobs.iter().filter(|(_, stages)| is_finished(stages)).map(|(&job, _)| (job, false));
    // Asked before the stages are saved, for it follows from them.
    let before = job::states_of(tx, &finished.collect::<Vec<_>>()).await?;
    stage::save(tx, jobs.values().flatten()).await?;
    let ending = |(job, before)| Ending { job, before, outcome: Outcome::Completed, reason: None };
    let endings: Vec<Ending> = before.into_iter().map(ending).collect();
    end(tx, &endings).await?;
    Ok(endings.len())
}

/// Releases the stages that are due; whether there were any. A stage of no tasks makes others due at once.
async fn release_next(tx: &mut Tx, jobs: &mut Stages, moves: &mut Moves) -> Result<bool> {
    let (mut released, mut tasks) = (false, Vec::new());
    for stages in jobs.values_mut() {
        for position in stage::releasable(stages)? {
            stages[position].is_released = true;
            released = true;
            tasks.extend(stages[position].task_ids());
        }
    }
    for page in tasks.chunks(PAGE as usize) {
        for mut task in stage::new_tasks(tx, moves, page.to_vec()).await? {
            moves.make(&mut task, &Command::Advance, Words::default())?;
        }
        moves.save_some(tx).await?;
    }
    Ok(released)
}

/// How a job ends.
pub(crate) struct Ending {
    pub job: JobId,
    pub before: rules::job::State,
    pub outcome: Outcome,
    pub reason: Option<String>,
}

/// Ends jobs: writes their outcome and withdraws what is left of them. Moves made before must have been saved.
pub(crate) async fn end(tx: &mut Tx, endings: &[Ending]) -> Result<()> {
    job::set_outcomes(tx, endings).await?;
    for ending in endings.iter().filter(|ending| ending.outcome != Outcome::Completed) {
        withdraw(tx, ending.job).await?;
    }
    let now = tx.now();
    let audited: Vec<AuditRow> = endings.iter().map(|ending| ending.audit(now)).collect();
    audit::insert(tx, &audited).await?;
    let log = |ending: &Ending| NewLog::of_job(ending.job, ending.outcome, ending.reason.as_deref());
    log::insert(tx, &endings.iter().map(log).collect::<Vec<_>>()).await
}

impl Ending {
    fn audit(&self, now: Millis) -> AuditRow {
        let role = if self.outcome == Outcome::Cancelled { "user" } else { "orchestrator" };
        let command = match self.outcome {
            Outcome::Completed => "complete",
            Outcome::Failed => "fail",
            Outcome::Cancelled => "cancel",
        };
        AuditRow::of_job(self.job, role, command, self.reason.clone(), now)
            .between(self.before, self.outcome.state())
    }
}

/// A page of what is left of a job, locked in order. A job may have a million tasks, and memory is not to grow with them.
const LEFT: &str = select_tasks!(
    "FROM task t
WHERE t.id BETWEEN $1 AND $2 AND (t.state IN ('READY', 'RUNNING') OR t.due_at IS NOT NULL)
ORDER BY t.id LIMIT $3
FOR UPDATE"
);

/// Tasks of one page.
const PAGE: i64 = 20_000;

/// What is left of a job from a task on, and where the next page begins.
async fn left(tx: &mut Tx, from: TaskId) -> Result<(Vec<Loaded>, Option<TaskId>)> {
    let (_, last) = TaskId::range(from.job());
    let rows: Vec<TaskRow> = tx.query(LEFT).bind(from).bind(last).bind(PAGE).all().await?;
    let tasks = task::loaded(rows)?;
    let is_full = tasks.len() as i64 == PAGE;
    let next = tasks.last().filter(|task| is_full && task.id != last).map(|task| TaskId(task.id.0 + 1));
    Ok((tasks, next))
}

async fn withdraw(tx: &mut Tx, job: JobId) -> Result<()> {
    let mut from = Some(TaskId::range(job).0);
    while let Some(first) = from {
        let (tasks, next) = left(tx, first).await?;
        let mut moves = Moves::new(tx.now());
        for mut task in tasks {
            moves.make(&mut task, &Command::Withdraw, Words::default())?;
        }
        moves.save(tx).await?;
        from = next;
    }
    Ok(())
}
