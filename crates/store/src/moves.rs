//! Saving what the rules decided: a handful of statements, however many tasks moved.

use crate::audit::{self, AuditRow};
use crate::db::Tx;
use crate::error::{Error, Result};
use crate::readied::Readied;
use crate::rows;
use crate::task::{Loaded, NewTask};
use rules::execution::Status;
use rules::task::{self, Change, Command, Event, Next, Refusal, State, Task};
use rules::{JobId, Millis, Priority, TaskId, WorkerId};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};
use wire::Usage;

/// The moves of one transaction, decided and not yet saved.
pub(crate) struct Moves {
    now: Millis,
    made: Vec<Move>,
    added: BTreeMap<TaskId, NewTask>,
}

struct Move {
    id: TaskId,
    priority: Priority,
    before: Task,
    after: Task,
    event: Event,
    words: Words,
}

/// What goes with a move into the rows it touches.
#[derive(Debug, Default, Clone)]
pub(crate) struct Words {
    pub note: Option<String>,
    pub result: Option<String>,
    pub usage: Option<Usage>,
    pub step: Option<String>,
    pub permille: Option<i64>,
}

impl Moves {
    pub fn new(now: Millis) -> Self {
        Moves { now, made: Vec::new(), added: BTreeMap::new() }
    }

    /// Adds tasks. They are inserted when all is saved, as the moves made until then leave them: most are READY at once.
    pub fn add(&mut self, tasks: Vec<NewTask>) {
        self.added.extend(tasks.into_iter().map(|task| (TaskId(task.id), task)));
    }

    /// Of these tasks those that are added here, not moved yet; and the others.
    pub fn added(&self, ids: Vec<TaskId>) -> (Vec<Loaded>, Vec<TaskId>) {
        let (added, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| self.added.contains_key(id));
        (added.iter().map(|id| self.added[id].loaded()).collect(), others)
    }

    pub fn newest_added(&self, job: JobId) -> Option<TaskId> {
        let (first, last) = TaskId::range(job);
        self.added.range(first..=last).next_back().map(|(id, _)| *id)
    }

    /// Lets the rules decide; a move they allow will be saved.
    pub fn make(&mut self, loaded: &mut Loaded, command: &Command, words: Words) -> Result<(), Refusal> {
        let Change { task: after, event } = task::decide(&loaded.task, command, self.now)?;
        let before = std::mem::replace(&mut loaded.task, after.clone());
        let priority = Priority::try_from(loaded.row.priority).unwrap_or_default();
        self.made.push(Move { id: loaded.id, priority, before, after, event, words });
        Ok(())
    }

    /// As [`Moves::make`] for a worker's word about its execution: the first such word says that it has begun,
    /// whatever else it says. Both moves are made, or neither.
    pub fn make_begun(
        &mut self,
        loaded: &mut Loaded,
        command: &Command,
        words: Words,
    ) -> Result<(), Refusal> {
        let (before, made) = (loaded.task.clone(), self.made.len());
        let begun = match (&before.state, command.token()) {
            (State::Running { execution: Status::Leased, .. }, Some(token)) => {
                self.make(loaded, &Command::Start { token }, Words::default())
            }
            _ => Ok(()),
        };
        begun.and_then(|()| self.make(loaded, command, words)).inspect_err(|_| {
            loaded.task = before;
            self.made.truncate(made);
        })
    }

    /// The tasks that became READY.
    pub fn readied(&self) -> Readied {
        let mut readied = Readied::default();
        let ready = self.made.iter().filter(|made| made.event.to == task::Name::Ready);
        ready.for_each(|made| readied.add(made.priority, 1));
        readied
    }

    pub async fn save(&self, tx: &mut Tx) -> Result<()> {
        self.save_tasks(tx).await?;
        self.save_claims(tx).await?;
        self.save_leases(tx).await?;
        self.save_ends(tx).await?;
        let audited = self.made.iter().filter(|made| made.changes_state());
        let rows: Vec<AuditRow> = audited.map(|made| made.audit(self.now)).collect();
        audit::insert(tx, &audit::joined(rows)).await
    }

    async fn save_tasks(&self, tx: &mut Tx) -> Result<()> {
        let mut rows: Vec<SavedTask> =
            self.made.iter().filter_map(|made| made.saved_task(self.now)).collect();
        // A task that moved twice is saved as it ended, in place of what it was.
        rows.sort_by_key(|row| row.id);
        rows.dedup_by(|later, row| {
            let is_same = later.id == row.id;
            if is_same {
                *row = SavedTask { was_state: row.was_state, was_fence: row.was_fence, ..*later };
            }
            is_same
        });
        let (added, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| self.added.contains_key(&TaskId(row.id)));
        self.insert_added(tx, &added).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let saved = tx.query(SAVE_TASKS).rows(&rows).execute().await?;
        if saved == rows.len() as u64 { Ok(()) } else { Err(Error::moved_meanwhile()) }
    }

    async fn insert_added(&self, tx: &mut Tx, moved: &[SavedTask]) -> Result<()> {
        let moved = |id| moved.binary_search_by_key(&id, |row| row.id).ok().map(|at| &moved[at]);
        let rows: Vec<AddedTask> =
            self.added.values().map(|new| AddedTask::new(new, moved(new.id))).collect();
        for batch in rows.chunks(5000) {
            tx.query(INSERT_TASKS).rows(batch).bind(self.now).execute().await?;
        }
        Ok(())
    }

    async fn save_claims(&self, tx: &mut Tx) -> Result<()> {
        let rows: Vec<SavedClaim> = self.made.iter().filter_map(|made| made.saved_claim(self.now)).collect();
        if !rows.is_empty() {
            tx.query(SAVE_CLAIMS).rows(&rows).execute().await?;
        }
        Ok(())
    }

    async fn save_leases(&self, tx: &mut Tx) -> Result<()> {
        // Beginning and ending at once is one update: the end says when it began.
        let ended: HashSet<TaskId> =
            self.made.iter().filter(|made| made.ends_execution()).map(|made| made.id).collect();
        let going_on = self.made.iter().filter(|made| !ended.contains(&made.id));
        let mut rows: Vec<SavedLease> = going_on.filter_map(|made| made.saved_lease(self.now)).collect();
        // A lease that moved twice is saved once: of two rows for it, a database would take either.
        rows.sort_by_key(SavedLease::key);
        rows.dedup_by(|later, row| {
            let is_same = later.key() == row.key();
            if is_same {
                *row = later.after(*row);
            }
            is_same
        });
        if !rows.is_empty() {
            tx.query(SAVE_LEASES).rows(&rows).execute().await?;
        }
        Ok(())
    }

    async fn save_ends(&self, tx: &mut Tx) -> Result<()> {
        let rows: Vec<SavedEnd> = self.made.iter().filter_map(|made| made.saved_end(self.now)).collect();
        let (mut settled, mut ended): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.status == Status::Done.as_str());
        // What is committed and settled at once is one update.
        let at: HashMap<(i64, i64), usize> =
            ended.iter().enumerate().map(|(at, row)| (row.key(), at)).collect();
        settled.retain(|row| match at.get(&row.key()) {
            Some(&at) => {
                (ended[at].status, ended[at].finished_at) = (row.status, row.finished_at);
                false
            }
            None => true,
        });
        let begun: HashSet<i64> =
            self.made.iter().filter(|made| made.begins_execution()).map(|made| made.id.0).collect();
        for row in ended.iter_mut().filter(|row| begun.contains(&row.task_id)) {
            row.was_status = Status::Leased.as_str();
        }
        // Rows that are alike are saved by their keys alone.
        if ended.len() >= rows::MANY {
            ended.sort_by_key(|row| (row.status, row.was_status));
        }
        for alike in ended.chunk_by(|one, next| ended.len() < rows::MANY || one.is_like(next)) {
            if tx.query(SAVE_ENDS).rows(alike).execute().await? != alike.len() as u64 {
                return Err(Error::moved_meanwhile());
            }
        }
        if !settled.is_empty() {
            tx.query(SAVE_SETTLED).bind(self.now).rows(&settled).execute().await?;
        }
        Ok(())
    }
}

const INSERT_TASKS: &str = "
INSERT INTO task (id, stage, segment, state, lane_id, owner_id, priority, fence, attempts, max_attempts, queued_at,
                  updated_at)
SELECT r.id, r.stage, r.segment, r.state, r.lane_id, r.owner_id, r.priority, 0, 0, r.max_attempts, r.queued_at, $2
FROM json_to_recordset($1::json) AS r(id BIGINT, stage BIGINT, segment BIGINT, state TEXT, lane_id BIGINT,
     owner_id BIGINT, priority BIGINT, max_attempts BIGINT, queued_at BIGINT)";

/// Compare and set: a task that was read without a lock, and has been moved since, is left as it is.
const SAVE_TASKS: &str = "
UPDATE task AS t
SET state = r.state, fence = r.fence, attempts = r.attempts, queued_at = r.queued_at, due_at = r.due_at,
    failure = r.failure, updated_at = r.updated_at
FROM json_to_recordset($1::json) AS r(id BIGINT, state TEXT, fence BIGINT, attempts BIGINT, queued_at BIGINT,
     due_at BIGINT, failure TEXT, updated_at BIGINT, was_state TEXT, was_fence BIGINT)
WHERE t.id = r.id AND t.state = r.was_state AND t.fence = r.was_fence";

const SAVE_CLAIMS: &str = "
INSERT INTO execution (task_id, fence, token, worker_id, status, lease_expires_at, progress, progressed_at, stall_ms,
                       deadline_at, leased_at)
SELECT r.task_id, r.fence, r.token, r.worker_id, 'LEASED', r.lease_expires_at, 0, r.leased_at, r.stall_ms,
       r.deadline_at, r.leased_at
FROM json_to_recordset($1::json) AS r(task_id BIGINT, fence BIGINT, token BIGINT, worker_id TEXT,
     lease_expires_at BIGINT, stall_ms BIGINT, deadline_at BIGINT, leased_at BIGINT)";

const SAVE_LEASES: &str = "
UPDATE execution AS e
SET status = r.status, lease_expires_at = r.lease_expires_at, progress = r.progress, progressed_at = r.progressed_at,
    started_at = coalesce(e.started_at, r.started_at), step = coalesce(r.step, e.step),
    permille = coalesce(r.permille, e.permille)
FROM json_to_recordset($1::json) AS r(task_id BIGINT, fence BIGINT, status TEXT, lease_expires_at BIGINT,
     progress BIGINT, progressed_at BIGINT, started_at BIGINT, step TEXT, permille BIGINT)
WHERE e.task_id = r.task_id AND e.fence = r.fence";

/// Compare and set, as [`SAVE_TASKS`]: an execution may begin without a change of its task's row.
const SAVE_ENDS: &str = "
UPDATE execution AS e
SET status = r.status, started_at = coalesce(e.started_at, r.started_at), committed_at = r.committed_at,
    finished_at = r.finished_at, failure = r.failure, error = r.error, result = r.result, wall_ms = r.wall_ms,
    cpu_ms = r.cpu_ms, peak_memory_bytes = r.peak_memory_bytes, bytes_in = r.bytes_in, bytes_out = r.bytes_out
FROM json_to_recordset($1::json) AS r(task_id BIGINT, fence BIGINT, status TEXT, started_at BIGINT,
     committed_at BIGINT, finished_at BIGINT, failure TEXT, error TEXT, result TEXT, wall_ms BIGINT, cpu_ms BIGINT,
     peak_memory_bytes BIGINT, bytes_in BIGINT, bytes_out BIGINT, was_status TEXT)
WHERE e.task_id = r.task_id AND e.fence = r.fence AND e.status = r.was_status";

const SAVE_SETTLED: &str = "
UPDATE execution AS e
SET status = 'DONE', finished_at = $1
FROM json_to_recordset($2::json) AS r(task_id BIGINT, fence BIGINT)
WHERE e.task_id = r.task_id AND e.fence = r.fence";

#[derive(Serialize)]
struct AddedTask {
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

impl AddedTask {
    fn new(new: &NewTask, moved: Option<&SavedTask>) -> Self {
        AddedTask {
            id: new.id,
            stage: new.stage,
            segment: new.segment,
            state: moved.map_or(task::Name::New.as_str(), |moved| moved.state),
            lane_id: new.lane_id,
            owner_id: new.owner_id,
            priority: new.priority,
            max_attempts: new.max_attempts,
            queued_at: moved.and_then(|moved| moved.queued_at),
        }
    }
}

#[derive(Serialize, Clone, Copy)]
struct SavedTask {
    id: i64,
    state: &'static str,
    fence: i64,
    attempts: i64,
    queued_at: Option<i64>,
    due_at: Option<i64>,
    failure: Option<&'static str>,
    updated_at: i64,
    was_state: &'static str,
    was_fence: i64,
}

#[derive(Serialize)]
struct SavedClaim {
    task_id: i64,
    fence: i64,
    token: i64,
    worker_id: WorkerId,
    lease_expires_at: i64,
    stall_ms: Option<i64>,
    deadline_at: Option<i64>,
    leased_at: i64,
}

#[derive(Serialize, Clone, Copy)]
struct SavedLease<'a> {
    task_id: i64,
    fence: i64,
    status: &'static str,
    lease_expires_at: i64,
    progress: i64,
    progressed_at: i64,
    started_at: Option<i64>,
    step: Option<&'a str>,
    permille: Option<i64>,
}

#[derive(Serialize)]
struct SavedEnd<'a> {
    task_id: i64,
    fence: i64,
    status: &'static str,
    /// For one that begins and ends at once.
    started_at: Option<i64>,
    committed_at: Option<i64>,
    finished_at: Option<i64>,
    failure: Option<&'static str>,
    error: Option<&'a str>,
    result: Option<&'a str>,
    wall_ms: Option<i64>,
    cpu_ms: Option<i64>,
    peak_memory_bytes: Option<i64>,
    bytes_in: Option<i64>,
    bytes_out: Option<i64>,
    was_status: &'static str,
}

impl SavedEnd<'_> {
    fn is_like(&self, other: &Self) -> bool {
        (self.status, self.was_status) == (other.status, other.was_status)
    }

    fn key(&self) -> (i64, i64) {
        (self.task_id, self.fence)
    }
}

impl SavedLease<'_> {
    fn key(&self) -> (i64, i64) {
        (self.task_id, self.fence)
    }

    /// What two moves come to: the later one's, but for what only the earlier one said.
    fn after(self, earlier: Self) -> Self {
        SavedLease {
            started_at: earlier.started_at.or(self.started_at),
            step: self.step.or(earlier.step),
            permille: self.permille.or(earlier.permille),
            ..self
        }
    }
}

impl Move {
    fn changes_state(&self) -> bool {
        let is_renewal = self.event.to == task::Name::Running && self.event.execution.is_none();
        self.before != self.after && !is_renewal
    }

    fn audit(&self, now: Millis) -> AuditRow {
        AuditRow::of_task(
            self.id,
            self.after.fence.0,
            self.event,
            self.worker(),
            self.words.note.clone(),
            now,
        )
    }

    /// Whose lease the move is about.
    fn worker(&self) -> Option<WorkerId> {
        match (&self.before.state, &self.after.state) {
            (State::Running { lease, .. }, _) | (_, State::Running { lease, .. }) => Some(lease.worker),
            _ => None,
        }
    }

    /// The task's own row changes only when its state does: starting, renewing and settling leave it alone.
    fn saved_task(&self, now: Millis) -> Option<SavedTask> {
        let stays = self.event.from == self.event.to && self.event.from != task::Name::Error;
        if stays {
            return None;
        }
        let (mut queued_at, mut due_at, mut failure) = (None, None, None);
        match &self.after.state {
            State::Ready { since } => queued_at = Some(since.0),
            State::Error { failure: kind, next } => {
                failure = Some(kind.as_str());
                due_at = match next {
                    Next::RetryAt(at) => Some(at.0),
                    Next::Unjudged => Some(now.0),
                    Next::Final => None,
                };
            }
            State::New | State::Running { .. } | State::Done { .. } => {}
        }
        Some(SavedTask {
            id: self.id.0,
            state: self.after.state.name().as_str(),
            fence: self.after.fence.0,
            attempts: self.after.attempts.into(),
            queued_at,
            due_at,
            failure,
            updated_at: now.0,
            was_state: self.before.state.name().as_str(),
            was_fence: self.before.fence.0,
        })
    }

    fn saved_claim(&self, now: Millis) -> Option<SavedClaim> {
        match (&self.after.state, self.event.execution) {
            (State::Running { lease, .. }, Some((None, Status::Leased))) => Some(SavedClaim {
                task_id: self.id.0,
                fence: self.after.fence.0,
                token: lease.token.0,
                worker_id: lease.worker,
                lease_expires_at: lease.expires_at.0,
                stall_ms: lease.terms.stall.map(|stall| stall.0),
                deadline_at: lease.terms.deadline.map(|deadline| deadline.0),
                leased_at: now.0,
            }),
            _ => None,
        }
    }

    fn saved_lease(&self, now: Millis) -> Option<SavedLease<'_>> {
        let (State::Running { .. }, State::Running { lease, execution }) =
            (&self.before.state, &self.after.state)
        else {
            return None;
        };
        Some(SavedLease {
            task_id: self.id.0,
            fence: self.after.fence.0,
            status: execution.as_str(),
            lease_expires_at: lease.expires_at.0,
            progress: lease.progress,
            progressed_at: lease.progressed_at.0,
            started_at: (*execution == Status::InProgress).then_some(now.0),
            step: self.words.step.as_deref(),
            permille: self.words.permille,
        })
    }

    fn begins_execution(&self) -> bool {
        matches!(self.event.execution, Some((Some(Status::Leased), Status::InProgress)))
    }

    fn ends_execution(&self) -> bool {
        matches!(self.event.execution, Some((Some(_), Status::Committed | Status::Done | Status::Aborted)))
    }

    fn saved_end(&self, now: Millis) -> Option<SavedEnd<'_>> {
        let (Some(before), status) = self.event.execution? else { return None };
        let (committed_at, finished_at) = match status {
            Status::Committed => (Some(now.0), None),
            Status::Aborted | Status::Done => (None, Some(now.0)),
            Status::Leased | Status::InProgress => return None,
        };
        let is_aborted = status == Status::Aborted;
        let usage = self.words.usage;
        Some(SavedEnd {
            task_id: self.id.0,
            fence: self.before.fence.0,
            status: status.as_str(),
            started_at: (before == Status::InProgress).then_some(now.0),
            committed_at,
            finished_at,
            failure: self.event.failure.map(|kind| kind.as_str()),
            error: self.words.note.as_deref().filter(|_| is_aborted),
            result: self.words.result.as_deref(),
            wall_ms: usage.map(|usage| usage.wall_ms),
            cpu_ms: usage.map(|usage| usage.cpu_ms),
            peak_memory_bytes: usage.map(|usage| usage.peak_memory_bytes),
            bytes_in: usage.map(|usage| usage.bytes_in),
            bytes_out: usage.map(|usage| usage.bytes_out),
            was_status: before.as_str(),
        })
    }
}
