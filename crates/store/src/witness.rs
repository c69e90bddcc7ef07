//! Who reports a failure, and which workers have called the same task hopeless before.

use crate::db::Tx;
use crate::error::Result;
use rules::failure::{Doubt, Witness};
use rules::{Millis, TaskId, WorkerId};
use serde::Serialize;
use std::collections::{BTreeSet, HashMap, HashSet};

const REMOTE: &str = "
SELECT w.id
FROM json_to_recordset($1::json) AS r(id TEXT)
JOIN worker w ON w.id = r.id
WHERE w.kind = 'remote'";

/// What a worker says that is suspended for its false reports confirms nothing.
const UNCONFIRMED: &str = "
SELECT e.task_id, e.worker_id
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN execution_aborted e ON e.task_id = r.id
LEFT JOIN worker w ON w.id = e.worker_id
WHERE e.failure = 'unconfirmed' AND w.suspended IS NULL";

const FAILED: &str = "
UPDATE worker SET failed_at = $1
WHERE kind = 'remote' AND id IN (SELECT id FROM json_to_recordset($2::json) AS r(id TEXT))";

#[derive(Serialize, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    id: String,
}

/// What is known of the workers that report on some tasks.
#[derive(Default)]
pub(crate) struct Witnesses {
    remote: HashSet<WorkerId>,
    /// The remote workers that have called a task hopeless.
    doubters: HashMap<TaskId, HashSet<WorkerId>>,
}

impl Witnesses {
    pub async fn of(tx: &mut Tx, reports: &[(WorkerId, TaskId)]) -> Result<Self> {
        if reports.is_empty() {
            return Ok(Witnesses::default());
        }
        let rows: Vec<(String,)> =
            tx.query(REMOTE).rows(&ids(reports.iter().map(|(worker, _)| *worker))).all().await?;
        let remote: HashSet<WorkerId> = rows.iter().filter_map(|(id,)| id.parse().ok()).collect();
        let of_remote = reports.iter().filter(|(worker, _)| remote.contains(worker)).map(|(_, task)| *task);
        let mut doubters: HashMap<TaskId, HashSet<WorkerId>> = HashMap::new();
        for (task, worker) in unconfirmed(tx, of_remote).await? {
            doubters.entry(task).or_default().insert(worker);
        }
        Ok(Witnesses { remote, doubters })
    }

    pub fn witness(&self, worker: WorkerId, task: TaskId) -> Witness {
        match self.remote.contains(&worker) {
            true => Witness::Remote(self.doubt(worker, task)),
            false => Witness::Server,
        }
    }

    fn doubt(&self, worker: WorkerId, task: TaskId) -> Doubt {
        match self.doubters.get(&task) {
            None => Doubt::Nobody,
            Some(doubters) if doubters.iter().any(|doubter| *doubter != worker) => Doubt::Another,
            Some(_) => Doubt::Itself,
        }
    }
}

/// Which workers have called these tasks hopeless, without being confirmed, and are not suspended.
pub(crate) async fn unconfirmed(
    tx: &mut Tx,
    tasks: impl Iterator<Item = TaskId>,
) -> Result<Vec<(TaskId, WorkerId)>> {
    let tasks: BTreeSet<i64> = tasks.map(|task| task.0).collect();
    if tasks.is_empty() {
        return Ok(Vec::new());
    }
    let rows: Vec<(i64, String)> = tx.query(UNCONFIRMED).ids(tasks).all().await?;
    Ok(rows.into_iter().filter_map(|(task, worker)| Some((TaskId(task), worker.parse().ok()?))).collect())
}

/// Remembers that these workers' executions have ended without a commit: their tasks go to others first.
pub(crate) async fn have_failed(
    tx: &mut Tx,
    workers: impl Iterator<Item = WorkerId>,
    now: Millis,
) -> Result<()> {
    let ids = ids(workers);
    if !ids.is_empty() {
        tx.query(FAILED).bind(now).rows(&ids).execute().await?;
    }
    Ok(())
}

fn ids(workers: impl Iterator<Item = WorkerId>) -> Vec<Id> {
    let ids: BTreeSet<Id> = workers.map(|id| Id { id: id.to_string() }).collect();
    ids.into_iter().collect()
}
