//! Lanes: the distinct demands that tasks make of workers. Few, and never removed. In each, every owner has a queue.

use crate::db::Tx;
use crate::error::{Error, Result};
use rules::placement::{Access, Capabilities, Lane, Peer, access};
use rules::{Millis, WorkerId, placement};
use std::collections::BTreeSet;

const FIND_OR_MAKE: &str = "
INSERT INTO lane (asks, prefers_gpu) VALUES ($1, $2)
ON CONFLICT (asks, prefers_gpu) DO NOTHING";

const FIND: &str = "SELECT id FROM lane WHERE asks = $1 AND prefers_gpu = $2";

/// A worker beside every queue in which something waits; if nothing does, one row. The index is walked from queue to
/// queue: it takes as long as there are queues, whatever waits in them. (Not by `(lane_id, owner_id) > …`: of a pair
/// SQLite looks up the first alone, and then reads all that waits in the lane.)
const WORKER_AND_QUEUES: &str = "
WITH RECURSIVE queue (lane_id, owner_id) AS (
    SELECT l.id, (SELECT t.owner_id FROM task t
                  WHERE t.queued_at IS NOT NULL AND t.lane_id = l.id
                  ORDER BY t.owner_id LIMIT 1)
    FROM lane l
    UNION ALL
    SELECT q.lane_id, (SELECT t.owner_id FROM task t
                       WHERE t.queued_at IS NOT NULL AND t.lane_id = q.lane_id AND t.owner_id > q.owner_id
                       ORDER BY t.owner_id LIMIT 1)
    FROM queue q WHERE q.owner_id IS NOT NULL
)
SELECT w.capabilities, w.status, l.id, l.asks, l.prefers_gpu, q.owner_id
FROM worker w LEFT JOIN (queue q JOIN lane l ON l.id = q.lane_id AND q.owner_id IS NOT NULL) ON TRUE
WHERE w.id = $1
ORDER BY l.id, q.owner_id";

const IDLE_WORKERS: &str = "
SELECT capabilities, status, last_heartbeat FROM worker
WHERE status = 'idle' AND id <> $1 AND last_heartbeat > $2";

pub(crate) async fn find_or_make(tx: &mut Tx, lane: &Lane) -> Result<i64> {
    let asks = lane.asks.to_string();
    if let Some((id,)) = tx.query(FIND).bind(asks.clone()).bind(lane.prefers_gpu).optional().await? {
        return Ok(id);
    }
    tx.query(FIND_OR_MAKE).bind(asks.clone()).bind(lane.prefers_gpu).execute().await?;
    Ok(tx.query(FIND).bind(asks).bind(lane.prefers_gpu).one::<(i64,)>().await?.0)
}

/// What waits in one lane for one owner, and up to which time of becoming READY a worker may look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub lane: i64,
    pub owner: i64,
    pub ready_before: Millis,
}

/// The queues `worker` may claim from now, of those with something in them. Refused for a worker that is to take
/// nothing new.
pub(crate) async fn open_to(tx: &mut Tx, worker: WorkerId, heartbeat_interval: Millis) -> Result<Vec<Queue>> {
    type Row = (String, String, Option<i64>, Option<String>, Option<bool>, Option<i64>);
    let rows: Vec<Row> = tx.query(WORKER_AND_QUEUES).bind(worker).all().await?;
    let (capabilities, status, ..) = rows.first().ok_or(Error::NotFound("worker"))?;
    let status: rules::worker::Status = status.parse()?;
    rules::worker::Worker { status, ..rules::worker::Worker::register(Millis(0)) }.may_claim()?;
    let capabilities = read(capabilities)?;

    let queues = rows.iter().filter_map(|(.., id, asks, prefers_gpu, owner)| {
        Some((((*id)?, (*owner)?), asks.as_deref()?, (*prefers_gpu)?))
    });
    let queue = |(place, asks, prefers_gpu)| read(asks).map(|asks| (place, Lane { asks, prefers_gpu }));
    let queues = queues.map(queue).collect::<Result<Vec<_>>>()?;

    let defers = !capabilities.has_gpu() && queues.iter().any(|(_, lane)| lane.prefers_gpu);
    let peers = if defers {
        idle_peers(tx, worker, heartbeat_interval).await?
    } else {
        Vec::new()
    };
    let now = tx.now();
    let open = queues.into_iter().filter_map(|((id, owner), lane)| {
        let queue = |ready_before| Queue { lane: id, owner, ready_before };
        match access(&lane, &capabilities, &peers, heartbeat_interval, now) {
            Access::Closed => None,
            Access::Open => Some(queue(Millis(i64::MAX))),
            Access::ReadyBefore(ready_before) => Some(queue(ready_before)),
        }
    });
    Ok(open.collect())
}

async fn idle_peers(tx: &mut Tx, worker: WorkerId, heartbeat_interval: Millis) -> Result<Vec<Peer>> {
    let since = tx.now() - heartbeat_interval - heartbeat_interval;
    let rows: Vec<(String, String, Option<i64>)> =
        tx.query(IDLE_WORKERS).bind(worker).bind(since).all().await?;
    rows.into_iter()
        .map(|(capabilities, status, heartbeat)| {
            let capabilities = read(&capabilities)?;
            Ok(Peer { status: status.parse()?, capabilities, last_heartbeat: heartbeat.map(Millis) })
        })
        .collect()
}

fn read(text: &str) -> Result<Capabilities> {
    text.parse().map_err(|bad: placement::BadCapability| Error::Invalid(bad.to_string()))
}

/// The demands of lanes that no worker seen since `since` can meet, for `why`.
pub(crate) async fn asks(tx: &mut Tx, lane: i64) -> Result<Lane> {
    const ONE: &str = "SELECT asks, prefers_gpu FROM lane WHERE id = $1";
    let (asks, prefers_gpu): (String, bool) = tx.query(ONE).bind(lane).one().await?;
    Ok(Lane { asks: read(&asks)?, prefers_gpu })
}

/// Capability sets of every worker that could be given work.
pub(crate) async fn capable(tx: &mut Tx, since: Millis) -> Result<BTreeSet<Capabilities>> {
    const LIVE: &str = "
SELECT capabilities FROM worker
WHERE status IN ('active', 'idle', 'busy') AND coalesce(last_heartbeat, registered_at) > $1";
    let rows: Vec<(String,)> = tx.query(LIVE).bind(since).all().await?;
    rows.into_iter().map(|(text,)| read(&text)).collect()
}

/// Workers that are there and were told to take nothing new, and how they were told, for `why`.
pub(crate) async fn resting(tx: &mut Tx, since: Millis) -> Result<Vec<String>> {
    const RESTING: &str = "
SELECT name, status FROM worker
WHERE status IN ('draining', 'disabled') AND coalesce(last_heartbeat, registered_at) > $1
ORDER BY name, status LIMIT 10";
    let rows: Vec<(String, String)> = tx.query(RESTING).bind(since).all().await?;
    Ok(rows.into_iter().map(|(name, status)| format!("{name} is {status}")).collect())
}
