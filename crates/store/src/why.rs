//! "Why is this waiting?": the state of a job in sentences, worst first.

use crate::Store;
use crate::db::Tx;
use crate::eligibility::{self, BoundsRow};
use crate::error::Result;
use crate::from_row::row;
use crate::{lane, lost_worker, queue};
use rules::job::State;
use rules::placement::Capabilities;
use rules::{JobId, Millis, TaskId, failure};
use serde::{Deserialize, Serialize};

#[derive(utoipa::ToSchema, Debug, Clone, Serialize, Deserialize)]
pub struct Why {
    #[schema(value_type = i64)]
    pub job: JobId,
    #[schema(value_type = String)]
    pub state: State,
    /// What it waits for or why it ended, in a person's words.
    pub reasons: Vec<String>,
}

/// Reasons of one kind that are listed one by one.
const FEW: i64 = 5;

const RUNNING: &str = "
SELECT t.id, s.name, t.worker_id, w.name, t.leased_at, t.lease_expires_at, t.permille
FROM task t
JOIN stage s ON s.job_id = $3 AND s.position = t.stage
LEFT JOIN worker w ON w.id = t.worker_id
WHERE t.id BETWEEN $1 AND $2 AND t.state = 'RUNNING'
ORDER BY t.lease_expires_at LIMIT $4";

const READY: &str = "
SELECT t.lane_id, t.owner_id, s.name, count(*), min(t.queued_at), max(t.priority)
FROM task t JOIN stage s ON s.job_id = $3 AND s.position = t.stage
WHERE t.id BETWEEN $1 AND $2 AND t.state = 'READY'
GROUP BY t.lane_id, t.owner_id, s.name, s.position ORDER BY s.position";

const AHEAD: &str = "
SELECT count(*) FROM (
    SELECT id FROM task
    WHERE lane_id = $1 AND owner_id = $2 AND queued_at IS NOT NULL
      AND (priority > $3 OR (priority = $3 AND queued_at < $4))
    LIMIT 10001
) ahead";

const RETRYING: &str = "
SELECT t.id, t.due_at, t.attempts, t.max_attempts, t.failure, e.error, coalesce(w.name, e.worker_id)
FROM task t
LEFT JOIN execution_aborted e ON e.task_id = t.id AND e.fence = t.fence
LEFT JOIN worker w ON w.id = e.worker_id
WHERE t.id BETWEEN $1 AND $2 AND t.due_at IS NOT NULL
ORDER BY t.due_at LIMIT $3";

const DOUBTED: &str = "
SELECT t.id, e.worker_id, w.name, e.error
FROM task t
JOIN execution_aborted e ON e.task_id = t.id AND e.failure = 'unconfirmed'
LEFT JOIN worker w ON w.id = e.worker_id
WHERE t.id BETWEEN $1 AND $2 AND t.state IN ('READY', 'RUNNING')
ORDER BY t.id, e.fence LIMIT $3";

const STAGES: &str = "
SELECT position, name, needs, expands, is_expanded, is_released, tasks, open FROM stage
WHERE job_id = $1 ORDER BY position";

const UNSETTLED: &str = "
SELECT count(*), coalesce(min(committed_at), 0) FROM task
WHERE id BETWEEN $1 AND $2 AND committed_at IS NOT NULL AND finished_at IS NULL";

row! {
    struct StageRow {
        position: i64,
        name: String,
        needs: String,
        expands: Option<i64>,
        is_expanded: bool,
        is_released: bool,
        tasks: i64,
        open: i64,
    }
}

impl Store {
    /// Explains a job: what runs, what waits and for what, what failed.
    pub async fn why(&self, id: JobId) -> Result<Why> {
        let seen = self.job(id).await?;
        let mut reasons = Vec::new();
        match seen.state {
            State::Completed => reasons.push("It is completed: nothing is left to do.".into()),
            State::Failed => reasons.push(format!(
                "It has failed: {}. `vodmill job retry {id}` tries again and keeps what was done.",
                seen.error.as_deref().unwrap_or("no reason was recorded")
            )),
            State::Cancelled => reasons.push("It was cancelled.".into()),
            _ => {
                let mut tx = self.db.read().await?;
                running(&mut tx, id, &mut reasons).await?;
                retrying(&mut tx, id, &mut reasons).await?;
                self.ready(&mut tx, id, &mut reasons).await?;
                doubted(&mut tx, id, &mut reasons).await?;
                unsettled(&mut tx, id, &mut reasons).await?;
                waiting(&mut tx, id, &mut reasons).await?;
            }
        }
        Ok(Why { job: id, state: seen.state, reasons })
    }

    async fn ready(&self, tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
        let (first, last) = TaskId::range(id);
        let now = tx.now();
        let rows: Vec<(i64, i64, String, i64, i64, i64)> =
            tx.query(READY).bind(first).bind(last).bind(id).all().await?;
        for (lane_id, owner, stage, count, since, priority) in rows {
            let asks = lane::asks(tx, lane_id).await?;
            let live = eligibility::live(tx, now - self.options.offline_after).await?;
            let fleet = Fleet::of(&live, &asks.asks, &owner_name(tx, owner).await?)?;
            let (ahead,): (i64,) =
                tx.query(AHEAD).bind(lane_id).bind(owner).bind(priority).bind(since).one().await?;
            let limit = self.options.max_running_per_user.map(i64::from);
            let is_at_limit = match limit {
                Some(limit) => queue::running(tx, owner).await? >= limit,
                None => false,
            };
            let waits = span(now - Millis(since));
            let tasks = of_stage(count, &stage);
            let resting = lane::resting(tx, now - self.options.offline_after).await?;
            reasons.push(if live.is_empty() && !resting.is_empty() {
                format!(
                    "{tasks} READY for {waits}, and every worker was told to take nothing new: {}. \
                     `vodmill workers enable` lets one go on.",
                    resting.join(", ")
                )
            } else if live.is_empty() {
                format!(
                    "{tasks} READY for {waits}, and no worker is running: start one with `vodmill worker`."
                )
            } else if fleet.takers.is_empty() {
                format!("{tasks} READY for {waits}, and {}.", fleet.lack(&asks.asks))
            } else if let Some(refusals) = fleet.refusals() {
                let few: Vec<_> = refusals.iter().take(FEW as usize).map(String::as_str).collect();
                format!(
                    "{tasks} READY for {waits}, and every worker that could do it takes nothing new for now: {}.",
                    few.join("; ")
                )
            } else if let Some(limit) = limit.filter(|_| is_at_limit) {
                format!("{tasks} READY for {waits}; its user has {limit} running, as many as may.")
            } else {
                format!("{tasks} READY for {waits}, waiting for a free worker; {} ahead.", more(ahead))
            });
        }
        Ok(())
    }
}

/// What the workers that are there mean for one queue.
struct Fleet {
    /// For each worker that may do the work, why it takes nothing new for now, if it says so.
    takers: Vec<Option<String>>,
    /// Workers that could do the work, and are bound to other users or to another pool.
    restricted: Vec<String>,
}

impl Fleet {
    fn of(live: &[BoundsRow], asks: &Capabilities, user: &str) -> Result<Self> {
        let mut fleet = Fleet { takers: Vec::new(), restricted: Vec::new() };
        for row in live {
            let it = row.eligibility()?;
            if it.serves(user) && it.may_take(asks) {
                fleet.takers.push(row.refusal.as_ref().map(|refusal| format!("{}: {refusal}", row.name)));
            } else if it.is_able(asks) {
                let bound = it.restriction().unwrap_or_else(|| "no pool".into());
                fleet.restricted.push(format!("{} ({bound})", row.name));
            }
        }
        Ok(fleet)
    }

    /// Why every worker that may do the work takes nothing new. None: at least one takes work.
    fn refusals(&self) -> Option<Vec<String>> {
        self.takers.iter().cloned().collect()
    }

    fn lack(&self, asks: &Capabilities) -> String {
        match self.restricted.as_slice() {
            [] => format!("none of the workers can do it: it asks for `{asks}`"),
            all => {
                let few: Vec<&str> = all.iter().take(FEW as usize).map(String::as_str).collect();
                format!(
                    "the workers that could do it are restricted to other pools or users: {}; it asks for `{asks}`",
                    few.join(", ")
                )
            }
        }
    }
}

async fn owner_name(tx: &mut Tx, owner: i64) -> Result<String> {
    Ok(lane::owners(tx, [owner].into_iter()).await?.remove(&owner).unwrap_or_default())
}

async fn running(tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
    type Row = (i64, String, String, Option<String>, i64, i64, Option<i64>);
    let (first, last) = TaskId::range(id);
    let now = tx.now();
    let rows: Vec<Row> = tx.query(RUNNING).bind(first).bind(last).bind(id).bind(FEW).all().await?;
    for (task, stage, worker, name, since, until, permille) in rows {
        let (task, on) = (TaskId(task), name.unwrap_or(worker));
        let far = permille.map(|p| format!(", {} % done", p / 10)).unwrap_or_default();
        reasons.push(if until <= now.0 {
            format!(
                "Task {task} (stage {stage}) was running on worker {on}, whose lease expired {} ago; it is taken back \
                 by the next look of an orchestrator. If this stays, no orchestrator is running.",
                span(now - Millis(until))
            )
        } else {
            format!("Task {task} (stage {stage}) runs on worker {on} for {}{far}.", span(now - Millis(since)))
        });
    }
    Ok(())
}

async fn retrying(tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
    type Row = (i64, i64, i64, i64, Option<String>, Option<String>, Option<String>);
    let (first, last) = TaskId::range(id);
    let now = tx.now();
    let rows: Vec<Row> = tx.query(RETRYING).bind(first).bind(last).bind(FEW).all().await?;
    let on_trial = lost_worker::on_trial(tx).await?;
    for (task, due_at, attempts, max_attempts, failure, error, worker) in rows {
        let is_due = due_at <= now.0 && attempts + 1 == max_attempts;
        let failure = failure::Kind::read(failure.as_deref().unwrap_or_default());
        if let Some(other) = on_trial.first().filter(|_| is_due && failure.is_of_the_worker()) {
            let task = TaskId(task);
            reasons.push(format!(
                "Task {task} failed {attempts} of {max_attempts} times and may have killed its workers. It waits for its \
                 last attempt until task {other} has ended its own, so that neither can spoil the other's."
            ));
            continue;
        }
        let (task, again) = (TaskId(task), span(Millis(due_at) - now));
        let error = error.unwrap_or_else(|| "no reason was recorded".into());
        let worker = worker.unwrap_or_default();
        reasons.push(match failure {
            failure::Kind::StorageAway => format!(
                "Task {task} waits for the storage and is tried again in {again}; that uses up none of its \
                 {max_attempts} attempts: {error}."
            ),
            failure::Kind::DiskFull => format!(
                "The disk of worker {worker} was full when it worked on task {task}, which is tried again in {again}, \
                 elsewhere if another worker can do it; that uses up none of its {max_attempts} attempts: {error}."
            ),
            failure::Kind::Interrupted => format!(
                "Task {task} was interrupted after it had got on, and is continued in {again}; that uses up none of its \
                 {max_attempts} attempts: {error}."
            ),
            _ => format!(
                "Task {task} failed {attempts} of {max_attempts} times and is looked at again in {again}: {error}."
            ),
        });
    }
    Ok(())
}

/// What a remote worker calls hopeless, and nobody has confirmed.
async fn doubted(tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
    type Row = (i64, String, Option<String>, Option<String>);
    let (first, last) = TaskId::range(id);
    let rows: Vec<Row> = tx.query(DOUBTED).bind(first).bind(last).bind(FEW).all().await?;
    for (task, worker, name, error) in rows {
        let (task, worker) = (TaskId(task), name.unwrap_or(worker));
        let error = error.unwrap_or_else(|| "no reason was given".into());
        reasons.push(format!(
            "Worker {worker} reports a permanent failure of task {task}: {error}. The job fails at once if another worker \
             or the server confirms it. {worker} itself cannot: if it reports it again, that uses up an attempt."
        ));
    }
    Ok(())
}

async fn unsettled(tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
    let (first, last) = TaskId::range(id);
    let now = tx.now();
    let (count, since): (i64, i64) = tx.query(UNSETTLED).bind(first).bind(last).one().await?;
    if count > 0 {
        let waits = span(now - Millis(since));
        reasons.push(format!(
            "{} committed, and not settled for {waits}: an orchestrator does that.",
            tasks(count)
        ));
    }
    Ok(())
}

async fn waiting(tx: &mut Tx, id: JobId, reasons: &mut Vec<String>) -> Result<()> {
    let stages: Vec<StageRow> = tx.query(STAGES).bind(id).all().await?;
    let is_finished = |stage: &StageRow| stage.is_expanded && stage.is_released && stage.open == 0;
    for stage in stages.iter().filter(|stage| !stage.is_released) {
        let needs: Vec<i64> = serde_json::from_str(&stage.needs)?;
        let left = |need: &StageRow| match need.is_expanded {
            true => format!("{} ({} of {} left)", need.name, need.open, need.tasks),
            false => format!("{} (not planned yet)", need.name),
        };
        let open: Vec<String> = stages
            .iter()
            .filter(|need| needs.contains(&need.position) && !is_finished(need))
            .map(left)
            .collect();
        let planned = if stage.expands.is_some() && !stage.is_expanded {
            ", whose plan says what it has to do"
        } else {
            ""
        };
        reasons.push(format!("Stage {} waits for {}{planned}.", stage.name, open.join(" and ")));
    }
    Ok(())
}

fn of_stage(count: i64, stage: &str) -> String {
    match count {
        1 => format!("1 task of stage {stage} is"),
        _ => format!("{count} tasks of stage {stage} are"),
    }
}

fn tasks(count: i64) -> String {
    if count == 1 { "1 task is".into() } else { format!("{count} tasks are") }
}

fn more(ahead: i64) -> String {
    match ahead {
        0 => "nothing is".into(),
        1 => "1 task is".into(),
        10_001.. => "more than 10,000 tasks are".into(),
        _ => format!("{ahead} tasks are"),
    }
}

fn span(of: Millis) -> String {
    match of.0.max(0) {
        ms @ 0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        ms @ 10_000..600_000 => format!("{} s", ms / 1000),
        ms @ 600_000..36_000_000 => format!("{} min", ms / 60_000),
        ms => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_said_as_people_say_them() {
        let said = [-5, 0, 9_999, 10_000, 599_999, 600_000, 36_000_000].map(|ms| span(Millis(ms)));

        assert_eq!(said, ["0.0 s", "0.0 s", "9.9 s", "10 s", "599 s", "10 min", "10 h"]);
    }

    #[test]
    fn counts_are_said_in_good_grammar() {
        assert_eq!(of_stage(1, "a"), "1 task of stage a is");
        assert_eq!(of_stage(2, "a"), "2 tasks of stage a are");
        let ahead = [0, 1, 2, 10_000, 10_001].map(more);
        let expected =
            ["nothing is", "1 task is", "2 tasks are", "10000 tasks are", "more than 10,000 tasks are"];
        assert_eq!(ahead, expected);
    }
}
