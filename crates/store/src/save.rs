//! Saving what the rules decided: a handful of statements, however many tasks moved.
//!
//! Each compares what it was decided on: a task that was read without a lock, and has been moved since, is left as it is,
//! and the transaction begins again.

use crate::db::Tx;
use crate::error::{Error, Result};
use crate::moves::Joined;
use crate::rows;
use crate::task::NewTask;
use rules::execution::Status;
use rules::lease::Lease;
use rules::task::{Next, State};
use rules::{Millis, TaskId, WorkerId};
use serde::Serialize;
use std::collections::BTreeMap;
use wire::Usage;

/// Inserts tasks as their moves left them.
pub(crate) async fn insert(
    tx: &mut Tx,
    added: &BTreeMap<TaskId, NewTask>,
    moved: &[Joined<'_>],
    now: Millis,
) -> Result<()> {
    let moved = |id| moved.binary_search_by_key(&id, |one| one.id).ok().map(|at| &moved[at]);
    let mut rows = added.iter().map(|(&id, new)| Added::new(new, moved(id)));
    loop {
        let batch: Vec<Added> = rows.by_ref().take(5000).collect();
        if batch.is_empty() {
            return Ok(());
        }
        tx.query(INSERT).rows(&batch).bind(now).execute().await?;
    }
}

/// Saves tasks that were there before.
pub(crate) async fn update(tx: &mut Tx, moved: &[Joined<'_>], now: Millis) -> Result<()> {
    let (mut claims, mut leases, mut commits) = (Vec::new(), Vec::new(), Vec::new());
    let (mut settled, mut aborted, mut others) = (Vec::new(), Vec::new(), Vec::new());
    for one in moved {
        match (&one.before.state, &one.after.state) {
            (State::Running { .. }, State::Running { lease, execution }) => {
                leases.push(Leased::new(one, lease, *execution, now));
            }
            (_, State::Running { lease, .. }) => claims.push(Claimed::new(one, lease)),
            (State::Done { .. }, State::Done { .. }) => settled.push(one.id.0),
            (_, State::Done { execution, .. }) => commits.push(Committed::new(one, *execution, now)),
            (_, State::New | State::Ready { .. } | State::Error { .. }) => {
                aborted.extend(one.failure.map(|kind| Aborted::new(one, kind.as_str(), now)));
                others.push(Other::new(one, now));
            }
        }
    }
    for alike in alike(&mut claims, |one: &Claimed| (one.fence, one.attempts)) {
        saved(alike.len(), tx.query(CLAIM).rows(alike).bind(now).execute().await?)?;
    }
    if !leases.is_empty() {
        saved(leases.len(), tx.query(LEASE).rows(&leases).execute().await?)?;
    }
    for alike in alike(&mut commits, |one: &Committed| (one.status, one.was_status)) {
        saved(alike.len(), tx.query(COMMIT).rows(alike).bind(now).execute().await?)?;
    }
    if !settled.is_empty() {
        saved(settled.len(), tx.query(SETTLE).ids(settled.iter().copied()).bind(now).execute().await?)?;
    }
    if !aborted.is_empty() {
        saved(aborted.len(), tx.query(ABORT).rows(&aborted).bind(now).execute().await?)?;
    }
    if !others.is_empty() {
        saved(others.len(), tx.query(OTHER).rows(&others).bind(now).execute().await?)?;
    }
    Ok(())
}

fn saved(moved: usize, rows: u64) -> Result<()> {
    if rows == moved as u64 { Ok(()) } else { Err(Error::moved_meanwhile()) }
}

/// Rows that are alike are saved by their keys alone; of few, all at once.
fn alike<'a, T, K: Ord>(rows: &'a mut [T], key: impl Fn(&T) -> K + 'a) -> impl Iterator<Item = &'a [T]> {
    let is_many = rows.len() >= rows::MANY;
    if is_many {
        rows.sort_by_key(&key);
    }
    rows.chunk_by(move |one, next| !is_many || key(one) == key(next))
}

const INSERT: &str = "
INSERT INTO task (id, stage, segment, state, lane_id, owner_id, priority, fence, attempts, max_attempts, queued_at,
                  updated_at)
SELECT r.id, r.stage, r.segment, r.state, r.lane_id, r.owner_id, r.priority, 0, 0, r.max_attempts, r.queued_at, $2
FROM json_to_recordset($1::json) AS r(id BIGINT, stage BIGINT, segment BIGINT, state TEXT, lane_id BIGINT,
     owner_id BIGINT, priority BIGINT, max_attempts BIGINT, queued_at BIGINT)";

const CLAIM: &str = "
UPDATE task AS t
SET state = 'RUNNING', fence = r.fence, attempts = r.attempts, queued_at = NULL, updated_at = $2, status = 'LEASED',
    token = r.token, worker_id = r.worker_id, lease_expires_at = r.lease_expires_at, progress = r.progress,
    progressed_at = r.progressed_at, stall_ms = r.stall_ms, deadline_at = r.deadline_at, leased_at = $2
FROM json_to_recordset($1::json) AS r(id BIGINT, fence BIGINT, attempts BIGINT, token BIGINT, worker_id TEXT,
     lease_expires_at BIGINT, progress BIGINT, progressed_at BIGINT, stall_ms BIGINT, deadline_at BIGINT)
WHERE t.id = r.id AND t.state = 'READY' AND t.fence = r.fence - 1";

const LEASE: &str = "
UPDATE task AS t
SET status = r.status, lease_expires_at = r.lease_expires_at, progress = r.progress, progressed_at = r.progressed_at,
    started_at = coalesce(t.started_at, r.started_at), step = coalesce(r.step, t.step),
    permille = coalesce(r.permille, t.permille), kept = coalesce(r.kept, t.kept),
    kept_fence = CASE WHEN r.kept IS NULL THEN t.kept_fence ELSE r.fence END
FROM json_to_recordset($1::json) AS r(id BIGINT, fence BIGINT, status TEXT, lease_expires_at BIGINT, progress BIGINT,
     progressed_at BIGINT, started_at BIGINT, step TEXT, permille BIGINT, kept BIGINT, was_status TEXT)
WHERE t.id = r.id AND t.fence = r.fence AND t.status = r.was_status";

const COMMIT: &str = "
UPDATE task AS t
SET state = 'DONE', updated_at = $2, status = r.status, started_at = coalesce(t.started_at, r.started_at),
    committed_at = $2, finished_at = r.finished_at, result = r.result, wall_ms = r.wall_ms, cpu_ms = r.cpu_ms,
    peak_memory_bytes = r.peak_memory_bytes, bytes_in = r.bytes_in, bytes_out = r.bytes_out
FROM json_to_recordset($1::json) AS r(id BIGINT, fence BIGINT, status TEXT, started_at BIGINT, finished_at BIGINT,
     result TEXT, wall_ms BIGINT, cpu_ms BIGINT, peak_memory_bytes BIGINT, bytes_in BIGINT, bytes_out BIGINT,
     was_status TEXT)
WHERE t.id = r.id AND t.fence = r.fence AND t.status = r.was_status";

const SETTLE: &str = "
UPDATE task AS t
SET status = 'DONE', finished_at = $2
FROM json_to_recordset($1::json) AS r(id BIGINT)
WHERE t.id = r.id AND t.status = 'COMMITTED'";

/// Before [`OTHER`] clears what it copies.
const ABORT: &str = "
INSERT INTO execution_aborted (task_id, fence, token, worker_id, lease_expires_at, progress, progressed_at, stall_ms,
                               deadline_at, step, permille, leased_at, started_at, finished_at, failure, error, wall_ms,
                               cpu_ms, peak_memory_bytes, bytes_in, bytes_out)
SELECT t.id, t.fence, t.token, t.worker_id, t.lease_expires_at, t.progress, t.progressed_at, t.stall_ms, t.deadline_at,
       t.step, t.permille, t.leased_at, coalesce(t.started_at, r.started_at), $2, r.failure, r.error, r.wall_ms,
       r.cpu_ms, r.peak_memory_bytes, r.bytes_in, r.bytes_out
FROM json_to_recordset($1::json) AS r(id BIGINT, fence BIGINT, started_at BIGINT, failure TEXT, error TEXT,
     wall_ms BIGINT, cpu_ms BIGINT, peak_memory_bytes BIGINT, bytes_in BIGINT, bytes_out BIGINT)
JOIN task t ON t.id = r.id AND t.fence = r.fence AND t.state = 'RUNNING'";

/// To NEW, READY or ERROR: there no execution counts.
const OTHER: &str = "
UPDATE task AS t
SET state = r.state, attempts = r.attempts, queued_at = r.queued_at, due_at = r.due_at, failure = r.failure,
    updated_at = $2, status = NULL, token = NULL, worker_id = NULL, lease_expires_at = NULL, progress = NULL,
    progressed_at = NULL, stall_ms = NULL, deadline_at = NULL, step = NULL, permille = NULL, leased_at = NULL,
    started_at = NULL
FROM json_to_recordset($1::json) AS r(id BIGINT, fence BIGINT, state TEXT, attempts BIGINT, queued_at BIGINT,
     due_at BIGINT, failure TEXT, was_state TEXT, was_status TEXT)
WHERE t.id = r.id AND t.fence = r.fence AND t.state = r.was_state AND t.status IS NOT DISTINCT FROM r.was_status";

#[derive(Serialize)]
struct Added {
    id: i64,
    stage: i64,
    segment: i64,
    state: &'static str,
    lane_id: i64,
    owner_id: i64,
    priority: i64,
    max_attempts: i64,
    queued_at: Option<i64>,
}

impl Added {
    fn new(new: &NewTask, moved: Option<&Joined<'_>>) -> Self {
        let state = moved.map_or(&State::New, |moved| &moved.after.state);
        Added {
            id: new.id,
            stage: new.stage,
            segment: new.segment,
            state: state.name().as_str(),
            lane_id: new.lane_id,
            owner_id: new.owner_id,
            priority: new.priority,
            max_attempts: new.max_attempts,
            queued_at: queued_at(state),
        }
    }
}

#[derive(Serialize)]
struct Claimed {
    id: i64,
    fence: i64,
    attempts: i64,
    token: i64,
    worker_id: WorkerId,
    lease_expires_at: i64,
    progress: i64,
    progressed_at: i64,
    stall_ms: Option<i64>,
    deadline_at: Option<i64>,
}

impl Claimed {
    fn new(one: &Joined<'_>, lease: &Lease) -> Self {
        Claimed {
            id: one.id.0,
            fence: one.after.fence.0,
            attempts: one.after.attempts.into(),
            token: lease.token.0,
            worker_id: lease.worker,
            lease_expires_at: lease.expires_at.0,
            progress: lease.progress,
            progressed_at: lease.progressed_at.0,
            stall_ms: lease.terms.stall.map(|stall| stall.0),
            deadline_at: lease.terms.deadline.map(|deadline| deadline.0),
        }
    }
}

#[derive(Serialize)]
struct Leased<'a> {
    id: i64,
    fence: i64,
    status: &'static str,
    lease_expires_at: i64,
    progress: i64,
    progressed_at: i64,
    started_at: Option<i64>,
    step: Option<&'a str>,
    permille: Option<i64>,
    /// Where it is more than before.
    kept: Option<i64>,
    was_status: Option<&'static str>,
}

impl<'a> Leased<'a> {
    fn new(one: &Joined<'a>, lease: &Lease, execution: Status, now: Millis) -> Self {
        Leased {
            id: one.id.0,
            fence: one.after.fence.0,
            status: execution.as_str(),
            lease_expires_at: lease.expires_at.0,
            progress: lease.progress,
            progressed_at: lease.progressed_at.0,
            started_at: one.is_begun.then_some(now.0),
            step: one.step,
            permille: one.permille,
            kept: (one.after.kept > one.before.kept).then_some(one.after.kept),
            was_status: was_status(one),
        }
    }
}

#[derive(Serialize)]
struct Committed<'a> {
    id: i64,
    fence: i64,
    status: &'static str,
    started_at: Option<i64>,
    finished_at: Option<i64>,
    result: Option<&'a str>,
    wall_ms: Option<i64>,
    cpu_ms: Option<i64>,
    peak_memory_bytes: Option<i64>,
    bytes_in: Option<i64>,
    bytes_out: Option<i64>,
    was_status: Option<&'static str>,
}

impl<'a> Committed<'a> {
    fn new(one: &Joined<'a>, execution: Status, now: Millis) -> Self {
        let [wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out] = cost(one.usage);
        Committed {
            id: one.id.0,
            fence: one.after.fence.0,
            status: execution.as_str(),
            started_at: one.is_begun.then_some(now.0),
            finished_at: (execution == Status::Done).then_some(now.0),
            result: one.result,
            wall_ms,
            cpu_ms,
            peak_memory_bytes,
            bytes_in,
            bytes_out,
            was_status: was_status(one),
        }
    }
}

#[derive(Serialize)]
struct Aborted<'a> {
    id: i64,
    fence: i64,
    started_at: Option<i64>,
    failure: &'static str,
    error: Option<&'a str>,
    wall_ms: Option<i64>,
    cpu_ms: Option<i64>,
    peak_memory_bytes: Option<i64>,
    bytes_in: Option<i64>,
    bytes_out: Option<i64>,
}

impl<'a> Aborted<'a> {
    fn new(one: &Joined<'a>, failure: &'static str, now: Millis) -> Self {
        let [wall_ms, cpu_ms, peak_memory_bytes, bytes_in, bytes_out] = cost(one.usage);
        Aborted {
            id: one.id.0,
            fence: one.before.fence.0,
            started_at: one.is_begun.then_some(now.0),
            failure,
            error: one.note,
            wall_ms,
            cpu_ms,
            peak_memory_bytes,
            bytes_in,
            bytes_out,
        }
    }
}

#[derive(Serialize)]
struct Other {
    id: i64,
    fence: i64,
    state: &'static str,
    attempts: i64,
    queued_at: Option<i64>,
    due_at: Option<i64>,
    failure: Option<&'static str>,
    was_state: &'static str,
    was_status: Option<&'static str>,
}

impl Other {
    fn new(one: &Joined<'_>, now: Millis) -> Self {
        let (failure, due_at) = match &one.after.state {
            State::Error { failure, next } => (Some(failure.as_str()), due_at(*next, now)),
            State::New | State::Ready { .. } | State::Running { .. } | State::Done { .. } => (None, None),
        };
        Other {
            id: one.id.0,
            fence: one.before.fence.0,
            state: one.after.state.name().as_str(),
            attempts: one.after.attempts.into(),
            queued_at: queued_at(&one.after.state),
            due_at,
            failure,
            was_state: one.before.state.name().as_str(),
            was_status: was_status(one),
        }
    }
}

/// What an execution has cost, in the order of its columns.
fn cost(usage: Option<Usage>) -> [Option<i64>; 5] {
    let cost = |it: Usage| [it.wall_ms, it.cpu_ms, it.peak_memory_bytes, it.bytes_in, it.bytes_out];
    usage.map_or([None; 5], |usage| cost(usage).map(Some))
}

/// When the orchestrator has to look again.
fn due_at(next: Next, now: Millis) -> Option<i64> {
    match next {
        Next::RetryAt(at) => Some(at.0),
        Next::Unjudged => Some(now.0),
        Next::Final => None,
    }
}

fn queued_at(state: &State) -> Option<i64> {
    match state {
        State::Ready { since } => Some(since.0),
        State::New | State::Running { .. } | State::Done { .. } | State::Error { .. } => None,
    }
}

fn was_status(one: &Joined<'_>) -> Option<&'static str> {
    one.before.state.execution().map(|status| status.as_str())
}
