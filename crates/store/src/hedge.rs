//! Hedging: a second task, a *twin*, for a segment whose first sits with a slow worker while others are idle. To the rules
//! a twin is a task like any other; what makes the two one segment is here, in settling and in judging: the first commit
//! counts, and the other of the two is withdrawn, which its worker learns with its next word; and the segment has failed
//! when both have.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::eligibility;
use crate::error::Result;
use crate::job;
use crate::lane;
use crate::log::{self, Level, NewLog};
use crate::moves::{Moves, Words};
use crate::readied::Readied;
use crate::stage::Stages;
use crate::task::{self, Busy, Loaded};
use rules::hedge::Straggler;
use rules::placement::Eligibility;
use rules::task::{Command, Next, State};
use rules::{JobId, Millis, TaskId};
use std::collections::{HashMap, HashSet};
use telemetry::metrics::TASK_HEDGES;

/// The last tasks of their stages: nothing else of the stage waits, and none has a twin yet. A worker need not report that it has
/// started, but it must have renewed its lease: a task that kills its worker at the start would otherwise kill a second one by
/// its twin before the first death has counted.
const STRAGGLERS: &str = "
SELECT t.id, t.worker_id, coalesce(t.started_at, t.leased_at), t.permille, t.lane_id, s.first_task, s.tasks, coalesce(o.name, '')
FROM task t
LEFT JOIN owner o ON o.id = t.owner_id
JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage
WHERE t.leased_at IS NOT NULL AND t.committed_at IS NULL AND s.is_hedged AND t.twin_of IS NULL
  AND (t.started_at IS NOT NULL OR t.lease_expires_at > t.leased_at + $1)
  AND NOT EXISTS (SELECT 1 FROM task w WHERE w.twin_of = t.id)
  AND NOT EXISTS (
      SELECT 1 FROM task q
      WHERE q.id BETWEEN s.first_task AND s.first_task + s.tasks - 1 AND q.state IN ('NEW', 'READY')
  )
ORDER BY coalesce(t.started_at, t.leased_at) LIMIT 100";

const TIMES: &str = "
SELECT wall_ms FROM task
WHERE id BETWEEN $1 AND $2 AND committed_at IS NOT NULL AND wall_ms IS NOT NULL
ORDER BY wall_ms";

const NEXT: &str = "SELECT max(id) + 1 FROM task WHERE id BETWEEN $1 AND $2";

const MAKE: &str = "
INSERT INTO task (id, stage, segment, state, lane_id, owner_id, priority, fence, attempts, max_attempts, updated_at, twin_of)
SELECT $1, stage, segment, 'NEW', lane_id, owner_id, priority, 0, 0, 1, $2, id FROM task WHERE id = $3";

const COPY_INPUT: &str =
    "INSERT INTO task_input (task_id, input) SELECT $1, input FROM task_input WHERE task_id = $2";

const PAIRS: &str = "
SELECT t.id, t.twin_of
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.twin_of = r.id OR (t.id = r.id AND t.twin_of IS NOT NULL)";

const SETTLED: &str = "
SELECT t.id
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN task t ON t.id = r.id AND t.status = 'DONE'";

type Row = (i64, String, Option<i64>, Option<i64>, i64, i64, i64, String);

impl Store {
    /// Makes twins for stragglers, no more than there are idle workers for them; which.
    pub async fn hedge(&self) -> Result<Vec<TaskId>> {
        let mut read = self.db.look().await?;
        let rows: Vec<Row> = read.query(STRAGGLERS).bind(self.options.lease.0).all().await?;
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let since = read.now() - self.options.heartbeat_interval - self.options.heartbeat_interval;
        let mut idle = Vec::new();
        for bounds in eligibility::idle(&mut read, None, since).await? {
            let eligibility = bounds.eligibility()?;
            idle.push((bounds.id, eligibility));
        }
        let mut worthwhile = Vec::new();
        for row in rows {
            if let Some(helper) = helper_for(&mut read, &row, &idle).await?
                && is_slow(&mut read, &row).await?
            {
                idle.remove(helper);
                worthwhile.push(TaskId(row.0));
            }
        }
        drop(read);
        self.make_twins(worthwhile).await
    }

    async fn make_twins(&self, of: Vec<TaskId>) -> Result<Vec<TaskId>> {
        let mut made = Vec::new();
        for task in of {
            if let Some((twin, readied)) = again(|| self.make_twin(task)).await? {
                self.wake.ready(readied);
                made.push(twin);
            }
        }
        TASK_HEDGES.add([], made.len() as f64);
        Ok(made)
    }

    async fn make_twin(&self, of: TaskId) -> Result<Option<(TaskId, Readied)>> {
        let mut tx = self.db.write(Step::Hedge).await?;
        let job = job::lock_one(&mut tx, of.job(), None).await?;
        let original = task::lock(&mut tx, [of], Busy::Wait).await?.pop();
        let is_running = original.is_some_and(|it| matches!(it.task.state, State::Running { .. }));
        let has_twin = pairs(&mut tx, [of]).await?;
        if !job.is_open() || !is_running || !has_twin.is_empty() {
            return Ok(None);
        }
        let (first, last) = TaskId::range(of.job());
        let (next,): (i64,) = tx.query(NEXT).bind(first).bind(last).one().await?;
        let now = tx.now();
        tx.query(MAKE).bind(next).bind(now).bind(of).execute().await?;
        tx.query(COPY_INPUT).bind(next).bind(of).execute().await?;
        let mut moves = Moves::new(now);
        let note = format!("a second execution of task {of}, which is slow");
        for mut twin in task::lock(&mut tx, [TaskId(next)], Busy::Wait).await? {
            moves.make(
                &mut twin,
                &Command::Advance,
                Words { note: Some(note.clone()), ..Words::default() },
            )?;
        }
        moves.save(&mut tx).await?;
        log::insert(&mut tx, &[NewLog::of_task(of, Level::Info, format!("task {} is {note}", TaskId(next)))])
            .await?;
        tx.commit().await?;
        Ok(Some((TaskId(next), moves.readied())))
    }
}

/// An idle worker, not the slow one itself, that could do it.
async fn helper_for(tx: &mut Tx, row: &Row, idle: &[(String, Eligibility)]) -> Result<Option<usize>> {
    if idle.is_empty() {
        return Ok(None);
    }
    let lane = lane::asks(tx, row.4).await?;
    Ok(idle.iter().position(|(id, it)| *id != row.1 && it.serves(&row.7) && it.may_take(&lane.asks)))
}

async fn is_slow(tx: &mut Tx, &(_, _, started, permille, _, first, tasks, _): &Row) -> Result<bool> {
    let times: Vec<(i64,)> = tx.query(TIMES).bind(first).bind(first + tasks - 1).all().await?;
    // Of a stage of which nothing is done yet, nobody knows what is slow.
    let (Some((median,)), Some(started)) = (times.get(times.len() / 2), started) else { return Ok(false) };
    let straggler = Straggler {
        running: tx.now() - Millis(started),
        permille: permille.and_then(|permille| u16::try_from(permille).ok()),
        median: Millis(*median),
    };
    Ok(straggler.is_worth_hedging())
}

/// The other of two that are one segment, by each of them.
async fn pairs(tx: &mut Tx, tasks: impl IntoIterator<Item = TaskId>) -> Result<HashMap<TaskId, TaskId>> {
    let rows: Vec<(i64, i64)> = tx.query(PAIRS).ids(tasks.into_iter().map(|task| task.0)).all().await?;
    let both = |(twin, of): (i64, i64)| [(TaskId(twin), TaskId(of)), (TaskId(of), TaskId(twin))];
    Ok(rows.into_iter().flat_map(both).collect())
}

/// The first of the tasks that stand for this one's segment.
pub(crate) async fn original(tx: &mut Tx, task: TaskId) -> Result<TaskId> {
    const TWIN_OF: &str = "SELECT twin_of FROM task WHERE id = $1 AND twin_of IS NOT NULL";
    let twin_of: Option<(i64,)> = tx.query(TWIN_OF).bind(task).optional().await?;
    Ok(twin_of.map_or(task, |(original,)| TaskId(original)))
}

/// Whether any of these stages may have twins at all: few have, and the others are not asked about.
pub(crate) fn is_possible(stages: &Stages) -> bool {
    stages.values().flatten().any(|stage| stage.is_hedged)
}

/// What has failed when a segment has.
pub(crate) struct FailedSegment {
    /// The first that stood for it.
    pub task: TaskId,
    /// It was tried as often as it may be.
    pub is_exhausted: bool,
}

/// Segments that several tasks stand for, while they are judged. Whoever judges holds their job's lock, so that of two
/// that fail one is judged last.
#[derive(Default)]
pub(crate) struct Fates(HashMap<TaskId, Loaded>);

impl Fates {
    /// `judged` are about to be judged.
    pub async fn of(tx: &mut Tx, judged: &[Loaded]) -> Result<Self> {
        let pairs = pairs(tx, judged.iter().map(|task| task.id)).await?;
        if pairs.is_empty() {
            return Ok(Fates::default());
        }
        let others = judged.iter().filter_map(|task| pairs.get(&task.id).copied());
        let others = task::look(tx, others).await?.into_iter().map(|other| (other.id, other));
        let others: HashMap<TaskId, Loaded> = others.collect();
        let by_task = judged.iter().filter_map(|it| Some((it.id, others.get(pairs.get(&it.id)?)?.clone())));
        Ok(Fates(by_task.collect()))
    }

    /// What has failed with this task, which has just been judged; nothing while the other of its segment may still
    /// commit, or has.
    pub fn failed(&mut self, judged: &Loaded) -> Option<FailedSegment> {
        let segment = |task: &Loaded| FailedSegment {
            task: task.id,
            is_exhausted: task.task.attempts >= task.task.max_attempts,
        };
        let Some(other) = self.0.get(&judged.id) else { return Some(segment(judged)) };
        let (other_id, has_failed) = (other.id, has_failed(other));
        let first = if judged.id < other_id { segment(judged) } else { segment(other) };
        // If the other is judged in the same round, it is the last of the two.
        if let Some(known) = self.0.get_mut(&other_id) {
            known.task.state = judged.task.state.clone();
        }
        has_failed.then_some(first)
    }
}

/// It has been judged; or it was withdrawn with its job, and a twin is not begun again when that is.
fn has_failed(task: &Loaded) -> bool {
    matches!(task.task.state, State::Error { next: Next::Final, .. } | State::New)
}

/// Segments that several tasks stand for, while they are settled.
#[derive(Default)]
pub(crate) struct Rivals {
    other: HashMap<TaskId, TaskId>,
    /// Of these the segment has been counted.
    counted: HashSet<TaskId>,
    losers: Vec<TaskId>,
}

impl Rivals {
    pub async fn of(tx: &mut Tx, tasks: impl IntoIterator<Item = TaskId>) -> Result<Self> {
        let other = pairs(tx, tasks).await?;
        let settled: Vec<(i64,)> = match other.len() {
            0 => Vec::new(),
            _ => tx.query(SETTLED).ids(other.keys().map(|task| task.0)).all().await?,
        };
        Ok(Rivals {
            other,
            counted: settled.into_iter().map(|(id,)| TaskId(id)).collect(),
            losers: Vec::new(),
        })
    }

    /// Whether this settled task is the one that counts for its segment.
    pub fn wins(&mut self, task: TaskId) -> bool {
        let Some(&other) = self.other.get(&task) else { return true };
        if self.has_lost(task) {
            return false;
        }
        self.counted.insert(task);
        self.losers.push(other);
        true
    }

    /// Whether the other of its segment has been counted.
    pub fn has_lost(&self, task: TaskId) -> bool {
        self.other.get(&task).is_some_and(|other| self.counted.contains(other))
    }

    /// Stops what runs or waits of the losers. One that has committed too is settled in its turn, and counts nothing.
    pub async fn withdraw(&self, tx: &mut Tx, job_ids: &HashMap<JobId, job::JobRow>) -> Result<()> {
        let losers = self.losers.iter().copied().filter(|task| job_ids.contains_key(&task.job()));
        let mut moves = Moves::new(tx.now());
        for mut task in task::lock(tx, losers, Busy::Wait).await? {
            let note = Some("another execution of the same segment was faster".into());
            // Refused where there is nothing to stop.
            let _ = moves.make(&mut task, &Command::Withdraw, Words { note, ..Words::default() });
        }
        moves.save(tx).await
    }
}
