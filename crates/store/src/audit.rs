//! The audit log: each move, written with it, never changed.
//!
//! A commit that is also the first word of its execution, or is settled at once, is one row with it: it begins at LEASED,
//! or ends at DONE. No other moves lie between, so who reads the row knows all that it stands for; see
//! `Store::audit_of_job`.
//!
//! And tasks of one job with consecutive ids that made the same move in the same transaction are a run: one row speaks for
//! all of them. Of a batch that moves alike, there is one row to write.

use crate::db::Tx;
use crate::error::Result;
use rules::task::Event;
use rules::{JobId, Millis, TaskId, VideoId, WorkerId};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Default, Serialize)]
pub(crate) struct AuditRow {
    at: i64,
    job_id: Option<i64>,
    task_id: Option<i64>,
    tasks: Tasks,
    video_id: Option<i64>,
    fence: Option<i64>,
    worker_id: Option<WorkerId>,
    role: &'static str,
    command: &'static str,
    from_state: Option<&'static str>,
    to_state: Option<&'static str>,
    from_execution: Option<&'static str>,
    to_execution: Option<&'static str>,
    failure: Option<&'static str>,
    note: Option<String>,
    /// How many rows of this transaction are about earlier moves of the same tasks.
    #[serde(skip)]
    turn: usize,
}

/// For how many tasks a row speaks, from its `task_id` on.
#[derive(Debug, Clone, Copy, Serialize)]
struct Tasks(i64);

impl Default for Tasks {
    fn default() -> Self {
        Tasks(1)
    }
}

impl AuditRow {
    /// A move of a task. `worker` is the holder of the lease it is about, whoever made the move.
    pub fn of_task(
        id: TaskId,
        fence: i64,
        event: Event,
        worker: Option<WorkerId>,
        note: Option<String>,
        now: Millis,
    ) -> Self {
        AuditRow {
            at: now.0,
            job_id: Some(id.job().0),
            task_id: Some(id.0),
            fence: (fence > 0).then_some(fence),
            worker_id: worker,
            role: event.role.as_str(),
            command: event.command,
            from_state: Some(event.from.as_str()),
            to_state: Some(event.to.as_str()),
            from_execution: event.execution.and_then(|(from, _)| from).map(|status| status.as_str()),
            to_execution: event.execution.map(|(_, to)| to.as_str()),
            failure: event.failure.map(|kind| kind.as_str()),
            note,
            ..AuditRow::default()
        }
    }

    /// Takes the move that follows in the same transaction, if one row can say both; whether it can.
    fn take(&mut self, later: &mut AuditRow) -> bool {
        let is_same = (self.task_id, self.fence) == (later.task_id, later.fence);
        match (self.command, later.command) {
            (START, COMMIT) if is_same => {
                let (from_state, from_execution) = (self.from_state, self.from_execution);
                *self = AuditRow { from_state, from_execution, ..std::mem::take(later) };
            }
            (COMMIT, SETTLE) if is_same => {
                (self.to_state, self.to_execution) = (later.to_state, later.to_execution);
            }
            _ => return false,
        }
        true
    }

    /// Speaks for the task of `next` too, if it comes next and moved alike; whether it does.
    fn grow(&mut self, next: &AuditRow) -> bool {
        let comes_next = self.task_id.is_some_and(|first| next.task_id == Some(first + self.tasks.0));
        let is_in_run = comes_next && self.turn == next.turn && self.is_alike(next);
        self.tasks.0 += i64::from(is_in_run);
        is_in_run
    }

    /// Whether both say the same, but for the task.
    fn is_alike(&self, other: &AuditRow) -> bool {
        let about = |row: &AuditRow| (row.job_id, row.video_id, row.fence, row.worker_id);
        self.kind() == other.kind() && about(self) == about(other) && self.note == other.note
    }

    fn kind(&self) -> Kind {
        let states = [self.from_state, self.to_state, self.from_execution, self.to_execution, self.failure];
        Kind { at: self.at, role: self.role, command: self.command, states }
    }

    /// Something a person or the orchestrator did to a job.
    pub fn of_job(
        job: JobId,
        role: &'static str,
        command: &'static str,
        note: Option<String>,
        now: Millis,
    ) -> Self {
        AuditRow { at: now.0, job_id: Some(job.0), role, command, note, ..AuditRow::default() }
    }

    pub fn between(self, from: rules::job::State, to: rules::job::State) -> Self {
        AuditRow { from_state: Some(from.as_str()), to_state: Some(to.as_str()), ..self }
    }

    /// Something that happened to a video.
    pub fn of_video(
        video: VideoId,
        job: Option<JobId>,
        role: &'static str,
        command: &'static str,
        note: String,
        now: Millis,
    ) -> Self {
        AuditRow {
            at: now.0,
            job_id: job.map(|job| job.0),
            video_id: Some(video.0),
            role,
            command,
            note: Some(note),
            ..AuditRow::default()
        }
    }

    /// A worker has come.
    pub fn of_new_worker(worker: WorkerId, now: Millis) -> Self {
        let to = rules::worker::Status::Active;
        AuditRow {
            at: now.0,
            worker_id: Some(worker),
            role: "worker",
            command: "register",
            to_state: Some(to.as_str()),
            ..AuditRow::default()
        }
    }

    /// A change of a worker's status.
    pub fn of_worker(
        worker: WorkerId,
        role: &'static str,
        command: &'static str,
        between: (rules::worker::Status, rules::worker::Status),
        now: Millis,
    ) -> Self {
        AuditRow {
            at: now.0,
            worker_id: Some(worker),
            role,
            command,
            from_state: Some(between.0.as_str()),
            to_state: Some(between.1.as_str()),
            ..AuditRow::default()
        }
    }
}

/// Commands as they are audited.
pub(crate) const START: &str = "start";
pub(crate) const COMMIT: &str = "commit";
pub(crate) const SETTLE: &str = "settle";

/// The rows for the moves of tasks that one transaction makes.
pub(crate) fn joined(mut moves: Vec<AuditRow>) -> Vec<AuditRow> {
    moves.sort_by_key(|row| row.task_id);
    moves.dedup_by(|later, row| row.take(later));
    gathered(moves)
}

/// One row for each run, of moves that are sorted by task. Second moves go behind all first ones, so that the rows of each
/// task stay in order.
fn gathered(mut moves: Vec<AuditRow>) -> Vec<AuditRow> {
    for of_task in moves.chunk_by_mut(|row, later| row.task_id == later.task_id) {
        of_task.iter_mut().enumerate().for_each(|(turn, row)| row.turn = turn);
    }
    moves.sort_by_key(|row| row.turn);
    moves.dedup_by(|next, run| run.grow(next));
    moves
}

macro_rules! insert {
    ($column:literal, $value:literal) => {
        concat!(
            "
INSERT INTO audit (at, job_id, task_id, tasks, video_id, fence, worker_id, role, command, from_state, to_state,
                   from_execution, to_execution, failure, note",
            $column,
            ")
SELECT $1, r.job_id, r.task_id, r.tasks, r.video_id, r.fence, r.worker_id, $2, $3, $4, $5, $6, $7, $8, r.note",
            $value,
            "
FROM json_to_recordset($9::json) AS r(job_id BIGINT, task_id BIGINT, tasks BIGINT, video_id BIGINT, fence BIGINT,
     worker_id TEXT, note TEXT)"
        )
    };
}
const INSERT: &str = insert!("", "");

/// PostgreSQL: the transaction's number, asked for once. The column's default would be worked out for each row.
const INSERT_NUMBERED: &str = insert!(", xact", ", (SELECT pg_current_xact_id()::TEXT::BIGINT)");

/// Rows of all kinds in one statement, which is less work while there are few.
const INSERT_FEW: &str = "
INSERT INTO audit (at, job_id, task_id, tasks, video_id, fence, worker_id, role, command, from_state, to_state,
                   from_execution, to_execution, failure, note)
SELECT r.at, r.job_id, r.task_id, r.tasks, r.video_id, r.fence, r.worker_id, r.role, r.command, r.from_state, r.to_state,
       r.from_execution, r.to_execution, r.failure, r.note
FROM json_to_recordset($1::json) AS r(at BIGINT, job_id BIGINT, task_id BIGINT, tasks BIGINT, video_id BIGINT, fence BIGINT,
     worker_id TEXT, role TEXT, command TEXT, from_state TEXT, to_state TEXT, from_execution TEXT, to_execution TEXT, failure TEXT, note TEXT)";
const FEW: usize = 32;

/// What many rows of one transaction have in common: sent once, and not with each.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    at: i64,
    role: &'static str,
    command: &'static str,
    states: [Option<&'static str>; 5],
}

pub(crate) async fn insert(tx: &mut Tx, rows: &[AuditRow]) -> Result<()> {
    match rows.len() {
        0 => return Ok(()),
        1..FEW => return tx.query(INSERT_FEW).rows(rows).execute().await.map(drop),
        _ => {}
    }
    let insert = if tx.is_postgres() { INSERT_NUMBERED } else { INSERT };
    for ((_, kind), rows) in grouped(rows) {
        let mut query = tx.query(insert).bind(kind.at).bind(kind.role).bind(kind.command);
        for state in kind.states {
            query = query.bind(state.map(str::to_owned));
        }
        query.rows(&rows).execute().await?;
    }
    Ok(())
}

/// By turn, for the rows of each task stay in order; then by kind.
fn grouped(rows: &[AuditRow]) -> BTreeMap<(usize, Kind), Vec<&AuditRow>> {
    let mut groups: BTreeMap<(usize, Kind), Vec<&AuditRow>> = BTreeMap::new();
    for row in rows {
        groups.entry((row.turn, row.kind())).or_default().push(row);
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A move that all of these make, told of one task.
    fn moved(task: i64) -> AuditRow {
        let (job_id, worker_id) = (Some(1), Some(WorkerId(uuid::Uuid::nil())));
        AuditRow {
            at: 5,
            job_id,
            task_id: Some(task),
            fence: Some(1),
            worker_id,
            role: "worker",
            command: "fail",
            ..AuditRow::default()
        }
    }

    fn runs(moves: Vec<AuditRow>) -> Vec<(i64, i64)> {
        joined(moves).iter().map(|row| (row.task_id.unwrap_or_default(), row.tasks.0)).collect()
    }

    #[test]
    fn tasks_that_moved_alike_are_one_run_in_whatever_order_they_came() {
        assert_eq!(runs([3, 1, 2, 5, 4].map(moved).into()), [(1, 5)]);
        assert_eq!(runs([1, 2, 4, 5, 7].map(moved).into()), [(1, 2), (4, 2), (7, 1)]);
    }

    #[test]
    fn whatever_differs_ends_a_run() {
        let worker_id = Some(WorkerId(uuid::Uuid::max()));
        for other in [
            AuditRow { at: 6, ..moved(2) },
            AuditRow { job_id: Some(2), ..moved(2) },
            AuditRow { video_id: Some(1), ..moved(2) },
            AuditRow { fence: Some(2), ..moved(2) },
            AuditRow { worker_id, ..moved(2) },
            AuditRow { role: "orchestrator", ..moved(2) },
            AuditRow { command: "recover", ..moved(2) },
            AuditRow { from_state: Some("READY"), ..moved(2) },
            AuditRow { to_state: Some("READY"), ..moved(2) },
            AuditRow { from_execution: Some("LEASED"), ..moved(2) },
            AuditRow { to_execution: Some("LEASED"), ..moved(2) },
            AuditRow { failure: Some("transient"), ..moved(2) },
            AuditRow { note: Some("another".into()), ..moved(2) },
        ] {
            let differs = format!("{other:?}");
            assert_eq!(runs(vec![moved(1), other, moved(3)]), [(1, 1), (2, 1), (3, 1)], "{differs}");
        }
    }

    #[test]
    fn second_moves_are_runs_behind_the_first_ones() {
        let again = |task| AuditRow { command: "judge", ..moved(task) };

        let rows = joined(vec![moved(1), again(1), moved(2), again(2), moved(3)]);

        let said: Vec<_> = rows.iter().map(|row| (row.command, row.task_id, row.tasks.0)).collect();
        assert_eq!(said, [("fail", Some(1), 3), ("judge", Some(1), 2)]);
    }
}
