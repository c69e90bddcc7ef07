//! Jobs: their rows, their derived state, and the views people ask for.

use crate::Store;
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::from_row::row;
use crate::settle::Ending;
use rules::backoff::Backoff;
use rules::job::{Facts, Outcome, Phase, State, derive};
use rules::{JobId, Millis, TaskId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use telemetry::metrics::{JOB_DURATION, JOBS_COMPLETED};

row! {
    /// What the orchestrator needs of a job; loading it locks it.
    #[derive(Debug, Clone)]
    pub(crate) struct JobRow {
        pub id: i64,
        pub priority: i64,
        pub max_attempts: i64,
        pub outcome: Option<String>,
        pub version: i64,
    }
}

impl JobRow {
    pub fn is_open(&self) -> bool {
        self.outcome.is_none()
    }
}

const LOCK_FREE: &str = "
SELECT j.id, j.priority, j.max_attempts, j.outcome, j.version
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id
ORDER BY j.id
FOR UPDATE OF j SKIP LOCKED";

const LOCK_ONE: &str = "
SELECT id, priority, max_attempts, outcome, version FROM job WHERE id = $1
FOR UPDATE";

/// Locks those of these jobs that nobody else is busy with.
pub(crate) async fn lock_free(
    tx: &mut Tx,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<HashMap<JobId, JobRow>> {
    let jobs: BTreeSet<i64> = jobs.into_iter().map(|job| job.0).collect();
    let rows: Vec<JobRow> = tx.query(LOCK_FREE).ids(jobs).all().await?;
    Ok(rows.into_iter().map(|row| (JobId(row.id), row)).collect())
}

/// Locks one job, of the version the caller has seen where it says one.
pub(crate) async fn lock_one(tx: &mut Tx, id: JobId, version: Option<i64>) -> Result<JobRow> {
    let Some(row) = tx.query(LOCK_ONE).bind(id).optional::<JobRow>().await? else {
        let archived = crate::archive::archived(tx, id).await?;
        return Err(archived.map_or(Error::NotFound("job"), |_| Error::Archived(id)));
    };
    match version {
        Some(expected) if expected != row.version => {
            Err(Error::VersionMismatch { expected, found: row.version })
        }
        _ => Ok(row),
    }
}

/// No job ends before it began, also when the clock was set back meanwhile.
const SET_OUTCOMES: &str = "
UPDATE job SET outcome = r.outcome, error = r.reason,
    ended_at = CASE WHEN created_at > $1 THEN created_at ELSE $1 END, updated_at = $1, version = version + 1
FROM json_to_recordset($2::json) AS r(job_id BIGINT, outcome TEXT, reason TEXT)
WHERE id = r.job_id
RETURNING id, ended_at - created_at";

#[derive(Serialize)]
struct SavedOutcome<'a> {
    job_id: i64,
    outcome: &'static str,
    reason: Option<&'a str>,
}

impl<'a> SavedOutcome<'a> {
    fn new(ending: &'a Ending) -> Self {
        SavedOutcome {
            job_id: ending.job.0,
            outcome: ending.outcome.as_str(),
            reason: ending.reason.as_deref(),
        }
    }
}

/// Writes how jobs ended, which must be locked and open.
pub(crate) async fn set_outcomes(tx: &mut Tx, endings: &[Ending]) -> Result<()> {
    if endings.is_empty() {
        return Ok(());
    }
    let rows: Vec<SavedOutcome> = endings.iter().map(SavedOutcome::new).collect();
    let now = tx.now();
    let ended: Vec<(i64, i64)> = tx.query(SET_OUTCOMES).bind(now).rows(&rows).all().await?;
    let outcomes: HashMap<i64, Outcome> =
        endings.iter().map(|ending| (ending.job.0, ending.outcome)).collect();
    for (job, took) in ended {
        if let Some(outcome) = outcomes.get(&job).map(|outcome| outcome.as_str()) {
            tx.once_committed(move || {
                JOBS_COMPLETED.count([outcome]);
                JOB_DURATION.observe([outcome], took as f64 / 1000.0);
            });
        }
    }
    Ok(())
}

/// Why the last execution of a task ended.
pub(crate) async fn last_error(tx: &mut Tx, task: TaskId) -> Result<String> {
    const LAST_ERROR: &str = "
SELECT error FROM execution_aborted WHERE task_id = $1 AND error IS NOT NULL ORDER BY fence DESC LIMIT 1";
    let error: Option<(String,)> = tx.query(LAST_ERROR).bind(task).optional().await?;
    Ok(error.map_or_else(|| "no reason was recorded".into(), |(error,)| error))
}

const POLICIES: &str = "
SELECT j.id, j.backoff_initial_ms, j.backoff_max_ms
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN job j ON j.id = r.id";

pub(crate) async fn retry_policies(
    tx: &mut Tx,
    jobs: impl IntoIterator<Item = JobId>,
) -> Result<HashMap<JobId, Backoff>> {
    let jobs: BTreeSet<i64> = jobs.into_iter().map(|job| job.0).collect();
    let rows: Vec<(i64, i64, i64)> = tx.query(POLICIES).ids(jobs).all().await?;
    let policy = |(id, initial, max)| (JobId(id), Backoff { initial: Millis(initial), max: Millis(max) });
    Ok(rows.into_iter().map(policy).collect())
}

/// The facts a job's state depends on, of many jobs at once.
const FACTS: &str = "
SELECT s.job_id, s.phase, s.is_optional, s.failed, s.is_expanded AND s.is_released AND s.open = 0 AS is_finished,
       s.tasks - s.open - CASE WHEN s.is_optional THEN s.failed ELSE 0 END AS settled
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN stage s ON s.job_id = r.id";

/// Of which something is leased, or committed and not settled. What is settled, stages count.
const BEGUN: &str = "
SELECT r.id FROM json_to_recordset($1::json) AS r(id BIGINT, first BIGINT, last BIGINT)
WHERE EXISTS (
    SELECT 1 FROM task t
    WHERE t.id BETWEEN r.first AND r.last AND t.leased_at IS NOT NULL AND t.committed_at IS NULL
) OR EXISTS (
    SELECT 1 FROM task t
    WHERE t.id BETWEEN r.first AND r.last AND t.committed_at IS NOT NULL AND t.finished_at IS NULL
)";

#[derive(Serialize)]
struct Range {
    id: i64,
    first: i64,
    last: i64,
}

row! {
    struct FactRow {
        job_id: i64,
        phase: String,
        is_optional: bool,
        failed: i64,
        is_finished: bool,
        settled: i64,
    }
}

/// Derives the state of jobs from their stages' counters and their executions.
pub(crate) async fn states_of(tx: &mut Tx, jobs: &[(JobId, bool)]) -> Result<HashMap<JobId, State>> {
    if jobs.is_empty() {
        return Ok(HashMap::new());
    }
    let range = |&(id, _): &(JobId, bool)| {
        let (first, last) = TaskId::range(id);
        Range { id: id.0, first: first.0, last: last.0 }
    };
    let begun: Vec<(i64,)> = tx.query(BEGUN).rows(&jobs.iter().map(range).collect::<Vec<_>>()).all().await?;
    let begun: BTreeSet<i64> = begun.into_iter().map(|(id,)| id).collect();
    let mut facts: HashMap<i64, Facts> = HashMap::new();
    for &(id, is_cancelled) in jobs {
        let has_begun = begun.contains(&id.0);
        facts.insert(id.0, Facts { is_cancelled, has_failed: false, has_begun, phase: None });
    }
    let stages: Vec<FactRow> = tx.query(FACTS).ids(jobs.iter().map(|(id, _)| id.0)).all().await?;
    for stage in stages {
        let Some(facts) = facts.get_mut(&stage.job_id) else { continue };
        facts.has_failed |= stage.failed > 0 && !stage.is_optional;
        facts.has_begun |= stage.settled > 0;
        if !stage.is_finished {
            let phase: Phase = stage.phase.parse()?;
            facts.phase = Some(facts.phase.map_or(phase, |earliest| earliest.min(phase)));
        }
    }
    Ok(facts.into_iter().map(|(id, facts)| (JobId(id), derive(facts))).collect())
}

/// The state of one job.
pub(crate) async fn state_of(tx: &mut Tx, id: JobId) -> Result<State> {
    const CANCELLED: &str = "SELECT outcome FROM job WHERE id = $1";
    let (outcome,): (Option<String>,) =
        tx.query(CANCELLED).bind(id).optional().await?.ok_or(Error::NotFound("job"))?;
    let is_cancelled = outcome.as_deref() == Some(Outcome::Cancelled.as_str());
    let states = states_of(tx, &[(id, is_cancelled)]).await?;
    states.get(&id).copied().ok_or(Error::NotFound("job"))
}

/// A job as people see it.
#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    #[schema(value_type = i64)]
    pub id: JobId,
    pub name: String,
    pub user: String,
    #[schema(value_type = String)]
    pub state: State,
    pub priority: i64,
    pub video: Option<i64>,
    pub version: i64,
    pub max_attempts: i64,
    pub tasks: i64,
    pub done: i64,
    pub error: Option<String>,
    pub idempotency_key: Option<String>,
    pub created_at: i64,
    pub updated_at: i64,
    pub ended_at: Option<i64>,
}

row! {
    struct ViewRow {
        id: i64,
        name: String,
        user_id: String,
        priority: i64,
        video_id: Option<i64>,
        version: i64,
        max_attempts: i64,
        tasks: i64,
        open: i64,
        outcome: Option<String>,
        error: Option<String>,
        idempotency_key: Option<String>,
        created_at: i64,
        updated_at: i64,
        ended_at: Option<i64>,
    }
}

/// `$outcome` is written into the text: only so can the index over open jobs serve.
macro_rules! view {
    ($outcome:literal) => {
        concat!(
            "
SELECT j.id, j.name, j.user_id, j.priority, j.video_id, j.version, j.max_attempts, j.outcome, j.error,
       j.idempotency_key, j.created_at, j.updated_at, j.ended_at,
       CAST((SELECT coalesce(sum(s.tasks), 0) FROM stage s WHERE s.job_id = j.id) AS BIGINT) AS tasks,
       CAST((SELECT coalesce(sum(s.open), 0) FROM stage s WHERE s.job_id = j.id) AS BIGINT) AS open
FROM job j
WHERE j.id <= $1 AND j.id >= $2 AND ($3 = '' OR j.user_id = $3) AND ",
            $outcome,
            "
ORDER BY j.id DESC LIMIT $4"
        )
    };
}

const VIEW: &str = view!("TRUE");
const VIEW_OPEN: &str = view!("j.outcome IS NULL");
const VIEW_ENDED: &str = view!("j.outcome IS NOT NULL");

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    pub user: Option<String>,
    pub state: Option<State>,
    /// Only jobs older than this one: the last of the page before.
    pub before: Option<JobId>,
    /// Default 50, at most 1000.
    pub limit: Option<i64>,
}

impl Store {
    /// Jobs, newest first.
    pub async fn jobs(&self, filter: &Filter) -> Result<Vec<Job>> {
        let limit = filter.limit.unwrap_or(50).clamp(1, 1000);
        let mut tx = self.db.read().await?;
        let mut below = filter.before.map_or(i64::MAX, |job| job.0.saturating_sub(1));
        let mut found = Vec::new();
        let sql = match filter.state {
            None => VIEW,
            Some(state) if state.is_final() => VIEW_ENDED,
            Some(_) => VIEW_OPEN,
        };
        // A state is derived, not stored: pages are read until enough of the wanted ones are found.
        loop {
            let page =
                view(&mut tx, sql, below, 0, filter.user.as_deref().unwrap_or(""), limit.max(200)).await?;
            let Some(last) = page.last() else { break };
            below = last.id.0 - 1;
            found.extend(page.into_iter().filter(|job| filter.state.is_none_or(|state| job.state == state)));
            if found.len() as i64 >= limit {
                break;
            }
        }
        found.truncate(limit as usize);
        Ok(found)
    }

    /// One job; an archived one as it ended.
    pub async fn job(&self, id: JobId) -> Result<Job> {
        let mut tx = self.db.read().await?;
        match one(&mut tx, id).await {
            Err(Error::NotFound(_)) => {
                crate::archive::archived(&mut tx, id).await?.ok_or(Error::NotFound("job"))
            }
            found => found,
        }
    }

    /// Whether nothing is left to do: every job has ended, and every effect is delivered. Alerts
    /// are not counted: their receiver may be away for a day.
    pub async fn is_idle(&self) -> Result<bool> {
        const OPEN: &str = "SELECT id FROM job WHERE outcome IS NULL LIMIT 1";
        const UNDELIVERED: &str = "
SELECT id FROM outbox WHERE delivered_at IS NULL AND topic <> 'alert' LIMIT 1";
        let mut tx = self.db.read().await?;
        let open: Option<(i64,)> = tx.query(OPEN).optional().await?;
        let undelivered: Option<(i64,)> = tx.query(UNDELIVERED).optional().await?;
        Ok(open.is_none() && undelivered.is_none())
    }
}

/// One job that is not archived.
pub(crate) async fn one(tx: &mut Tx, id: JobId) -> Result<Job> {
    view(tx, VIEW, id.0, id.0, "", 1).await?.pop().ok_or(Error::NotFound("job"))
}

async fn view(
    tx: &mut Tx,
    sql: &'static str,
    to: i64,
    from: i64,
    user: &str,
    limit: i64,
) -> Result<Vec<Job>> {
    let rows: Vec<ViewRow> = tx.query(sql).bind(to).bind(from).bind(user).bind(limit).all().await?;
    let cancelled = |row: &ViewRow| row.outcome.as_deref() == Some(Outcome::Cancelled.as_str());
    let ids: Vec<(JobId, bool)> = rows.iter().map(|row| (JobId(row.id), cancelled(row))).collect();
    let states = states_of(tx, &ids).await?;
    let job = |row: ViewRow| Job {
        id: JobId(row.id),
        state: states.get(&JobId(row.id)).copied().unwrap_or(State::Pending),
        name: row.name,
        user: row.user_id,
        priority: row.priority,
        video: row.video_id,
        version: row.version,
        max_attempts: row.max_attempts,
        tasks: row.tasks,
        done: row.tasks - row.open,
        error: row.error,
        idempotency_key: row.idempotency_key,
        created_at: row.created_at,
        updated_at: row.updated_at,
        ended_at: row.ended_at,
    };
    Ok(rows.into_iter().map(job).collect())
}
