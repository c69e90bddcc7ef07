//! Claiming: a short transaction that leases tasks; the expensive work is outside it.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::from_row::row;
use crate::lane;
use crate::moves::{Moves, Words};
use crate::queue;
use crate::results::Reading;
use crate::task::{Loaded, ReadyRow};
use rules::lease::Terms;
use rules::task::Command;
use rules::{JobId, Millis, TaskId, Token, WorkerId};
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::time::Instant;
use telemetry::metrics::{CLAIM_DURATION, TASK_WAIT};
use wire::{Assignment, Proof};

/// How many tasks one claim may take.
pub const MAX_BATCH: u32 = 1000;

const WORK: &str = "
SELECT s.job_id, s.position, s.name, s.kind, s.payload, s.reads, s.timeout_ms, s.stall_ms,
       s.expands IS NOT NULL AS has_inputs, j.priority, j.traceparent
FROM json_to_recordset($1::json) AS r(job_id BIGINT, position BIGINT)
JOIN stage s ON s.job_id = r.job_id AND s.position = r.position
JOIN job j ON j.id = r.job_id";

const INPUTS: &str = "
SELECT i.task_id, i.input
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task_input i ON i.task_id = r.id";

/// A field of what a plan says of a task: by how many milliseconds its stage's `timeout_ms` is extended.
const EXTRA_MS: &str = "extra_ms";

/// Ninety days.
const MOST_EXTRA_MS: i64 = 90 * 86_400_000;

/// Whoever claims within slots does so alone, or two would both fill the last.
const LOCK_SLOTS: &str = "SELECT slots FROM worker WHERE id = $1 FOR UPDATE";

const HELD: &str = "
SELECT count(*) FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL AND worker_id = $1";

#[derive(Serialize, PartialEq, Eq, Hash, Clone, Copy, PartialOrd, Ord)]
struct StageKey {
    job_id: i64,
    position: i64,
}

row! {
    #[derive(Clone)]
    struct WorkRow {
        job_id: i64,
        position: i64,
        name: String,
        kind: String,
        payload: String,
        reads: String,
        timeout_ms: Option<i64>,
        stall_ms: Option<i64>,
        has_inputs: bool,
        priority: i64,
        traceparent: Option<String>,
    }
}

/// What a claim came to.
#[derive(Default)]
struct Claimed {
    assignments: Vec<Assignment>,
    /// Which of their stages read others: what they read is fetched when the leases are safe.
    reading: Vec<Reading>,
    /// How long each of the tasks had been READY, and its priority.
    waits: Vec<(i64, Millis)>,
}

impl Store {
    /// Leases up to `max` READY tasks to `worker`: priority 10 first, then of whoever has least running, then the oldest.
    pub async fn claim(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>> {
        self.claim_up_to(worker, max, false).await
    }

    /// As [`Store::claim`], of a worker that is not trusted to know its measure: with what it holds, no more than it
    /// declared slots.
    pub async fn claim_within_slots(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>> {
        self.claim_up_to(worker, max, true).await
    }

    async fn claim_up_to(
        &self,
        worker: WorkerId,
        max: u32,
        is_within_slots: bool,
    ) -> Result<Vec<Assignment>> {
        let begun = Instant::now();
        let Claimed { mut assignments, reading, waits } =
            again(|| self.claim_once(worker, max.min(MAX_BATCH), is_within_slots)).await?;
        CLAIM_DURATION.observe([], begun.elapsed().as_secs_f64());
        for (priority, waited) in waits {
            TASK_WAIT.observe([&priority.to_string()], waited.0.max(0) as f64 / 1000.0);
        }
        self.wake.looked(assignments.len());
        if !reading.is_empty() {
            let results = self.results(&reading).await?;
            for assignment in &mut assignments {
                let found = results.get(&(assignment.job, assignment.stage.clone()));
                assignment.results = found.cloned().unwrap_or_default();
            }
        }
        Ok(assignments)
    }

    async fn claim_once(&self, worker: WorkerId, max: u32, is_within_slots: bool) -> Result<Claimed> {
        let mut tx = self.db.write(Step::Claim).await?;
        let queues = lane::open_to(&mut tx, worker, self.options.heartbeat_interval).await?;
        let max = match is_within_slots && !queues.is_empty() {
            true => free_slots(&mut tx, worker).await?.min(max.into()),
            false => max.into(),
        };
        if max <= 0 {
            return Ok(Claimed::default());
        }
        let limit = self.options.max_running_per_user;
        let rows = queue::take(&mut tx, worker, &queues, max, limit).await?;
        if rows.is_empty() {
            return Ok(Claimed::default());
        }
        let work = stages_of(&mut tx, &rows).await?;
        let inputs = inputs_of(&mut tx, &rows, &work).await?;

        let mut moves = Moves::new(tx.now());
        let (mut assignments, mut waits) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        // One for all of them: it only has to differ from that of any other claim of the same task.
        let token = Token(rand::random_range(1..i64::MAX));
        for row in rows {
            let Some(stage) = work.get(&key(&row)) else { continue };
            let mut loaded = row.loaded();
            let input = inputs.get(&loaded.id.0).map(|input| serde_json::from_str(input)).transpose()?;
            let timeout_ms = stage.timeout_ms(input.as_ref());
            let claim = Command::Claim { worker, token, terms: self.terms(stage, timeout_ms, tx.now()) };
            if moves.make(&mut loaded, &claim, Words::default()).is_ok() {
                let given = (input, timeout_ms);
                assignments.push(self.assignment(&loaded, worker, token, stage, given)?);
                waits.push((stage.priority, tx.now() - Millis(row.queued_at)));
            }
        }
        moves.save(&mut tx).await?;
        tx.commit().await?;
        let reading = work.values().map(WorkRow::reading).collect::<Result<Vec<_>>>()?;
        let reading = reading.into_iter().filter(|stage| !stage.reads.is_empty()).collect();
        Ok(Claimed { assignments, reading, waits })
    }

    /// Whether a claim by `worker` would find anything now. Takes no lock.
    pub async fn has_work(&self, worker: WorkerId) -> Result<bool> {
        let mut tx = self.db.look().await?;
        let queues = lane::open_to(&mut tx, worker, self.options.heartbeat_interval).await?;
        let has_any = queue::has_any(&mut tx, worker, &queues, self.options.max_running_per_user).await?;
        if !has_any {
            self.wake.looked(0);
        }
        Ok(has_any)
    }

    fn terms(&self, stage: &WorkRow, timeout_ms: Option<i64>, now: Millis) -> Terms {
        Terms {
            length: self.options.lease,
            stall: stage.stall_ms.map(Millis),
            // The worker stops at the timeout; what is left of this it has for saying so.
            deadline: timeout_ms.map(|timeout| now + Millis(timeout) + self.options.lease),
        }
    }

    fn assignment(
        &self,
        loaded: &Loaded,
        worker: WorkerId,
        token: Token,
        stage: &WorkRow,
        (input, timeout_ms): (Option<Value>, Option<i64>),
    ) -> Result<Assignment> {
        Ok(Assignment {
            proof: Proof { task: loaded.id, fence: loaded.task.fence, token, worker },
            job: JobId(stage.job_id),
            stage: stage.name.clone(),
            kind: stage.kind.clone(),
            payload: serde_json::from_str(&stage.payload)?,
            segment: loaded.segment,
            input,
            results: BTreeMap::new(),
            attempt: loaded.task.attempts,
            max_attempts: loaded.task.max_attempts,
            lease_ms: self.options.lease.0,
            timeout_ms,
            stall_ms: stage.stall_ms,
            traceparent: stage.traceparent.clone(),
        })
    }
}

impl WorkRow {
    /// How long an execution may take: the plan adds time for the size of each task.
    fn timeout_ms(&self, input: Option<&Value>) -> Option<i64> {
        let extra = input.and_then(|input| input.get(EXTRA_MS)?.as_i64()).unwrap_or(0);
        self.timeout_ms.map(|timeout| timeout.saturating_add(extra.clamp(0, MOST_EXTRA_MS)))
    }

    fn reading(&self) -> Result<Reading> {
        let reads = serde_json::from_str(&self.reads)?;
        Ok(Reading { job: JobId(self.job_id), stage: self.name.clone(), reads })
    }
}

async fn free_slots(tx: &mut Tx, worker: WorkerId) -> Result<i64> {
    let (slots,): (i64,) = tx.query(LOCK_SLOTS).bind(worker).one().await?;
    let (held,): (i64,) = tx.query(HELD).bind(worker).one().await?;
    Ok(slots - held)
}

async fn stages_of(tx: &mut Tx, rows: &[ReadyRow]) -> Result<HashMap<StageKey, WorkRow>> {
    let mut keys: Vec<StageKey> = rows.iter().map(key).collect();
    keys.sort();
    keys.dedup();
    let stages: Vec<WorkRow> = tx.query(WORK).rows(&keys).all().await?;
    let keyed = |stage: WorkRow| (StageKey { job_id: stage.job_id, position: stage.position }, stage);
    Ok(stages.into_iter().map(keyed).collect())
}

/// What plans say of these tasks. Only tasks of expanded stages have it.
async fn inputs_of(
    tx: &mut Tx,
    rows: &[ReadyRow],
    work: &HashMap<StageKey, WorkRow>,
) -> Result<HashMap<i64, String>> {
    let has_input = |row: &&ReadyRow| work.get(&key(row)).is_some_and(|stage| stage.has_inputs);
    let ids: Vec<i64> = rows.iter().filter(has_input).map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(HashMap::new());
    }
    let inputs: Vec<(i64, String)> = tx.query(INPUTS).ids(ids).all().await?;
    Ok(inputs.into_iter().collect())
}

fn key(row: &ReadyRow) -> StageKey {
    StageKey { job_id: TaskId(row.id).job().0, position: row.stage }
}
