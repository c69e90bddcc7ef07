//! Leases of workers that are known to be dead: they need not run out first.
//!
//! A death counts as an attempt at everything the worker was doing, because the work may have killed it: a task that
//! kills each process that tries it ends as a failure. Only work of a process that a person has ended is free
//! ([`Death::ByPerson`]), and work that got on: an execution that left more durable progress than those before it
//! ([`failure::Kind::Interrupted`]).
//!
//! The tasks that die with a worker are suspects, and most of them are innocent. One that has a single attempt left is
//! therefore tried while hardly any other such task is ([`last_chances`]), so that the guilty one cannot take an innocent one's last
//! attempt with it.

use crate::Store;
use crate::alert;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use crate::from_row::row;
use crate::job::retry_policies;
use crate::log::{self, Level, NewLog};
use crate::moves::{Moves, Words};
use crate::recover::Recovered;
use crate::task::{self, Busy, Loaded, select_tasks};
use crate::wake::Topic;
use crate::witness;
use rules::backoff::Jitter;
use rules::task::{Command, Death, Next, State};
use rules::{ExecutionId, Fence, Millis, TaskId, WorkerId, failure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashMap;

const HELD: &str = "
SELECT id, fence FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL AND ($1 = '' OR worker_id = $1)
ORDER BY id";

/// The worker in the process of the server that was started last.
const SERVER_WORKER: &str = "server_worker";

const NOTE_SERVER_WORKER: &str = "
INSERT INTO setting (name, value) VALUES ('server_worker', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

impl Store {
    /// Releases all leases. The caller must know that no worker of this database is alive, as the holder of the only lock
    /// to its folder does. Returns how many leases there were.
    pub async fn lose_all_workers(&self, death: Death) -> Result<usize> {
        self.lose(String::new(), death).await
    }

    /// Releases the leases of the worker in the server process before this one. The holder of the database's lock knows
    /// that this process is dead. Every other worker, also one on this machine, may be alive and keeps its leases.
    pub async fn lose_server_worker(&self) -> Result<usize> {
        let before = self.setting(SERVER_WORKER).await?.and_then(|id| id.parse().ok());
        match before {
            Some(worker) => self.lose_worker(worker, Death::Unexplained).await,
            None => Ok(0),
        }
    }

    /// Releases the leases of one worker.
    pub async fn lose_worker(&self, worker: WorkerId, death: Death) -> Result<usize> {
        self.lose(worker.to_string(), death).await
    }

    async fn lose(&self, worker: String, death: Death) -> Result<usize> {
        let mut read = self.db.look().await?;
        let held: Vec<(i64, i64)> = read.query(HELD).bind(worker).all().await?;
        drop(read);
        if held.is_empty() {
            return Ok(0);
        }
        let held: HashMap<TaskId, Fence> =
            held.into_iter().map(|(id, fence)| (TaskId(id), Fence(fence))).collect();
        let lost = again(|| self.lose_once(&held, death)).await?;
        self.wake.up(Topic::Judge);
        Ok(lost)
    }

    async fn lose_once(&self, held: &HashMap<TaskId, Fence>, death: Death) -> Result<usize> {
        let mut tx = self.db.write(Step::LoseWorker).await?;
        let policies = retry_policies(&mut tx, held.keys().map(|id| id.job())).await?;
        let mut moves = Moves::new(tx.now());
        let (mut lost, mut logs, mut alerts) = (0, Vec::new(), Vec::new());
        let mut dead = Vec::new();
        for mut task in task::lock(&mut tx, held.keys().copied(), Busy::Wait).await? {
            let State::Running { lease, .. } = task.task.state.clone() else { continue };
            // Another worker may have claimed it meanwhile.
            if held.get(&task.id) != Some(&task.task.fence) {
                continue;
            }
            let command = Command::LoseWorker {
                death,
                backoff: policies.get(&task.id.job()).copied().unwrap_or_default(),
                jitter: Jitter(rand::random_range(0..=1000)),
            };
            let note = match death {
                Death::Unexplained => format!("worker {} died while working on it", lease.worker),
                Death::ByPerson => format!("worker {} was ended", lease.worker),
            };
            let words = Words { note: Some(note.clone()), ..Words::default() };
            if moves.make(&mut task, &command, words).is_err() {
                continue;
            }
            lost += 1;
            let execution = ExecutionId { task: task.id, fence: task.task.fence, token: lease.token };
            logs.push(NewLog::of_task(task.id, Level::Warn, format!("execution {execution}: {note}")));
            if death == Death::Unexplained {
                let worker = lease.worker.to_string();
                let now = task.task.state.name();
                let stale = Recovered { task: task.id, execution, worker, now };
                alerts.push(stale.alert());
                dead.push(lease.worker);
            }
        }
        moves.save(&mut tx).await?;
        log::insert(&mut tx, &logs).await?;
        // A worker that comes back at once must not use up all attempts of a task that another could do.
        let now = tx.now();
        witness::have_failed(&mut tx, dead.into_iter(), now).await?;
        alert::raise(&mut tx, alerts).await?;
        moves.count_failures(&mut tx);
        tx.commit().await?;
        Ok(lost)
    }
}

/// Notes which worker is to be lost when the next server finds this one dead.
pub(crate) async fn note_server_worker(tx: &mut Tx, worker: WorkerId) -> Result<()> {
    tx.query(NOTE_SERVER_WORKER).bind(worker.to_string()).execute().await.map(drop)
}

/// Tasks whose last attempt is due after they lost their worker. [`crate::judge`] passes over these.
const LAST_CHANCES: &str = select_tasks!(
    "FROM task t
WHERE t.due_at IS NOT NULL AND t.due_at <= $1
  AND t.failure IN ('worker_lost', 'lease_expired') AND t.attempts > 0 AND t.attempts = t.max_attempts - 1
ORDER BY t.due_at, t.id LIMIT $2"
);

const TRIALS: &str = "SELECT value FROM setting WHERE name = 'tasks_on_trial'";

const SET_TRIALS: &str = "
INSERT INTO setting (name, value) VALUES ('tasks_on_trial', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const WORKERS: &str = "SELECT count(*) FROM worker WHERE status IN ('active', 'idle', 'busy')";

/// One task is on trial for this many workers: two hardly ever meet in one process.
const WORKERS_PER_TRIAL: i64 = 4;

/// Others do not wait for a task on trial that no worker can do, nor for one that takes long: by then it would have
/// killed its worker.
const MOST_READY: Millis = Millis::from_secs(60);
const MOST_RUNNING: Millis = Millis::from_secs(600);

/// A task that is using its last attempt, and since when.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Trial {
    task: TaskId,
    since: Millis,
}

/// The tasks that may use their last attempt now.
pub(crate) async fn last_chances(tx: &mut Tx) -> Result<Vec<TaskId>> {
    let now = tx.now();
    let (workers,): (i64,) = tx.query(WORKERS).one().await?;
    let most = (workers / WORKERS_PER_TRIAL).max(1);
    let found: Vec<_> = tx.query(LAST_CHANCES).bind(now).bind(most).all().await?;
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let free = usize::try_from(most).unwrap_or(1).saturating_sub(on_trial(tx).await?.len());
    Ok(task::loaded(found)?.iter().take(free).map(|task| task.id).collect())
}

/// Whether the task is one that [`last_chances`] gives.
pub(crate) fn is_last_chance(task: &Loaded) -> bool {
    let is_suspect = match task.task.state {
        State::Error { failure, next: Next::RetryAt(_) } => failure.is_of_the_worker(),
        _ => false,
    };
    is_suspect && task.task.attempts > 0 && task.task.attempts + 1 == task.task.max_attempts
}

/// The tasks that are using their last attempt now, after workers died while working on them.
pub(crate) async fn on_trial(tx: &mut Tx) -> Result<Vec<TaskId>> {
    Ok(trials(tx).await?.into_iter().map(|trial| trial.task).collect())
}

async fn trials(tx: &mut Tx) -> Result<Vec<Trial>> {
    let found: Option<(String,)> = tx.query(TRIALS).optional().await?;
    let mut trials: Vec<Trial> =
        found.and_then(|(trials,)| serde_json::from_str(&trials).ok()).unwrap_or_default();
    if trials.is_empty() {
        return Ok(trials);
    }
    let now = tx.now();
    let tasks = task::look(tx, trials.iter().map(|trial| trial.task)).await?;
    trials.retain(|trial| {
        let task = tasks.iter().find(|task| task.id == trial.task);
        task.is_some_and(|task| match task.task.state {
            State::Ready { .. } => now < trial.since + MOST_READY,
            State::Running { .. } => now < trial.since + MOST_RUNNING,
            State::New | State::Done { .. } | State::Error { .. } => false,
        })
    });
    Ok(trials)
}

/// Remembers which tasks begin to use their last attempt.
pub(crate) async fn put_on_trial(tx: &mut Tx, tasks: &[TaskId]) -> Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    let since = tx.now();
    let mut all = trials(tx).await?;
    all.extend(tasks.iter().map(|&task| Trial { task, since }));
    tx.query(SET_TRIALS).bind(serde_json::to_string(&all)?).execute().await.map(drop)
}

const DEATHS: &str = "
SELECT e.worker_id, w.name, e.failure
FROM execution_aborted e LEFT JOIN worker w ON w.id = e.worker_id
WHERE e.task_id = $1 AND e.failure IN ('worker_lost', 'lease_expired')
ORDER BY e.fence DESC LIMIT $2";

const PLACE: &str = "
SELECT s.name, s.tasks, t.segment, t.attempts, t.failure, i.input
FROM task t
JOIN stage s ON s.job_id = $1 AND s.position = t.stage
LEFT JOIN task_input i ON i.task_id = t.id
WHERE t.id = $2";

row! {
    struct PlaceRow {
        name: String,
        tasks: i64,
        segment: i64,
        attempts: i64,
        failure: Option<String>,
        input: Option<String>,
    }
}

/// What a task that has failed for good did to its workers, if it lost the last of them: which task, and which workers.
pub(crate) async fn account(tx: &mut Tx, task: TaskId) -> Result<Option<String>> {
    let place: Option<PlaceRow> = tx.query(PLACE).bind(task.job()).bind(task).optional().await?;
    let Some(place) = place else { return Ok(None) };
    if !failure::Kind::read(place.failure.as_deref().unwrap_or_default()).is_of_the_worker() {
        return Ok(None);
    }
    let mut deaths: Vec<(String, Option<String>, String)> =
        tx.query(DEATHS).bind(task).bind(place.attempts).all().await?;
    deaths.reverse();
    Ok(Some(format!("{}: {}", place.says(), told(&deaths))))
}

impl PlaceRow {
    fn says(&self) -> String {
        let input: Option<Value> = self.input.as_deref().and_then(|input| serde_json::from_str(input).ok());
        let chunk = input.as_ref().and_then(|input| input.pointer("/chunk/number")?.as_u64());
        match (chunk, input.as_ref().and_then(seconds)) {
            (Some(chunk), Some((from, to))) => {
                format!("chunk {chunk} of {} ({from:.0}–{to:.0} s)", self.name)
            }
            (Some(chunk), None) => format!("chunk {chunk} of {}", self.name),
            (None, _) if self.tasks > 1 => format!("task {} of {}", self.segment, self.name),
            (None, _) => self.name.clone(),
        }
    }
}

/// Which part of the video a plan says that the task covers.
fn seconds(input: &Value) -> Option<(f64, f64)> {
    let covers = input.get("covers_seconds")?;
    Some((covers.get(0)?.as_f64()?, covers.get(1)?.as_f64()?))
}

fn told(deaths: &[(String, Option<String>, String)]) -> String {
    let is_silent =
        |(_, _, failure): &(String, Option<String>, String)| failure == failure::Kind::LeaseExpired.as_str();
    let verb = if deaths.iter().any(is_silent) { "died or fell silent" } else { "died" };
    let name = |(id, name, _): &(String, Option<String>, String)| match name {
        Some(name) if !name.is_empty() => format!("{name} ({id})"),
        _ => id.clone(),
    };
    let mut names: Vec<String> = deaths.iter().map(name).collect();
    names.dedup();
    match (deaths.len(), names.as_slice()) {
        (1, [one]) => format!("a worker {verb} while working on it: {one}"),
        (times, [one]) => format!("its worker {verb} {times} times while working on it: {one}"),
        (times, _) => format!("{times} workers {verb} while working on it: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn place(tasks: i64, input: Option<Value>) -> PlaceRow {
        let input = input.map(|input| input.to_string());
        PlaceRow { name: "encode".into(), tasks, segment: 2, attempts: 3, failure: None, input }
    }

    #[test]
    fn a_place_says_what_of_the_video_it_is() {
        let chunk = json!({ "chunk": { "number": 3 }, "covers_seconds": [72.0, 96.04] });

        assert_eq!(place(9, Some(chunk)).says(), "chunk 3 of encode (72–96 s)");
        assert_eq!(place(9, Some(json!({ "chunk": { "number": 3 } }))).says(), "chunk 3 of encode");
        assert_eq!(place(9, Some(json!(1))).says(), "task 2 of encode");
        assert_eq!(place(1, None).says(), "encode");
    }

    #[test]
    fn deaths_name_the_workers() {
        let death = |id: &str, name: Option<&str>, failure: &str| {
            (id.to_owned(), name.map(str::to_owned), failure.to_owned())
        };
        let lost = |id: &str| death(id, Some("w"), "worker_lost");

        assert_eq!(told(&[lost("1")]), "a worker died while working on it: w (1)");
        assert_eq!(told(&[lost("1"), lost("2")]), "2 workers died while working on it: w (1), w (2)");
        assert_eq!(told(&[lost("1"), lost("1")]), "its worker died 2 times while working on it: w (1)");
        assert_eq!(
            told(&[death("1", None, "lease_expired"), lost("2")]),
            "2 workers died or fell silent while working on it: 1, w (2)"
        );
    }
}
