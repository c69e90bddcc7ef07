//! Stage rows: counters over a job's tasks, and the release of what is next.

use crate::audit::AuditRow;
use crate::db::Tx;
use crate::error::Result;
use crate::from_row::row;
use crate::moves::Moves;
use crate::outbox::Message;
use crate::task::{self, Busy, Loaded};
use rules::job::Phase;
use rules::spec::Effect;
use rules::stage::Progress;
use rules::task::State;
use rules::{JobId, Millis, TaskId};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeSet, HashMap};

row! {
    #[derive(Debug, Clone)]
    pub(crate) struct StageRow {
        pub job_id: i64,
        pub position: i64,
        pub name: String,
        pub phase: String,
        pub needs: String,
        pub expands: Option<i64>,
        pub lane_id: i64,
        pub owner_id: i64,
        pub is_optional: bool,
        pub is_hedged: bool,
        pub is_expanded: bool,
        pub is_released: bool,
        /// Its tasks are this one and those that follow it; known once it is expanded.
        pub first_task: Option<i64>,
        pub tasks: i64,
        pub open: i64,
        pub failed: i64,
        /// As they were when loaded.
        was_open: i64,
        was_finished: bool,
    }
}

/// All stages of some jobs, in order.
pub(crate) type Stages = HashMap<JobId, Vec<StageRow>>;

/// The job's lock guards them.
const OF_JOBS: &str = "
SELECT s.job_id, s.position, s.name, s.phase, s.needs, s.expands, s.lane_id, s.owner_id, s.is_optional, s.is_hedged, s.is_expanded,
       s.is_released, s.first_task, s.tasks, s.open, s.failed, s.open AS was_open,
       s.is_expanded AND s.is_released AND s.open = 0 AS was_finished
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN stage s ON s.job_id = r.id
ORDER BY s.job_id, s.position";

const SAVE: &str = "
UPDATE stage AS s
SET is_expanded = r.is_expanded, is_released = r.is_released, first_task = r.first_task, tasks = r.tasks, open = r.open,
    failed = r.failed
FROM json_to_recordset($1::json) AS r(job_id BIGINT, position BIGINT, is_expanded BOOLEAN, is_released BOOLEAN,
     first_task BIGINT, tasks BIGINT, open BIGINT, failed BIGINT)
WHERE s.job_id = r.job_id AND s.position = r.position";

#[derive(Serialize)]
struct Saved {
    job_id: i64,
    position: i64,
    is_expanded: bool,
    is_released: bool,
    first_task: Option<i64>,
    tasks: i64,
    open: i64,
    failed: i64,
}

pub(crate) async fn of_jobs(tx: &mut Tx, jobs: impl IntoIterator<Item = JobId>) -> Result<Stages> {
    let rows: Vec<StageRow> = tx.query(OF_JOBS).ids(jobs.into_iter().map(|job| job.0)).all().await?;
    let mut stages = Stages::new();
    for row in rows {
        stages.entry(JobId(row.job_id)).or_default().push(row);
    }
    Ok(stages)
}

pub(crate) async fn save(tx: &mut Tx, stages: impl IntoIterator<Item = &StageRow>) -> Result<()> {
    let rows: Vec<Saved> = stages.into_iter().map(StageRow::saved).collect();
    if !rows.is_empty() {
        tx.query(SAVE).rows(&rows).execute().await?;
    }
    Ok(())
}

/// Those of these tasks that are NEW; all are locked, or added by this transaction.
pub(crate) async fn new_tasks(tx: &mut Tx, moves: &Moves, ids: Vec<TaskId>) -> Result<Vec<Loaded>> {
    let (mut tasks, others) = moves.added(ids);
    if !others.is_empty() {
        let others = task::lock(tx, others, Busy::Wait).await?;
        tasks.extend(others.into_iter().filter(|loaded| loaded.task.state == State::New));
    }
    Ok(tasks)
}

/// What is special about committing in some stages.
#[derive(Debug, Clone)]
pub(crate) struct Special {
    pub is_plan: bool,
    pub is_hedged: bool,
    effect: Option<String>,
}

/// The stages, by job and position, whose commits are plans or have effects. Few, and none for most jobs.
pub(crate) async fn special(
    tx: &mut Tx,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<HashMap<(JobId, i64), Special>> {
    const SPECIAL: &str = "
SELECT s.job_id, s.position, s.is_plan, s.is_hedged, s.effect
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN stage s ON s.job_id = r.id
WHERE s.is_plan OR s.effect IS NOT NULL";
    let jobs: BTreeSet<i64> = jobs.into_iter().map(|job| job.0).collect();
    let rows: Vec<(i64, i64, bool, bool, Option<String>)> = tx.query(SPECIAL).ids(jobs).all().await?;
    let keyed = |(job, position, is_plan, is_hedged, effect)| {
        ((JobId(job), position), Special { is_plan, is_hedged, effect })
    };
    Ok(rows.into_iter().map(keyed).collect())
}

impl Special {
    /// What committing `task` entails outside; of two twins both are the original here, for they are one segment.
    pub fn message(&self, task: TaskId) -> Result<Option<Message>> {
        let effect: Option<Effect> = self.effect.as_deref().map(serde_json::from_str).transpose()?;
        Ok(effect.map(|effect| message(task, &effect)))
    }
}

fn message(task: TaskId, effect: &Effect) -> Message {
    match effect {
        Effect::Append(path) => Message {
            key: format!("append/{task}"),
            topic: "append",
            job: Some(task.job()),
            payload: json!({ "path": path, "line": task }),
        },
        Effect::AppendIn { folder, name } => Message {
            key: format!("append/{task}"),
            topic: "append",
            job: Some(task.job()),
            payload: json!({ "folder": folder, "name": name, "line": task }),
        },
    }
}

impl StageRow {
    pub fn has_counted(&self) -> bool {
        self.open != self.was_open
    }

    pub fn task_ids(&self) -> impl Iterator<Item = TaskId> + use<> {
        let first = self.first_task.unwrap_or_default();
        (first..first + self.tasks).map(TaskId)
    }

    pub fn progress(&self) -> Progress {
        Progress {
            is_expanded: self.is_expanded,
            is_released: self.is_released,
            open: u32::try_from(self.open).unwrap_or(u32::MAX),
        }
    }

    /// Its failed tasks are open again.
    pub fn forget_failures(&mut self) {
        if self.is_optional {
            self.open += self.failed;
        }
        self.failed = 0;
    }

    pub fn needs(&self) -> Result<Vec<usize>> {
        Ok(serde_json::from_str(&self.needs)?)
    }

    fn saved(&self) -> Saved {
        Saved {
            job_id: self.job_id,
            position: self.position,
            is_expanded: self.is_expanded,
            is_released: self.is_released,
            first_task: self.first_task,
            tasks: self.tasks,
            open: self.open,
            failed: self.failed,
        }
    }
}

/// A row for each job whose state is another than when its stages were loaded, though it goes on.
pub(crate) fn moved_on(jobs: &Stages, now: Millis) -> Result<Vec<AuditRow>> {
    let mut rows = Vec::new();
    for (&job, stages) in jobs.iter().filter(|(_, stages)| stages.iter().any(|it| it.open != it.was_open)) {
        let before = earliest(stages.iter().filter(|stage| !stage.was_finished))?;
        let after = earliest(stages.iter().filter(|stage| !stage.progress().is_finished()))?;
        if let (Some(before), Some(after)) = (before, after)
            && before != after
        {
            let row = AuditRow::of_job(job, "orchestrator", "phase", None, now);
            rows.push(row.between(before.state(), after.state()));
        }
    }
    Ok(rows)
}

fn earliest<'a>(stages: impl Iterator<Item = &'a StageRow>) -> Result<Option<Phase>> {
    let phases = stages.map(|stage| Ok(stage.phase.parse::<Phase>()?)).collect::<Result<Vec<_>>>()?;
    Ok(phases.into_iter().min())
}

/// The stages that may be released now.
pub(crate) fn releasable(stages: &[StageRow]) -> Result<Vec<usize>> {
    let needs = stages.iter().map(StageRow::needs).collect::<Result<Vec<_>>>()?;
    let view: Vec<_> = needs.iter().map(Vec::as_slice).zip(stages.iter().map(StageRow::progress)).collect();
    Ok(rules::stage::releasable(&view))
}
