//! Task rows: loading them, locked, as the rules know them. The execution that counts stands in the same row.

use crate::db::Tx;
use crate::error::Result;
use crate::from_row::row;
use rules::execution::Status;
use rules::lease::{Lease, Terms};
use rules::task::{Name, Next, State, Task};
use rules::{Fence, Millis, TaskId, Token, WorkerId};
use serde::Deserialize;

/// A SELECT of all that a [`TaskRow`] has.
macro_rules! select_tasks {
    ($($rest:expr),+ $(,)?) => {
        concat!(
            "
SELECT t.id, t.stage, t.segment, t.state, t.priority, t.fence, t.attempts, t.max_attempts, t.queued_at, t.due_at, t.failure,
       t.status, t.token, t.worker_id, t.lease_expires_at, t.progress, t.progressed_at, t.stall_ms, t.deadline_at,
       t.kept, t.kept_fence
",
            $($rest),+
        )
    };
}
pub(crate) use select_tasks;

row! {
    #[derive(Debug, Clone, Deserialize)]
    pub(crate) struct TaskRow {
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
        status: Option<String>,
        token: Option<i64>,
        worker_id: Option<String>,
        lease_expires_at: Option<i64>,
        progress: Option<i64>,
        progressed_at: Option<i64>,
        stall_ms: Option<i64>,
        deadline_at: Option<i64>,
        kept: i64,
        kept_fence: i64,
    }
}

row! {
    /// What claiming needs of a READY task.
    #[derive(Debug, Clone, Deserialize)]
    pub(crate) struct ReadyRow {
        pub id: i64,
        pub stage: i64,
        pub segment: i64,
        pub priority: i64,
        pub fence: i64,
        pub attempts: i64,
        pub max_attempts: i64,
        pub queued_at: i64,
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

/// A task as loaded: its place in its job, and what the rules make of its row.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    pub id: TaskId,
    pub stage: i64,
    pub segment: i64,
    pub priority: i64,
    /// The worker whose execution counts, if one does.
    pub holder: Option<WorkerId>,
    pub task: Task,
}

const LOCK: &str = select_tasks!(
    "FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
ORDER BY t.id
FOR UPDATE OF t"
);

const LOCK_FREE: &str = select_tasks!(
    "FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
ORDER BY t.id
FOR UPDATE OF t SKIP LOCKED"
);

const LOOK: &str = select_tasks!(
    "FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
ORDER BY t.id"
);

const COMMITTED: &str = "
SELECT t.id, t.stage, t.segment, t.fence, t.attempts, t.max_attempts, t.token, t.result
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id
WHERE t.status = 'COMMITTED'
ORDER BY t.id";

/// What to do about a task another transaction is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Busy {
    Wait,
    Skip,
}

/// Locks these tasks, in order of id, and loads them.
pub(crate) async fn lock(
    tx: &mut Tx,
    ids: impl IntoIterator<Item = TaskId>,
    busy: Busy,
) -> Result<Vec<Loaded>> {
    load(tx, if busy == Busy::Skip { LOCK_FREE } else { LOCK }, ids).await
}

/// Loads these tasks without a lock, for moves that change what saving compares: the transaction begins again if somebody
/// was faster.
pub(crate) async fn look(tx: &mut Tx, ids: impl IntoIterator<Item = TaskId>) -> Result<Vec<Loaded>> {
    load(tx, LOOK, ids).await
}

async fn load(tx: &mut Tx, sql: &'static str, ids: impl IntoIterator<Item = TaskId>) -> Result<Vec<Loaded>> {
    let rows: Vec<TaskRow> = tx.query(sql).ids(ids.into_iter().map(|id| id.0)).many().await?;
    loaded(rows)
}

pub(crate) fn loaded(rows: Vec<TaskRow>) -> Result<Vec<Loaded>> {
    rows.into_iter().map(Loaded::try_from).collect()
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

impl NewTask {
    pub fn loaded(&self) -> Loaded {
        Loaded {
            id: TaskId(self.id),
            stage: self.stage,
            segment: self.segment,
            priority: self.priority,
            holder: None,
            task: task(State::New, 0, 0, self.max_attempts),
        }
    }
}

impl Loaded {
    /// Executions before the current that used up no attempt.
    pub fn spared(&self) -> u32 {
        self.task.spared()
    }
}

impl TryFrom<TaskRow> for Loaded {
    type Error = crate::Error;

    fn try_from(row: TaskRow) -> Result<Self> {
        let task = Task { kept: row.kept, ..task(row.state()?, row.fence, row.attempts, row.max_attempts) };
        Ok(Loaded {
            id: TaskId(row.id),
            stage: row.stage,
            segment: row.segment,
            priority: row.priority,
            holder: row.worker_id.as_deref().and_then(|id| id.parse().ok()),
            task,
        })
    }
}

impl ReadyRow {
    pub fn loaded(&self) -> Loaded {
        let state = State::Ready { since: Millis(self.queued_at) };
        Loaded {
            id: TaskId(self.id),
            stage: self.stage,
            segment: self.segment,
            priority: self.priority,
            holder: None,
            task: task(state, self.fence, self.attempts, self.max_attempts),
        }
    }
}

impl CommittedRow {
    fn into_loaded(self) -> (Loaded, Option<String>) {
        let state = State::Done { token: Token(self.token), execution: Status::Committed };
        let loaded = Loaded {
            id: TaskId(self.id),
            stage: self.stage,
            segment: self.segment,
            // It is of no use to one that is done.
            priority: 0,
            holder: None,
            task: task(state, self.fence, self.attempts, self.max_attempts),
        };
        (loaded, self.result)
    }
}

fn task(state: State, fence: i64, attempts: i64, max_attempts: i64) -> Task {
    Task {
        state,
        fence: Fence(fence),
        attempts: attempts.try_into().unwrap_or(u32::MAX),
        max_attempts: max_attempts.try_into().unwrap_or(0),
        kept: 0,
    }
}

impl TaskRow {
    fn state(&self) -> Result<State> {
        Ok(match self.state.parse()? {
            Name::New => State::New,
            Name::Ready => State::Ready { since: Millis(self.queued_at.unwrap_or_default()) },
            Name::Running => State::Running { lease: self.lease()?, execution: self.status()? },
            Name::Done => State::Done { token: self.token()?, execution: self.status()? },
            Name::Error => self.error(),
        })
    }

    fn error(&self) -> State {
        let failure = rules::failure::Kind::read(self.failure.as_deref().unwrap_or_default());
        let has_attempts = self.attempts < self.max_attempts && failure != rules::failure::Kind::Permanent;
        let next = match self.due_at {
            None => Next::Final,
            Some(at) if has_attempts => Next::RetryAt(Millis(at)),
            Some(_) => Next::Unjudged,
        };
        State::Error { failure, next }
    }

    fn lease(&self) -> Result<Lease> {
        let worker = self.worker_id.as_deref().unwrap_or_default();
        Ok(Lease {
            worker: worker.parse().map_err(|_| self.corrupt("worker id", worker, "a UUID"))?,
            token: self.token()?,
            expires_at: Millis(self.lease_expires_at.unwrap_or_default()),
            progress: self.progress.unwrap_or_default(),
            progressed_at: Millis(self.progressed_at.unwrap_or_default()),
            has_kept: self.kept_fence == self.fence,
            terms: Terms {
                length: Millis(0),
                stall: self.stall_ms.map(Millis),
                deadline: self.deadline_at.map(Millis),
            },
        })
    }

    fn token(&self) -> Result<Token> {
        self.token.map(Token).ok_or_else(|| self.corrupt("execution of a task", &self.state, "a token"))
    }

    fn status(&self) -> Result<Status> {
        Ok(self.status.as_deref().unwrap_or_default().parse()?)
    }

    /// The schema rules it out.
    fn corrupt(&self, machine: &'static str, word: &str, expected: &str) -> crate::Error {
        let word = format!("{} {word}", TaskId(self.id));
        crate::Error::Corrupt(rules::Unknown { machine, word, expected: expected.into() })
    }
}
