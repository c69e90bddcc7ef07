//! Job logs and execution steps: what people read to understand a job.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use rules::job::Outcome;
use rules::{JobId, TaskId};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use wire::{Proof, StepRecord};

#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    #[default]
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub const ALL: [Level; 4] = [Level::Debug, Level::Info, Level::Warn, Level::Error];

    pub const fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Level::ALL.into_iter().find(|level| level.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is no level; there are debug, info, warn and error"))
    }
}

/// Which lines of a job's log.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Only those after the one with this id: a tail asks again with the last it has seen.
    pub after: i64,
    /// Only those before which none can appear any more: who follows a log must not pass what a slow transaction has yet
    /// to show.
    pub is_settled: bool,
    /// Only those that are at least so grave.
    pub level: Level,
    /// Only those of this stage.
    pub stage: Option<String>,
}

#[derive(Debug, Clone)]
pub struct NewLog {
    pub job: JobId,
    pub task: Option<TaskId>,
    pub level: Level,
    pub stage: Option<String>,
    pub message: String,
    pub metadata: Option<serde_json::Value>,
}

impl NewLog {
    /// How a job ended.
    pub(crate) fn of_job(job: JobId, outcome: Outcome, reason: Option<&str>) -> Self {
        let level = if outcome == Outcome::Failed { Level::Error } else { Level::Info };
        let message = reason
            .map_or_else(|| format!("the job is {outcome}"), |why| format!("the job is {outcome}: {why}"));
        NewLog { job, task: None, level, stage: None, message, metadata: None }
    }

    pub fn of_task(task: TaskId, level: Level, message: String) -> Self {
        NewLog { job: task.job(), task: Some(task), level, stage: None, message, metadata: None }
    }
}

#[derive(Serialize)]
struct LogRow<'a> {
    at: i64,
    job_id: i64,
    task_id: Option<i64>,
    level: &'static str,
    stage: Option<&'a str>,
    message: &'a str,
    metadata: Option<String>,
}

#[derive(Serialize)]
struct StepRow<'a> {
    at: i64,
    task_id: i64,
    fence: i64,
    token: i64,
    #[serde(flatten)]
    step: &'a StepRecord,
}

/// A line about a task is of the task's stage, whether whoever writes it knows its name or not.
const INSERT: &str = "
INSERT INTO job_log (at, job_id, task_id, level, stage, message, metadata)
SELECT r.at, r.job_id, r.task_id, r.level, coalesce(r.stage, s.name), r.message, r.metadata
FROM json_to_recordset($1::json) AS r(at BIGINT, job_id BIGINT, task_id BIGINT, level TEXT, stage TEXT, message TEXT,
     metadata TEXT)
LEFT JOIN task t ON t.id = r.task_id
LEFT JOIN stage s ON s.job_id = r.job_id AND s.position = t.stage";

const INSERT_STEPS: &str = "
INSERT INTO execution_step (at, task_id, fence, token, kind, command, exit_code, signal, stdout_tail, stderr_tail,
                            duration_ms, is_success, error)
SELECT r.at, r.task_id, r.fence, r.token, r.kind, r.command, r.exit_code, r.signal, r.stdout_tail, r.stderr_tail, r.duration_ms,
       r.is_success, r.error
FROM json_to_recordset($1::json) AS r(at BIGINT, task_id BIGINT, fence BIGINT, token BIGINT, kind TEXT, command TEXT,
     exit_code BIGINT, signal BIGINT, stdout_tail TEXT, stderr_tail TEXT, duration_ms BIGINT, is_success BOOLEAN,
     error TEXT)";

pub(crate) async fn insert(tx: &mut Tx, logs: &[NewLog]) -> Result<()> {
    let at = tx.now().0;
    let row = |log: &NewLog| {
        serde_json::to_value(LogRow {
            at,
            job_id: log.job.0,
            task_id: log.task.map(|task| task.0),
            level: log.level.as_str(),
            stage: log.stage.as_deref(),
            message: &log.message,
            metadata: log.metadata.as_ref().map(ToString::to_string),
        })
    };
    let rows = logs.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    if !rows.is_empty() {
        tx.query(INSERT).rows(&rows).execute().await?;
    }
    Ok(())
}

pub(crate) async fn insert_steps(tx: &mut Tx, steps: &[(Proof, &StepRecord)]) -> Result<()> {
    let at = tx.now().0;
    let row = |&(proof, step): &(Proof, &_)| {
        let (task_id, fence, token) = (proof.task.0, proof.fence.0, proof.token.0);
        serde_json::to_value(StepRow { at, task_id, fence, token, step })
    };
    let rows = steps.iter().map(row).collect::<Result<Vec<_>, _>>()?;
    if !rows.is_empty() {
        tx.query(INSERT_STEPS).rows(&rows).execute().await?;
    }
    Ok(())
}

impl Store {
    pub async fn log(&self, logs: &[NewLog]) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::Log).await?;
            insert(&mut tx, logs).await?;
            tx.commit().await
        })
        .await
    }
}
