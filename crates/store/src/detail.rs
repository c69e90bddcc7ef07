//! What there is to see of one job: its tasks, executions, steps, logs and audit trail.

use crate::Store;
use crate::audit::{COMMIT, SETTLE, START};
use crate::error::{Error, Result};
use crate::from_row::row;
use crate::{cursor, log};
use rules::execution::Status;
use rules::task::Role;
use rules::{ExecutionName, Fence, JobId, Millis, TaskId, Token};
use serde::{Deserialize, Serialize};

/// How many rows one listing gives.
pub const MAX_ROWS: i64 = 10_000;

row! {
    #[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
    pub struct StageView {
        pub name: String,
        pub phase: String,
        pub kind: String,
        pub tasks: i64,
        pub open: i64,
        pub failed: i64,
        pub running: i64,
        pub is_expanded: bool,
        pub is_released: bool,
        pub is_optional: bool,
    }
}

/// A run of consecutive segments of a stage: a plan may make the same pieces once for each codec, run after run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    pub job: JobId,
    pub number: i64,
    pub done: i64,
    pub is_running: bool,
    /// How far the running ones are, in thousandths of a segment, all together.
    pub running_permille: i64,
    /// A task of it will not be tried again.
    pub has_failed: bool,
    /// What such a task said last.
    pub error: Option<String>,
}

#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct TaskView {
    #[schema(value_type = String)]
    pub id: TaskId,
    pub stage: String,
    pub segment: i64,
    pub state: String,
    pub attempts: i64,
    pub max_attempts: i64,
    pub failure: Option<String>,
    pub due_at: Option<i64>,
    pub updated_at: i64,
    /// How far the running execution is, in thousandths.
    pub permille: Option<i64>,
}

#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct ExecutionView {
    #[schema(value_type = String)]
    pub id: ExecutionName,
    pub worker: String,
    pub status: String,
    pub leased_at: i64,
    pub started_at: Option<i64>,
    pub committed_at: Option<i64>,
    pub finished_at: Option<i64>,
    pub lease_expires_at: i64,
    pub failure: Option<String>,
    pub error: Option<String>,
    pub wall_ms: Option<i64>,
    pub cpu_ms: Option<i64>,
    pub peak_memory_bytes: Option<i64>,
    pub bytes_in: Option<i64>,
    pub bytes_out: Option<i64>,
}

#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct StepView {
    pub at: i64,
    #[schema(value_type = String)]
    pub execution: ExecutionName,
    pub kind: String,
    pub command: String,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub stdout_tail: String,
    pub stderr_tail: String,
    pub duration_ms: i64,
    pub is_success: bool,
    pub error: Option<String>,
}

row! {
    #[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
    pub struct LogView {
        pub id: i64,
        pub at: i64,
        pub level: String,
        pub stage: Option<String>,
        pub message: String,
    }
}

#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct AuditView {
    pub at: i64,
    #[schema(value_type = Option<String>)]
    pub task: Option<TaskId>,
    pub fence: Option<i64>,
    pub role: String,
    pub worker: Option<String>,
    pub command: String,
    pub from: Option<String>,
    pub to: Option<String>,
    pub from_execution: Option<String>,
    pub to_execution: Option<String>,
    pub failure: Option<String>,
    pub note: Option<String>,
}

const STAGES: &str = "
SELECT s.name, s.phase, s.kind, s.tasks, s.open, s.failed, s.is_expanded, s.is_released, s.is_optional,
       (SELECT count(*) FROM task t WHERE t.id BETWEEN $2 AND $3 AND t.stage = s.position AND t.state = 'RUNNING')
           AS running
FROM stage s WHERE s.job_id = $1 ORDER BY s.position";

const TASKS: &str = "
SELECT t.id, s.name, t.segment, t.state, t.attempts, t.max_attempts, t.failure, t.due_at, t.updated_at, t.permille
FROM task t
JOIN stage s ON s.job_id = $1 AND s.position = t.stage
WHERE t.id BETWEEN $2 AND $3
ORDER BY t.id LIMIT $4";

const PLANS: &str = "
SELECT j.id, j.plan
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id
WHERE j.plan IS NOT NULL";

const RUNS: &str = "
SELECT r.job_id, t.segment / r.length AS number,
       count(DISTINCT CASE WHEN t.state = 'DONE' THEN t.segment END) AS done,
       count(CASE WHEN t.state = 'RUNNING' THEN 1 END) AS running,
       CAST(coalesce(sum(CASE WHEN t.state = 'RUNNING' THEN t.permille END), 0) AS BIGINT) AS permille,
       count(CASE WHEN t.state = 'ERROR' AND t.due_at IS NULL THEN 1 END) AS failed,
       max(CASE WHEN t.state = 'ERROR' AND t.due_at IS NULL THEN
           (SELECT e.error FROM execution_aborted e WHERE e.task_id = t.id AND e.fence = t.fence) END) AS error
FROM json_to_recordset($2::json) AS r(job_id BIGINT, length BIGINT)
JOIN stage s ON s.job_id = r.job_id AND s.name = $1
JOIN task t ON t.id BETWEEN r.job_id * 1048576 AND r.job_id * 1048576 + 1048575 AND t.stage = s.position
GROUP BY r.job_id, t.segment / r.length";

const EXECUTIONS: &str = "
SELECT task_id, fence, token, worker_id, status, leased_at, started_at, committed_at, finished_at, lease_expires_at,
       failure, error, wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out
FROM execution WHERE task_id BETWEEN $1 AND $2
ORDER BY task_id, fence LIMIT $3";

const STEPS: &str = "
SELECT at, task_id, fence, token, kind, command, exit_code, signal, stdout_tail, stderr_tail, duration_ms, is_success, error
FROM execution_step WHERE task_id BETWEEN $1 AND $2
ORDER BY id LIMIT $3";

const LOGS: &str = "
SELECT id, at, level, stage, message FROM job_log
WHERE job_id = $1 AND (xact > $2 OR (xact = $2 AND id > $3)) AND xact < $4 AND ($5 IS NULL OR stage = $5)
  AND CASE level WHEN 'debug' THEN 0 WHEN 'info' THEN 1 WHEN 'warn' THEN 2 ELSE 3 END >= $6
ORDER BY xact, id LIMIT $7";

/// The transaction of the last line that a reader has seen, or of one before it if that was dropped since.
const SEEN: &str = "SELECT xact FROM job_log WHERE job_id = $1 AND id <= $2 ORDER BY id DESC LIMIT 1";

/// How far a clock may have been set back since a job was created, for its audit still to be found.
const SKEW: Millis = Millis::from_secs(86_400);

/// A job's audit begins with its creation, give or take: the time narrows the partitions.
const AUDIT: &str = "
SELECT at, task_id, tasks, fence, role, worker_id, command, from_state, to_state, from_execution, to_execution, failure, note
FROM audit WHERE job_id = $1 AND at >= $2
ORDER BY at, id LIMIT $3";

type TaskRow = (i64, String, i64, String, i64, i64, Option<String>, Option<i64>, i64, Option<i64>);

row! {
    struct RunRow {
        job_id: i64,
        number: i64,
        done: i64,
        running: i64,
        permille: i64,
        failed: i64,
        error: Option<String>,
    }
}

row! {
    struct ExecutionRow {
        task_id: i64,
        fence: i64,
        token: Option<i64>,
        worker_id: String,
        status: String,
        leased_at: i64,
        started_at: Option<i64>,
        committed_at: Option<i64>,
        finished_at: Option<i64>,
        lease_expires_at: i64,
        failure: Option<String>,
        error: Option<String>,
        wall_ms: Option<i64>,
        cpu_ms: Option<i64>,
        peak_memory_bytes: Option<i64>,
        bytes_in: Option<i64>,
        bytes_out: Option<i64>,
    }
}

row! {
    struct StepRow {
        at: i64,
        task_id: i64,
        fence: i64,
        token: Option<i64>,
        kind: String,
        command: String,
        exit_code: Option<i64>,
        signal: Option<i64>,
        stdout_tail: String,
        stderr_tail: String,
        duration_ms: i64,
        is_success: bool,
        error: Option<String>,
    }
}

row! {
    #[derive(Clone)]
    struct AuditRow {
        at: i64,
        task_id: Option<i64>,
        tasks: i64,
        fence: Option<i64>,
        role: String,
        worker_id: Option<String>,
        command: String,
        from_state: Option<String>,
        to_state: Option<String>,
        from_execution: Option<String>,
        to_execution: Option<String>,
        failure: Option<String>,
        note: Option<String>,
    }
}

impl Store {
    /// What was committed as the plans of these jobs, as JSON. One that has no plan yet is left out.
    pub async fn plans_of(&self, jobs: &[JobId]) -> Result<Vec<(JobId, String)>> {
        let rows: Vec<(i64, String)> =
            self.db.look().await?.query(PLANS).ids(jobs.iter().map(|job| job.0)).all().await?;
        Ok(rows.into_iter().map(|(job, plan)| (JobId(job), plan)).collect())
    }

    /// How far the tasks of this stage are in each job, by runs of so many segments.
    pub async fn runs_of(&self, stage: &str, lengths: &[(JobId, i64)]) -> Result<Vec<Run>> {
        #[derive(Serialize)]
        struct Key {
            job_id: i64,
            length: i64,
        }
        let keys = lengths.iter().map(|&(job, length)| Key { job_id: job.0, length: length.max(1) });
        let rows: Vec<RunRow> =
            self.db.look().await?.query(RUNS).bind(stage).rows(&keys.collect::<Vec<_>>()).all().await?;
        Ok(rows.into_iter().map(Run::from).collect())
    }

    pub async fn stages_of_job(&self, job: JobId) -> Result<Vec<StageView>> {
        let (first, last) = TaskId::range(job);
        let mut tx = self.db.read().await?;
        let stages: Vec<StageView> = tx.query(STAGES).bind(job).bind(first).bind(last).all().await?;
        if stages.is_empty() { Err(Error::NotFound("job")) } else { Ok(stages) }
    }

    pub async fn tasks_of_job(&self, job: JobId) -> Result<Vec<TaskView>> {
        let (first, last) = TaskId::range(job);
        let mut tx = self.db.read().await?;
        let rows: Vec<TaskRow> =
            tx.query(TASKS).bind(job).bind(first).bind(last).bind(MAX_ROWS).all().await?;
        let task =
            |(id, stage, segment, state, attempts, max_attempts, failure, due_at, updated_at, permille)| {
                let id = TaskId(id);
                TaskView {
                    id,
                    stage,
                    segment,
                    state,
                    attempts,
                    max_attempts,
                    failure,
                    due_at,
                    updated_at,
                    permille,
                }
            };
        Ok(rows.into_iter().map(task).collect())
    }

    pub async fn executions_of_job(&self, job: JobId) -> Result<Vec<ExecutionView>> {
        let (first, last) = TaskId::range(job);
        let mut tx = self.db.read().await?;
        let rows: Vec<ExecutionRow> =
            tx.query(EXECUTIONS).bind(first).bind(last).bind(MAX_ROWS).all().await?;
        Ok(rows.into_iter().map(ExecutionView::from).collect())
    }

    pub async fn steps_of_job(&self, job: JobId) -> Result<Vec<StepView>> {
        let (first, last) = TaskId::range(job);
        let mut tx = self.db.read().await?;
        let rows: Vec<StepRow> = tx.query(STEPS).bind(first).bind(last).bind(MAX_ROWS).all().await?;
        Ok(rows.into_iter().map(StepView::from).collect())
    }

    /// Lines of its log, oldest first.
    pub async fn logs_of_job(&self, job: JobId, filter: &log::Filter) -> Result<Vec<LogView>> {
        let mut tx = self.db.read().await?;
        let end = if filter.is_settled { cursor::settled(&mut tx).await? } else { i64::MAX };
        let seen: Option<(i64,)> = tx.query(SEEN).bind(job).bind(filter.after).optional().await?;
        let lines = tx.query(LOGS).bind(job).bind(seen.map_or(0, |(xact,)| xact)).bind(filter.after);
        lines.bind(end).bind(filter.stage.clone()).bind(filter.level as i64).bind(MAX_ROWS).all().await
    }

    pub async fn audit_of_job(&self, job: JobId) -> Result<Vec<AuditView>> {
        let since = Millis(self.job(job).await?.created_at) - SKEW;
        let mut tx = self.db.read().await?;
        let rows: Vec<AuditRow> = tx.query(AUDIT).bind(job).bind(since).bind(MAX_ROWS).all().await?;
        let each = rows.into_iter().flat_map(AuditRow::each).map(AuditView::from);
        Ok(each.flat_map(AuditView::moves).take(MAX_ROWS as usize).collect())
    }
}

fn execution(task: i64, fence: i64, token: Option<i64>) -> ExecutionName {
    ExecutionName { task: TaskId(task), fence: Fence(fence), token: token.map(Token) }
}

impl From<RunRow> for Run {
    fn from(row: RunRow) -> Self {
        Run {
            job: JobId(row.job_id),
            number: row.number,
            done: row.done,
            is_running: row.running > 0,
            running_permille: row.permille,
            has_failed: row.failed > 0,
            error: row.error,
        }
    }
}

impl From<ExecutionRow> for ExecutionView {
    fn from(row: ExecutionRow) -> Self {
        ExecutionView {
            id: execution(row.task_id, row.fence, row.token),
            worker: row.worker_id,
            status: row.status,
            leased_at: row.leased_at,
            started_at: row.started_at,
            committed_at: row.committed_at,
            finished_at: row.finished_at,
            lease_expires_at: row.lease_expires_at,
            failure: row.failure,
            error: row.error,
            wall_ms: row.wall_ms,
            cpu_ms: row.cpu_ms,
            peak_memory_bytes: row.peak_memory_bytes,
            bytes_in: row.bytes_in,
            bytes_out: row.bytes_out,
        }
    }
}

impl From<StepRow> for StepView {
    fn from(row: StepRow) -> Self {
        StepView {
            at: row.at,
            execution: execution(row.task_id, row.fence, row.token),
            kind: row.kind,
            command: row.command,
            exit_code: row.exit_code,
            signal: row.signal,
            stdout_tail: row.stdout_tail,
            stderr_tail: row.stderr_tail,
            duration_ms: row.duration_ms,
            is_success: row.is_success,
            error: row.error,
        }
    }
}

impl AuditRow {
    /// The row for each of the tasks that it speaks for.
    fn each(self) -> impl Iterator<Item = AuditRow> {
        (0..self.tasks)
            .map(move |nth| AuditRow { task_id: self.task_id.map(|first| first + nth), ..self.clone() })
    }
}

impl From<AuditRow> for AuditView {
    fn from(row: AuditRow) -> Self {
        AuditView {
            at: row.at,
            task: row.task_id.map(TaskId),
            fence: row.fence,
            role: row.role,
            worker: row.worker_id,
            command: row.command,
            from: row.from_state,
            to: row.to_state,
            from_execution: row.from_execution,
            to_execution: row.to_execution,
            failure: row.failure,
            note: row.note,
        }
    }
}

impl AuditView {
    /// The moves that a row stands for: a commit's may tell of the start before it and the settling after it.
    fn moves(mut self) -> impl Iterator<Item = AuditView> {
        let is = |status: &Option<String>, it: Status| status.as_deref() == Some(it.as_str());
        let is_commit = self.command == COMMIT;
        let has_begun = is_commit && is(&self.from_execution, Status::Leased);
        let is_settled = is_commit && is(&self.to_execution, Status::Done);
        let started = has_begun.then(|| {
            let begun = self.from_execution.replace(Status::InProgress.to_string());
            AuditView {
                command: START.into(),
                to: self.from.clone(),
                from_execution: begun,
                to_execution: self.from_execution.clone(),
                note: None,
                ..self.clone()
            }
        });
        let settled = is_settled.then(|| {
            let done = self.to_execution.replace(Status::Committed.to_string());
            AuditView {
                role: Role::Orchestrator.to_string(),
                worker: None,
                command: SETTLE.into(),
                from: self.to.clone(),
                from_execution: self.to_execution.clone(),
                to_execution: done,
                note: None,
                ..self.clone()
            }
        });
        started.into_iter().chain([self]).chain(settled)
    }
}
