//! Archiving: ended jobs leave the hot tables, a few at a time, and stay readable.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::job::Job;
use rules::{JobId, Millis, TaskId};
use serde::Serialize;
use serde_json::json;

/// Ended jobs of that age that nobody is busy with. Their tasks are ended too, so no claim waits for this.
const OLD: &str = "
SELECT id FROM job
WHERE outcome IS NOT NULL AND ended_at <= $1
ORDER BY ended_at LIMIT $2
FOR UPDATE SKIP LOCKED";

/// A commit that is not settled keeps its job from being archived.
const UNSETTLED: &str = "
SELECT id FROM task WHERE id BETWEEN $1 AND $2 AND committed_at IS NOT NULL AND finished_at IS NULL LIMIT 1";

const INSERT: &str = "
INSERT INTO job_archive (job_id, video_id, user_id, idempotency_key, spec_hash, outcome, ended_at, archived_at, record)
SELECT id, video_id, user_id, idempotency_key, spec_hash, outcome, ended_at, $2, $3 FROM job WHERE id = $1";

const FORGET: [&str; 5] = [
    "DELETE FROM execution_aborted WHERE task_id BETWEEN $1 AND $2",
    "DELETE FROM task_input WHERE task_id BETWEEN $1 AND $2",
    "DELETE FROM task WHERE id BETWEEN $1 AND $2",
    "DELETE FROM stage WHERE job_id BETWEEN $1 AND $2",
    "DELETE FROM job WHERE id BETWEEN $1 AND $2",
];

const FIND: &str = "SELECT record FROM job_archive WHERE job_id = $1";

#[derive(Serialize)]
struct Record<'a> {
    job: &'a Job,
    spec: serde_json::Value,
    plan: Option<serde_json::Value>,
    stages: serde_json::Value,
    executions: serde_json::Value,
}

impl Store {
    /// Moves up to `max` jobs that ended before `before` into the archive; how many.
    pub async fn archive(&self, before: Millis, max: i64) -> Result<usize> {
        again(|| self.archive_once(before, max)).await
    }

    async fn archive_once(&self, before: Millis, max: i64) -> Result<usize> {
        let mut tx = self.db.write(Step::Archive).await?;
        let old: Vec<(i64,)> = tx.query(OLD).bind(before).bind(max).all().await?;
        let mut archived = 0;
        for id in old.into_iter().map(|(id,)| JobId(id)) {
            let (first, last) = TaskId::range(id);
            let unsettled: Option<(i64,)> = tx.query(UNSETTLED).bind(first).bind(last).optional().await?;
            if unsettled.is_some() {
                continue;
            }
            let record = self.record(&mut tx, id).await?;
            let now = tx.now();
            tx.query(INSERT).bind(id).bind(now).bind(record).execute().await?;
            for (at, forget) in FORGET.into_iter().enumerate() {
                let (from, to) = if at < 3 { (first.0, last.0) } else { (id.0, id.0) };
                tx.query(forget).bind(from).bind(to).execute().await?;
            }
            archived += 1;
        }
        tx.commit().await?;
        Ok(archived)
    }

    async fn record(&self, tx: &mut Tx, id: JobId) -> Result<String> {
        const SPEC: &str = "SELECT spec, plan FROM job WHERE id = $1";
        const STAGES: &str = "SELECT name, tasks, failed FROM stage WHERE job_id = $1 ORDER BY position";
        const EXECUTIONS: &str = "
SELECT task_id, fence, worker_id, status, leased_at, finished_at, failure, error, wall_ms, cpu_ms, token FROM execution
WHERE task_id BETWEEN $1 AND $2 ORDER BY task_id, fence";
        type ExecutionRow = (
            i64,
            i64,
            String,
            String,
            i64,
            Option<i64>,
            Option<String>,
            Option<String>,
            Option<i64>,
            Option<i64>,
            i64,
        );
        let job = crate::job::one(tx, id).await?;
        let (spec, plan): (String, Option<String>) = tx.query(SPEC).bind(id).one().await?;
        let stages: Vec<(String, i64, i64)> = tx.query(STAGES).bind(id).all().await?;
        let (first, last) = TaskId::range(id);
        let executions: Vec<ExecutionRow> = tx.query(EXECUTIONS).bind(first).bind(last).all().await?;
        let record = Record {
            job: &job,
            spec: serde_json::from_str(&spec)?,
            plan: plan.map(|plan| serde_json::from_str(&plan)).transpose()?,
            stages: json!(stages),
            executions: json!(executions),
        };
        Ok(serde_json::to_string(&record)?)
    }
}

pub(crate) async fn archived(tx: &mut Tx, id: JobId) -> Result<Option<Job>> {
    #[derive(serde::Deserialize)]
    struct Kept {
        job: Job,
    }
    let record: Option<(String,)> = tx.query(FIND).bind(id).optional().await?;
    record.map(|(record,)| Ok(serde_json::from_str::<Kept>(&record)?.job)).transpose()
}
