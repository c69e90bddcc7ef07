//! What committed tasks leave to the stages that read them.

use crate::Store;
use crate::db::Tx;
use crate::error::{Error, Result};
use rules::{JobId, TaskId};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// A stage, and the positions of those it reads.
pub(crate) struct Reading {
    pub job: JobId,
    pub stage: String,
    pub reads: Vec<i64>,
}

/// By the name of the stage that was read, in order of segment.
pub(crate) type Results = BTreeMap<String, Vec<Value>>;

const STAGE: &str = "
SELECT name, is_plan, first_task, tasks FROM stage WHERE job_id = $1 AND position = $2";

/// Of a segment that was hedged, that of the first commit.
const RESULTS: &str = "
SELECT CASE WHEN t.committed_at IS NULL OR w.committed_at < t.committed_at THEN w.result ELSE t.result END FROM task t
LEFT JOIN task w ON w.twin_of = t.id
WHERE t.id BETWEEN $1 AND $2
ORDER BY t.id";

const POSITION: &str = "SELECT position FROM stage WHERE job_id = $1 AND name = $2";

const WORK: &str = "
SELECT s.job_id, s.name, s.kind, s.payload, s.reads, i.input FROM task t
JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage
LEFT JOIN task_input i ON i.task_id = t.id
WHERE t.id = $1";

/// Of which job, and of each of its stages: tasks, commits that are missing, failures.
const VERSION: &str = "
SELECT j.created_at, s.tasks, s.failed, s.open - (
    SELECT count(*) FROM task t
    WHERE t.id BETWEEN $1 * 1048576 AND $1 * 1048576 + 1048575 AND t.stage = s.position
      AND t.committed_at IS NOT NULL AND t.finished_at IS NULL)
FROM job j JOIN stage s ON s.job_id = j.id
WHERE j.id = $1 AND s.name IN ($2, $3, $4)
ORDER BY s.position";

/// What some stages of a job have committed so far: as long as it is the same, so are their results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(Vec<(i64, i64, i64, i64)>);

/// What a task was given.
#[derive(Debug, Clone, Default)]
pub struct Work {
    pub stage: String,
    pub kind: String,
    /// As the job's spec gives it, with paths of the server.
    pub payload: Value,
    /// What the plan says of it.
    pub input: Option<Value>,
    /// What the stages that it reads have committed.
    pub results: BTreeMap<String, Vec<Value>>,
}

impl Store {
    /// What a task was given, to compare its result with.
    pub async fn work_of(&self, task: TaskId) -> Result<Work> {
        type Row = (i64, String, String, String, String, Option<String>);
        let mut tx = self.db.look().await?;
        let row: Option<Row> = tx.query(WORK).bind(task).optional().await?;
        let (job, stage, kind, payload, reads, input) = row.ok_or(Error::NotFound("task"))?;
        let mut results = Results::new();
        for position in serde_json::from_str::<Vec<i64>>(&reads)? {
            let (name, values) = read(&mut tx, JobId(job), position).await?;
            results.insert(name, values);
        }
        let input = input.map(|input| serde_json::from_str(&input)).transpose()?;
        let payload = serde_json::from_str(&payload)?;
        Ok(Work { stage, kind, payload, input, results })
    }

    /// What the tasks of a stage have committed, in order of segment; null where there is nothing yet.
    pub async fn results_of_stage(&self, job: JobId, stage: &str) -> Result<Vec<Value>> {
        let mut tx = self.db.look().await?;
        let found: Option<(i64,)> = tx.query(POSITION).bind(job).bind(stage).optional().await?;
        let (position,) = found.ok_or(Error::NotFound("stage"))?;
        Ok(read(&mut tx, job, position).await?.1)
    }

    /// The same, read as what they are. It takes no more memory than that.
    pub async fn read_results<T: DeserializeOwned>(&self, job: JobId, stage: &str) -> Result<Vec<Option<T>>> {
        let mut tx = self.db.look().await?;
        let found: Option<(i64,)> = tx.query(POSITION).bind(job).bind(stage).optional().await?;
        let (position,) = found.ok_or(Error::NotFound("stage"))?;
        let (_, rows) = rows(&mut tx, job, position).await?;
        let read = |(result,): (Option<String>,)| serde_json::from_str(result.as_deref().unwrap_or("null"));
        Ok(rows.into_iter().map(read).collect::<Result<_, _>>()?)
    }

    /// Which results there are of these stages. Cheap, however many there are.
    pub async fn version_of_results(&self, job: JobId, stages: [&str; 3]) -> Result<Version> {
        let mut tx = self.db.look().await?;
        let query = stages.into_iter().fold(tx.query(VERSION).bind(job), |query, stage| query.bind(stage));
        Ok(Version(query.all().await?))
    }

    /// What each of these stages reads. All of it is committed, so no lock is needed.
    pub(crate) async fn results(&self, reading: &[Reading]) -> Result<HashMap<(JobId, String), Results>> {
        let mut tx = self.db.look().await?;
        let mut found = HashMap::new();
        for stage in reading {
            let mut results = Results::new();
            for position in &stage.reads {
                let (name, values) = read(&mut tx, stage.job, *position).await?;
                results.insert(name, values);
            }
            found.insert((stage.job, stage.stage.clone()), results);
        }
        Ok(found)
    }
}

async fn read(tx: &mut Tx, job: JobId, position: i64) -> Result<(String, Vec<Value>)> {
    let (stage, rows) = rows(tx, job, position).await?;
    let values =
        rows.into_iter().map(|(result,)| value(result.as_deref(), stage.is_plan)).collect::<Result<_>>()?;
    Ok((stage.name, values))
}

struct Stage {
    name: String,
    is_plan: bool,
}

async fn rows(tx: &mut Tx, job: JobId, position: i64) -> Result<(Stage, Vec<(Option<String>,)>)> {
    type Row = (String, bool, Option<i64>, i64);
    let (name, is_plan, first, tasks): Row = tx.query(STAGE).bind(job).bind(position).one().await?;
    let first = first.unwrap_or_default();
    let rows = tx.query(RESULTS).bind(first).bind(first + tasks - 1).all().await?;
    Ok((Stage { name, is_plan }, rows))
}

/// Each task has its own piece of the plan's list as its input; the whole of it would be long, and told to each.
fn value(result: Option<&str>, is_plan: bool) -> Result<Value> {
    let mut value: Value = serde_json::from_str(result.unwrap_or("null"))?;
    if let (true, Some(plan)) = (is_plan, value.as_object_mut()) {
        plan.remove("segments");
    }
    Ok(value)
}
