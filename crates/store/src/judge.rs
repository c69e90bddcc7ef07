//! Judging final errors: what a task that failed for good means for its job.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::failed;
use crate::hedge::{self, Fates};
use crate::job;
use crate::log::{self, Level, NewLog};
use crate::lost_worker;
use crate::moves::{Moves, Words};
use crate::readied::Readied;
use crate::settle::{Ending, advance, end};
use crate::stage::{self, StageRow, Stages};
use crate::task::{self, Busy, select_tasks};
use crate::wake::Topic;
use rules::job::Outcome;
use rules::task::{Command, Next, State};
use rules::{JobId, TaskId};

/// Tasks the orchestrator has to look at again: a backoff that is over, or a final error nobody has judged. Tasks that may
/// have killed their workers use their last attempt one by one: [`lost_worker::last_chances`].
const DUE: &str = select_tasks!(
    "FROM task t
WHERE t.due_at IS NOT NULL AND t.due_at <= $1
  AND NOT (t.failure IN ('worker_lost', 'lease_expired') AND t.attempts > 0 AND t.attempts = t.max_attempts - 1)
ORDER BY t.due_at LIMIT $2"
);

/// What one look at the due tasks found.
#[derive(Debug, Clone, Default)]
pub struct Due {
    pub retries: Vec<TaskId>,
    pub verdicts: Vec<TaskId>,
}

impl Store {
    /// The tasks whose time has come, found without a lock.
    pub async fn due(&self, max: i64) -> Result<Due> {
        let mut tx = self.db.look().await?;
        let now = tx.now();
        let rows = tx.query(DUE).bind(now).bind(max).all().await?;
        let mut due = Due { retries: lost_worker::last_chances(&mut tx).await?, ..Due::default() };
        for task in task::loaded(rows)? {
            match task.task.state {
                State::Error { next: Next::RetryAt(_), .. } => due.retries.push(task.id),
                State::Error { next: Next::Unjudged, .. } => due.verdicts.push(task.id),
                _ => {}
            }
        }
        Ok(due)
    }

    /// Takes final errors into account: an optional stage goes on without the task, any other fails the job.
    pub async fn judge(&self, tasks: &[TaskId]) -> Result<usize> {
        if tasks.is_empty() {
            return Ok(0);
        }
        let (judged, readied) = again(|| self.judge_once(tasks)).await?;
        self.wake.ready(readied);
        self.wake.up(Topic::Deliver);
        Ok(judged)
    }

    async fn judge_once(&self, found: &[TaskId]) -> Result<(usize, Readied)> {
        let mut tx = self.db.write(Step::Judge).await?;
        let jobs = job::lock_free(&mut tx, found.iter().map(|id| id.job())).await?;
        let ids = found.iter().copied().filter(|id| jobs.contains_key(&id.job()));
        let tasks = task::lock(&mut tx, ids, Busy::Wait).await?;
        let mut stages = stage::of_jobs(&mut tx, jobs.keys().copied()).await?;
        let mut moves = Moves::new(tx.now());
        let (mut judged, mut given_up) = (Vec::new(), Vec::new());
        let mut fates = match hedge::is_possible(&stages) {
            true => Fates::of(&mut tx, &tasks).await?,
            false => Fates::default(),
        };
        for mut task in tasks {
            if moves.make(&mut task, &Command::Judge, Words::default()).is_err() {
                continue;
            }
            let Some(failed) = fates.failed(&task) else { continue };
            let stages = stages.get_mut(&task.id.job());
            let stage =
                stages.and_then(|stages| stages.iter_mut().find(|stage| stage.position == task.stage));
            if let Some(stage) = stage {
                stage.failed += 1;
                stage.open -= i64::from(stage.is_optional);
                if stage.is_optional {
                    given_up.push(NewLog::of_task(failed.task, Level::Warn, without(failed.task)));
                }
                judged.push(Verdict {
                    task: failed.task,
                    stage: stage.name.clone(),
                    is_fatal: !stage.is_optional,
                    is_exhausted: failed.is_exhausted,
                });
            }
        }
        moves.save(&mut tx).await?;
        log::insert(&mut tx, &given_up).await?;
        let mut released = Moves::new(tx.now());
        let mut going_on = Stages::new();
        for (id, job) in &jobs {
            let Some(stages) = stages.remove(id) else { continue };
            let fatal = judged.iter().find(|verdict| verdict.is_fatal && verdict.task.job() == *id);
            match fatal {
                _ if !job.is_open() => stage::save(&mut tx, &stages).await?,
                Some(verdict) => fail(&mut tx, *id, &stages, verdict).await?,
                None => drop(going_on.insert(*id, stages)),
            }
        }
        advance(&mut tx, &mut going_on, &mut released).await?;
        released.save(&mut tx).await?;
        tx.commit().await?;
        Ok((judged.len(), released.readied()))
    }
}

fn without(task: TaskId) -> String {
    format!("the job goes on without task {task}, which is optional")
}

struct Verdict {
    task: TaskId,
    stage: String,
    is_fatal: bool,
    /// It was not hopeless from the start: it was tried as often as it may be.
    is_exhausted: bool,
}

async fn fail(tx: &mut Tx, job: JobId, stages: &[StageRow], verdict: &Verdict) -> Result<()> {
    let before = job::state_of(tx, job).await?;
    stage::save(tx, stages).await?;
    let error = match lost_worker::account(tx, verdict.task).await? {
        Some(error) => error,
        None => job::last_error(tx, verdict.task).await?,
    };
    let reason = format!("stage {}, task {}: {error}", verdict.stage, verdict.task);
    end(tx, &[Ending { job, before, outcome: Outcome::Failed, reason: Some(reason.clone()) }]).await?;
    failed::tell(tx, job, &reason, verdict.is_exhausted).await
}
