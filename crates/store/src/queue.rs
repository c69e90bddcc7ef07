//! Queues: what waits in one lane for one owner. Which of several is served next, and how much of it.

use crate::db::Tx;
use crate::error::Result;
use crate::lane::Queue;
use crate::task::ReadyRow;
use rules::WorkerId;
use std::collections::{BTreeSet, HashMap};

/// A twin is not for the worker whose slowness it is to make up for; nor is a task for the worker whose execution of it was
/// the last to fail, where another can do it.
macro_rules! is_for_worker {
    () => {
        "(twin_of IS NULL OR NOT EXISTS (
    SELECT 1 FROM task o
    WHERE o.id = task.twin_of AND o.state = 'RUNNING' AND o.worker_id = $5))
  AND ($6 = FALSE OR fence = 0 OR NOT EXISTS (
    SELECT 1 FROM execution_aborted e
    WHERE e.task_id = task.id AND e.fence = task.fence AND e.worker_id = $5))"
    };
}

const FIRST: &str = concat!(
    "
SELECT id, stage, segment, priority, fence, attempts, max_attempts, queued_at FROM task
WHERE lane_id = $1 AND owner_id = $2 AND queued_at IS NOT NULL AND queued_at <= $3 AND ",
    is_for_worker!(),
    "
ORDER BY priority DESC, queued_at, id LIMIT $4
FOR UPDATE SKIP LOCKED"
);

/// The first of a queue without a lock, to be compared with the first of others.
const PEEK: &str = concat!(
    "
SELECT id, priority, queued_at FROM task
WHERE lane_id = $1 AND owner_id = $2 AND queued_at IS NOT NULL AND queued_at <= $3 AND ",
    is_for_worker!(),
    "
ORDER BY priority DESC, queued_at, id LIMIT $4"
);

/// As large as the fleet.
const RUNNING: &str = "
SELECT owner_id, count(*) FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL
GROUP BY owner_id";

/// Whoever claims for an owner with a limit does so alone, or two would both take the last that may run.
const LOCK_OWNERS: &str = "
SELECT o.id
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN owner o ON o.id = r.id
ORDER BY o.id
FOR UPDATE OF o";

/// Locks the best READY tasks for `worker` over all `queues`. One queue, the usual case, needs one statement; its index gives the
/// order, whatever the backlog. Of several, each gives as many as it has among the best; where another claimer was
/// faster, its next.
pub(crate) async fn take(
    tx: &mut Tx,
    worker: WorkerId,
    queues: &[Queue],
    max: i64,
    limit: Option<u32>,
) -> Result<Vec<ReadyRow>> {
    if let (&[queue], None) = (queues, limit) {
        return lock(tx, worker, queue, max).await;
    }
    if limit.is_some() {
        let owners: BTreeSet<i64> = queues.iter().map(|queue| queue.owner).collect();
        tx.query(LOCK_OWNERS).ids(owners).all::<(i64,)>().await?;
    }
    let best = best(tx, worker, queues, max, limit).await?;
    let mut rows = Vec::new();
    for (at, &queue) in queues.iter().enumerate() {
        let wanted = best.iter().filter(|waiting| waiting.queue == at).count();
        if wanted > 0 {
            rows.extend(lock(tx, worker, queue, wanted as i64).await?);
        }
    }
    let rank: HashMap<i64, usize> =
        best.iter().enumerate().map(|(rank, waiting)| (waiting.id, rank)).collect();
    rows.sort_by_key(|row| rank.get(&row.id).copied().unwrap_or(usize::MAX));
    Ok(rows)
}

/// How many tasks of one owner are running.
pub(crate) async fn running(tx: &mut Tx, owner: i64) -> Result<i64> {
    let all: Vec<(i64, i64)> = tx.query(RUNNING).all().await?;
    Ok(all.into_iter().find(|(of, _)| *of == owner).map_or(0, |(_, running)| running))
}

/// Whether anything could be taken. Takes no lock.
pub(crate) async fn has_any(
    tx: &mut Tx,
    worker: WorkerId,
    queues: &[Queue],
    limit: Option<u32>,
) -> Result<bool> {
    if limit.is_some() {
        return Ok(!best(tx, worker, queues, 1, limit).await?.is_empty());
    }
    for &queue in queues {
        if !peek(tx, worker, queue, 1).await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A READY task among others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Waiting {
    id: i64,
    priority: i64,
    queued_at: i64,
    owner: i64,
    /// Its place in the list.
    queue: usize,
}

async fn best(
    tx: &mut Tx,
    worker: WorkerId,
    queues: &[Queue],
    max: i64,
    limit: Option<u32>,
) -> Result<Vec<Waiting>> {
    let mut waiting = Vec::new();
    for (at, &queue) in queues.iter().enumerate() {
        let found = peek(tx, worker, queue, max).await?.into_iter();
        waiting.extend(found.map(|(id, priority, queued_at)| Waiting {
            id,
            priority,
            queued_at,
            owner: queue.owner,
            queue: at,
        }));
    }
    let is_shared = queues.iter().any(|queue| queue.owner != queues[0].owner);
    let running = if is_shared || limit.is_some() {
        tx.query(RUNNING).all::<(i64, i64)>().await?.into_iter().collect()
    } else {
        HashMap::new()
    };
    Ok(fairly(waiting, &running, max as usize, limit.map(i64::from)))
}

/// The first `max` in the order in which they are to be served: by priority, then to whoever would have least running,
/// then the oldest. Nobody gets more than `limit` running.
fn fairly(
    mut waiting: Vec<Waiting>,
    running: &HashMap<i64, i64>,
    max: usize,
    limit: Option<i64>,
) -> Vec<Waiting> {
    waiting.sort_by_key(|it| (-it.priority, it.queued_at, it.id));
    let mut running = running.clone();
    let mut served: Vec<(i64, Waiting)> = waiting
        .into_iter()
        .filter_map(|it| {
            let has = running.entry(it.owner).or_default();
            *has += 1;
            limit.is_none_or(|limit| *has <= limit).then_some((*has, it))
        })
        .collect();
    served.sort_by_key(|&(has, it)| (-it.priority, has, it.queued_at, it.id));
    served.into_iter().take(max).map(|(_, it)| it).collect()
}

async fn lock(tx: &mut Tx, worker: WorkerId, queue: Queue, max: i64) -> Result<Vec<ReadyRow>> {
    let first = tx.query(FIRST).bind(queue.lane).bind(queue.owner).bind(queue.ready_before);
    first.bind(max).bind(worker).bind(queue.leaves_failed).many().await
}

async fn peek(tx: &mut Tx, worker: WorkerId, queue: Queue, max: i64) -> Result<Vec<(i64, i64, i64)>> {
    let first = tx.query(PEEK).bind(queue.lane).bind(queue.owner).bind(queue.ready_before);
    first.bind(max).bind(worker).bind(queue.leaves_failed).all().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (owner, priority, queued_at), numbered from 1 as they stand.
    fn waiting(all: &[(i64, i64, i64)]) -> Vec<Waiting> {
        let numbered = all.iter().zip(1..);
        numbered
            .map(|(&(owner, priority, queued_at), id)| Waiting { id, priority, queued_at, owner, queue: 0 })
            .collect()
    }

    fn served(all: &[(i64, i64, i64)], running: &[(i64, i64)], max: usize, limit: Option<i64>) -> Vec<i64> {
        let running = running.iter().copied().collect();
        fairly(waiting(all), &running, max, limit).into_iter().map(|it| it.id).collect()
    }

    #[test]
    fn everybody_gets_a_turn_and_the_oldest_goes_first() {
        let backlog = [(1, 5, 10), (1, 5, 11), (1, 5, 12), (2, 5, 90), (2, 5, 91), (3, 5, 95)];

        assert_eq!(served(&backlog, &[], 10, None), [1, 4, 6, 2, 5, 3]);
        assert_eq!(served(&backlog[..3], &[], 10, None), [1, 2, 3]);
    }

    #[test]
    fn who_has_much_running_waits_for_those_who_have_less() {
        assert_eq!(served(&[(1, 5, 10), (1, 5, 11), (2, 5, 90)], &[(1, 4)], 1, None), [3]);
    }

    #[test]
    fn priority_comes_before_fairness() {
        assert_eq!(served(&[(2, 5, 10), (1, 9, 90), (1, 9, 91)], &[(1, 50)], 10, None), [2, 3, 1]);
    }

    #[test]
    fn nobody_gets_more_than_the_limit() {
        assert_eq!(served(&[(1, 5, 10), (1, 5, 11), (2, 5, 90)], &[(1, 1)], 10, Some(2)), [3, 1]);
        assert!(served(&[(1, 9, 10)], &[(1, 2)], 10, Some(2)).is_empty());
    }
}
