//! Recovery: leases that ran out. Only the lost task is done again.

use crate::Store;
use crate::alert::{self, Alert, Kind};
use crate::db::{Clock, Step, Tx, again};
use crate::error::Result;
use crate::log::{self, Level, NewLog};
use crate::moves::{Moves, Words};
use crate::readied::Readied;
use crate::task::{self, Busy};
use crate::wake::Topic;
use crate::witness;
use rules::task::{Command, Name, State};
use rules::{ExecutionId, TaskId};
use serde_json::json;
use telemetry::metrics::LEASES_EXPIRED;

/// Scans what is open, which is as small as the fleet; an index on the expiry would make each renewal dearer.
const EXPIRED: &str = "
SELECT id FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL AND lease_expires_at <= $1
ORDER BY id LIMIT $2";

/// By the clock on its wall: less than nothing if that was set back since.
const SERVER_AGE: &str =
    "SELECT (extract(epoch FROM clock_timestamp() - pg_postmaster_start_time()) * 1000)::BIGINT";

/// One recovered lease, for whoever wants to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    pub task: TaskId,
    pub execution: ExecutionId,
    pub worker: String,
    /// READY: it will be done again. ERROR: it had no attempt left.
    pub now: Name,
}

impl Recovered {
    pub(crate) fn alert(&self) -> Alert {
        let Recovered { task, execution, worker, now } = self;
        Alert {
            kind: Kind::StaleJobRecovered,
            key: format!("{task}_{}_{}", execution.fence, execution.token),
            job: Some(task.job()),
            data: json!({ "job": task.job(), "task": task, "attempt": execution.fence, "execution": execution, "worker": worker, "state": now.as_str() }),
        }
    }
}

impl Store {
    /// Takes back up to `max` expired leases, with a diagnostic in the job's log for each.
    pub async fn recover(&self, max: i64) -> Result<Vec<Recovered>> {
        let mut read = self.db.look().await?;
        let now = read.now();
        if self.is_just_started(&mut read).await? {
            return Ok(Vec::new());
        }
        let found: Vec<(i64,)> = read.query(EXPIRED).bind(now).bind(max).all().await?;
        drop(read);
        if found.is_empty() {
            return Ok(Vec::new());
        }
        let found: Vec<TaskId> = found.into_iter().map(|(id,)| TaskId(id)).collect();
        let (recovered, readied) = again(|| self.recover_once(&found)).await?;
        self.wake.ready(readied);
        LEASES_EXPIRED.add([], recovered.len() as f64);
        if !recovered.is_empty() {
            self.wake.up(Topic::Judge);
        }
        Ok(recovered)
    }

    /// A server that was away has let leases expire that nobody could renew. For one lease after its start nothing is
    /// taken back, so that a restart costs no work.
    async fn is_just_started(&self, tx: &mut Tx) -> Result<bool> {
        if !tx.is_postgres() || !matches!(self.options.clock, Clock::Database) {
            return Ok(false);
        }
        let (age,): (i64,) = tx.query(SERVER_AGE).one().await?;
        Ok((0..self.options.lease.0).contains(&age))
    }

    async fn recover_once(&self, found: &[TaskId]) -> Result<(Vec<Recovered>, Readied)> {
        let mut tx = self.db.write(Step::Recover).await?;
        let mut moves = Moves::new(tx.now());
        let (mut recovered, mut logs, mut alerts) = (Vec::new(), Vec::new(), Vec::new());
        for mut task in task::lock(&mut tx, found.iter().copied(), Busy::Skip).await? {
            let State::Running { lease, .. } = task.task.state.clone() else { continue };
            let late = tx.now() - lease.expires_at;
            let id = ExecutionId { task: task.id, fence: task.task.fence, token: lease.token };
            let note = format!(
                "execution {id} of worker {} was given up: its lease had expired {} ms ago",
                lease.worker, late.0
            );
            let words = Words { note: Some(note.clone()), ..Words::default() };
            if moves.make(&mut task, &Command::Recover, words).is_ok() {
                logs.push(NewLog::of_task(task.id, Level::Warn, note));
                let now = task.task.state.name();
                let lost = Recovered { task: task.id, execution: id, worker: lease.worker.to_string(), now };
                alerts.push(lost.alert());
                recovered.push(lost);
            }
        }
        moves.save(&mut tx).await?;
        log::insert(&mut tx, &logs).await?;
        let (silent, now) = (recovered.iter().filter_map(|it| it.worker.parse().ok()), tx.now());
        witness::have_failed(&mut tx, silent, now).await?;
        alert::raise(&mut tx, alerts).await?;
        moves.count_failures(&mut tx);
        tx.commit().await?;
        Ok((recovered, moves.readied()))
    }
}
