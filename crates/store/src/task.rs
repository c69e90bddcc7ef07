//! Task rows: loading them, locked, as the rules know them.

use crate::db::Tx;
use crate::error::Result;
use crate::from_row::row;
use rules::execution::Status;
use rules::lease::{Lease, Terms};
use rules::task::{Name, Next, State, Task};
use rules::{Fence, Millis, TaskId, Token};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

row! {
    #[derive(Debug, Clone, Deserialize)]
    pub(crate) struct TaskRow {
        pub id: i64,
        pub stage: i64,
        pub segment: i64,
        pub state: String,
        pub priority: i64,
        pub fence: i64,
        pub attempts: i64,
        pub max_attempts: i64,
        pub queued_at: Option<i64>,
        pub due_at: Option<i64>,
        pub failure: Option<String>,
    }
}

row! {
    /// What the rules need of a task's current execution.
    #[derive(Debug, Clone, Deserialize)]
    pub(crate) struct ExecutionRow {
        pub task_id: i64,
        pub fence: i64,
        pub token: i64,
        pub worker_id: String,
        pub status: String,
        pub lease_expires_at: i64,
        pub progress: i64,
        pub progressed_at: i64,
        pub stall_ms: Option<i64>,
        pub deadline_at: Option<i64>,
    }
}

row! {
    /// A task beside its latest execution, if it has had one.
    #[derive(Deserialize)]
    struct BesideRow {
        id: i64,
        stage: i64,
        segment: i64,
        state: String,
        priority: i64,
        fence: i64,
        attempts: i64,
        max_attempts: i64,
        queued_at: Option<i64>,
        due_at: Option<i64>,
        failure: Option<String>,
        token: Option<i64>,
        worker_id: Option<String>,
        status: Option<String>,
        lease_expires_at: Option<i64>,
        progress: Option<i64>,
        progressed_at: Option<i64>,
        stall_ms: Option<i64>,
        deadline_at: Option<i64>,
    }
}

row! {
    /// What settling needs of a committed task.
    #[derive(Deserialize)]
    struct CommittedRow {
        id: i64,
        stage: i64,
        segment: i64,
        fence: i64,
        attempts: i64,
        max_attempts: i64,
        token: i64,
        result: Option<String>,
    }
}

/// A task that this transaction adds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewTask {
    pub id: i64,
    pub stage: i64,
    pub segment: i64,
    pub lane_id: i64,
    pub owner_id: i64,
    pub priority: i64,
    pub max_attempts: i64,
}

/// A task as loaded: its row, its current execution, and what the rules make of both.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub id: TaskId,
    pub row: TaskRow,
    pub execution: Option<ExecutionRow>,
    pub task: Task,
}

const LOCK: &str = "
SELECT t.id, t.stage, t.segment, t.state, t.priority, t.fence, t.attempts, t.max_attempts, t.queued_at, t.due_at,
       t.failure
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
ORDER BY t.id
FOR UPDATE OF t";

const LOCK_FREE: &str = "
SELECT t.id, t.stage, t.segment, t.state, t.priority, t.fence, t.attempts, t.max_attempts, t.queued_at, t.due_at,
       t.failure
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
ORDER BY t.id
FOR UPDATE OF t SKIP LOCKED";

/// Takes no lock and waits for none, so it may be a join, other than [`EXECUTIONS`].
const LOOK: &str = "
SELECT t.id, t.stage, t.segment, t.state, t.priority, t.fence, t.attempts, t.max_attempts, t.queued_at, t.due_at,
       t.failure, e.token, e.worker_id, e.status, e.lease_expires_at, e.progress, e.progressed_at, e.stall_ms, e.deadline_at
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
LEFT JOIN execution e ON e.task_id = t.id AND e.fence = t.fence
ORDER BY t.id";

/// Likewise.
const COMMITTED: &str = "
SELECT t.id, t.stage, t.segment, t.fence, t.attempts, t.max_attempts, e.token, e.result
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
JOIN execution e ON e.task_id = t.id AND e.fence = t.fence
WHERE t.state = 'DONE' AND e.status = 'COMMITTED'
ORDER BY t.id";

/// A second statement, and not a join to the first: PostgreSQL would pair a task it had to wait for with the
/// execution it saw before the wait.
const EXECUTIONS: &str = "
SELECT e.task_id, e.fence, e.token, e.worker_id, e.status, e.lease_expires_at, e.progress, e.progressed_at,
       e.stall_ms, e.deadline_at
FROM json_to_recordset($1::json) AS r(task_id BIGINT, fence BIGINT)
JOIN execution e ON e.task_id = r.task_id AND e.fence = r.fence";

/// What to do about a task another transaction is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    Wait,
    Skip,
}

#[derive(Serialize)]
struct ExecutionKey {
    task_id: i64,
    fence: i64,
}

/// Locks these tasks, in order of id, and loads them with their current executions.
pub(crate) async fn lock(
    tx: &mut Tx,
    ids: impl IntoIterator<Item = TaskId>,
    busy: Busy,
) -> Result<Vec<Loaded>> {
    let sql = if busy == Busy::Skip { LOCK_FREE } else { LOCK };
    let rows: Vec<TaskRow> = tx.query(sql).ids(ids.into_iter().map(|id| id.0)).many().await?;
    with_executions(tx, rows).await
}

/// Loads these tasks with their latest executions, for moves that change the tasks' own rows: saving those compares, and
/// begins the transaction again if somebody was faster.
pub(crate) async fn look(tx: &mut Tx, ids: impl IntoIterator<Item = TaskId>) -> Result<Vec<Loaded>> {
    let rows: Vec<BesideRow> = tx.query(LOOK).ids(ids.into_iter().map(|id| id.0)).many().await?;
    rows.into_iter().map(BesideRow::into_loaded).collect()
}

/// Loads those of these tasks that are committed and not settled, each with its result, for who holds their jobs'
/// locks: nothing else moves a task once it is committed.
pub(crate) async fn committed(
    tx: &mut Tx,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Vec<(Loaded, Option<String>)>> {
    let rows: Vec<CommittedRow> = tx.query(COMMITTED).ids(ids.into_iter().map(|id| id.0)).many().await?;
    Ok(rows.into_iter().map(CommittedRow::into_loaded).collect())
}

/// Adds to rows the executions they speak of.
pub(crate) async fn with_executions(tx: &mut Tx, rows: Vec<TaskRow>) -> Result<Vec<Loaded>> {
    let keys: Vec<ExecutionKey> = rows
        .iter()
        .filter(|row| row.state == Name::Running.as_str() || row.state == Name::Done.as_str())
        .map(|row| ExecutionKey { task_id: row.id, fence: row.fence })
        .collect();
    let executions: Vec<ExecutionRow> = if keys.is_empty() {
        Vec::new()
    } else {
        tx.query(EXECUTIONS).rows(&keys).many().await?
    };
    let mut executions: HashMap<i64, ExecutionRow> =
        executions.into_iter().map(|execution| (execution.task_id, execution)).collect();
    let loaded = |row: TaskRow| {
        let execution = executions.remove(&row.id);
        Loaded::new(row, execution)
    };
    rows.into_iter().map(loaded).collect()
}

impl NewTask {
    pub fn loaded(&self) -> Loaded {
        let row = TaskRow {
            id: self.id,
            stage: self.stage,
            segment: self.segment,
            state: Name::New.as_str().into(),
            priority: self.priority,
            fence: 0,
            attempts: 0,
            max_attempts: self.max_attempts,
            queued_at: None,
            due_at: None,
            failure: None,
        };
        Loaded::of_state(row, None, State::New)
    }
}

impl Loaded {
    /// Executions before the current that used up no attempt.
    pub fn spared(&self) -> u32 {
        u32::try_from(self.task.fence.0 - i64::from(self.task.attempts)).unwrap_or(0)
    }

    pub fn new(row: TaskRow, execution: Option<ExecutionRow>) -> Result<Self> {
        let state = state(&row, execution.as_ref())?;
        Ok(Loaded::of_state(row, execution, state))
    }

    fn of_state(row: TaskRow, execution: Option<ExecutionRow>, state: State) -> Self {
        let task = Task {
            state,
            fence: Fence(row.fence),
            attempts: row.attempts.try_into().unwrap_or(u32::MAX),
            max_attempts: row.max_attempts.try_into().unwrap_or(0),
        };
        Loaded { id: TaskId(row.id), row, execution, task }
    }
}

impl BesideRow {
    fn into_loaded(mut self) -> Result<Loaded> {
        let execution = self.execution();
        let row = TaskRow {
            id: self.id,
            stage: self.stage,
            segment: self.segment,
            state: self.state,
            priority: self.priority,
            fence: self.fence,
            attempts: self.attempts,
            max_attempts: self.max_attempts,
            queued_at: self.queued_at,
            due_at: self.due_at,
            failure: self.failure,
        };
        Loaded::new(row, execution)
    }

    fn execution(&mut self) -> Option<ExecutionRow> {
        Some(ExecutionRow {
            task_id: self.id,
            fence: self.fence,
            token: self.token?,
            worker_id: self.worker_id.take()?,
            status: self.status.take()?,
            lease_expires_at: self.lease_expires_at?,
            progress: self.progress?,
            progressed_at: self.progressed_at?,
            stall_ms: self.stall_ms,
            deadline_at: self.deadline_at,
        })
    }
}

impl CommittedRow {
    fn into_loaded(self) -> (Loaded, Option<String>) {
        let state = State::Done { token: Token(self.token), execution: Status::Committed };
        let row = TaskRow {
            id: self.id,
            stage: self.stage,
            segment: self.segment,
            state: Name::Done.as_str().into(),
            // It is of no use to one that is done.
            priority: 0,
            fence: self.fence,
            attempts: self.attempts,
            max_attempts: self.max_attempts,
            queued_at: None,
            due_at: None,
            failure: None,
        };
        (Loaded::of_state(row, None, state), self.result)
    }
}

fn state(row: &TaskRow, execution: Option<&ExecutionRow>) -> Result<State> {
    let name: Name = row.state.parse()?;
    Ok(match (name, execution) {
        (Name::New, _) => State::New,
        (Name::Ready, _) => State::Ready { since: Millis(row.queued_at.unwrap_or_default()) },
        (Name::Running, Some(execution)) => {
            State::Running { lease: execution.lease()?, execution: execution.status.parse()? }
        }
        (Name::Done, Some(execution)) => {
            State::Done { token: Token(execution.token), execution: execution.status.parse()? }
        }
        (Name::Running | Name::Done, None) => return Err(missing_execution(row)),
        (Name::Error, _) => error(row),
    })
}

/// The schema cannot rule this out without a foreign key on the hot path; `doctor` looks for it.
fn missing_execution(row: &TaskRow) -> crate::Error {
    crate::Error::Corrupt(rules::Unknown {
        machine: "execution of a task",
        word: format!("{} {}", TaskId(row.id), row.state),
        expected: format!("its execution {}", row.fence),
    })
}

fn error(row: &TaskRow) -> State {
    let failure = rules::failure::Kind::read(row.failure.as_deref().unwrap_or_default());
    let has_attempts = row.attempts < row.max_attempts && failure != rules::failure::Kind::Permanent;
    let next = match row.due_at {
        None => Next::Final,
        Some(at) if has_attempts => Next::RetryAt(Millis(at)),
        Some(_) => Next::Unjudged,
    };
    State::Error { failure, next }
}

impl ExecutionRow {
    fn lease(&self) -> Result<Lease> {
        let worker = self.worker_id.parse().map_err(|_| rules::Unknown {
            machine: "worker id",
            word: self.worker_id.clone(),
            expected: "a UUID".into(),
        })?;
        Ok(Lease {
            worker,
            token: Token(self.token),
            expires_at: Millis(self.lease_expires_at),
            progress: self.progress,
            progressed_at: Millis(self.progressed_at),
            terms: Terms {
                length: Millis(0),
                stall: self.stall_ms.map(Millis),
                deadline: self.deadline_at.map(Millis),
            },
        })
    }
}
