//! Lanes: the distinct demands that tasks make of workers. Few, and never removed. In each, every owner has a queue.

use crate::db::Tx;
use crate::eligibility::{self, BoundsRow, capabilities};
use crate::error::{Error, Result};
use crate::from_row::row;
use rules::placement::{Access, Eligibility, Lane, Peer, access, can_be_left_to};
use rules::{Millis, WorkerId};
use std::collections::{BTreeSet, HashMap};

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
SELECT w.id, w.name, w.status, w.kind, w.capabilities, w.granted, w.pool, w.users, w.last_heartbeat,
       w.failed_at, l.id AS lane_id, l.asks, l.prefers_gpu, q.owner_id
FROM worker w LEFT JOIN (queue q JOIN lane l ON l.id = q.lane_id AND q.owner_id IS NOT NULL) ON TRUE
WHERE w.id = $1
ORDER BY l.id, q.owner_id";

const OWNERS: &str = "
SELECT o.id, o.name
FROM json_to_recordset($1::json) AS r(id BIGINT)
JOIN owner o ON o.id = r.id";

row! {
    /// A worker, and one queue in which something waits.
    struct WorkerAndQueue {
        id: String,
        name: String,
        status: String,
        kind: String,
        capabilities: String,
        granted: Option<String>,
        pool: Option<String>,
        users: Option<String>,
        last_heartbeat: Option<i64>,
        failed_at: Option<i64>,
        lane_id: Option<i64>,
        asks: Option<String>,
        prefers_gpu: Option<bool>,
        owner_id: Option<i64>,
    }
}

pub(crate) async fn find_or_make(tx: &mut Tx, lane: &Lane) -> Result<i64> {
    let asks = lane.asks.to_string();
    if let Some((id,)) = tx.query(FIND).bind(asks.clone()).bind(lane.prefers_gpu).optional().await? {
        return Ok(id);
    }
    tx.query(FIND_OR_MAKE).bind(asks.clone()).bind(lane.prefers_gpu).execute().await?;
    Ok(tx.query(FIND).bind(asks).bind(lane.prefers_gpu).one::<(i64,)>().await?.0)
}

/// For how long what a remote worker failed goes to others first.
const REMEMBERED: Millis = Millis::from_secs(3600);

/// What waits in one lane for one owner, and up to which time of becoming READY a worker may look at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Queue {
    pub lane: i64,
    pub owner: i64,
    pub ready_before: Millis,
    /// What this worker was the last to fail is left to others.
    pub leaves_failed: bool,
}

/// The queues `worker` may claim from now, of those with something in them. Refused for a worker that is to take
/// nothing new.
pub(crate) async fn open_to(tx: &mut Tx, worker: WorkerId, heartbeat_interval: Millis) -> Result<Vec<Queue>> {
    let rows: Vec<WorkerAndQueue> = tx.query(WORKER_AND_QUEUES).bind(worker).all().await?;
    let bounds = rows.first().ok_or(Error::NotFound("worker"))?.bounds();
    let status = bounds.status()?;
    rules::worker::Worker { status, ..rules::worker::Worker::register(Millis(0)) }.may_claim()?;
    let eligibility = bounds.eligibility()?;

    let queues = rows.iter().filter_map(WorkerAndQueue::queue);
    let queue =
        |(place, asks, prefers_gpu)| capabilities(asks).map(|asks| (place, Lane { asks, prefers_gpu }));
    let queues = queues.map(queue).collect::<Result<Vec<_>>>()?;

    let now = tx.now();
    let has_failed =
        rows.first().and_then(|row| row.failed_at).is_some_and(|at| now < Millis(at) + REMEMBERED);
    let others = if has_failed && !eligibility.is_local() && !queues.is_empty() {
        let since = now - heartbeat_interval - heartbeat_interval;
        peers(eligibility::live(tx, since).await?, worker)?
    } else {
        Vec::new()
    };
    let defers = !eligibility.has_gpu() && queues.iter().any(|(_, lane)| lane.prefers_gpu);
    let peers = if defers {
        idle_peers(tx, worker, heartbeat_interval).await?
    } else {
        Vec::new()
    };
    let is_restricted = |it: &Eligibility| it.users().is_some();
    let mut everyone = peers.iter().chain(&others).map(|peer| &peer.eligibility).chain([&eligibility]);
    let owners = if everyone.any(is_restricted) {
        owners(tx, queues.iter().map(|((_, owner), _)| *owner)).await?
    } else {
        HashMap::new()
    };
    let open = queues.into_iter().filter_map(|((id, owner), lane)| {
        let user = owners.get(&owner).map(String::as_str).unwrap_or_default();
        let leaves_failed = can_be_left_to(&lane, user, &others, heartbeat_interval, now);
        let queue = |ready_before| Queue { lane: id, owner, ready_before, leaves_failed };
        match access(&lane, user, &eligibility, &peers, heartbeat_interval, now) {
            Access::Closed => None,
            Access::Open => Some(queue(Millis(i64::MAX))),
            Access::ReadyBefore(ready_before) => Some(queue(ready_before)),
        }
    });
    Ok(open.collect())
}

impl WorkerAndQueue {
    fn bounds(&self) -> BoundsRow {
        BoundsRow {
            id: self.id.clone(),
            name: self.name.clone(),
            status: self.status.clone(),
            kind: self.kind.clone(),
            capabilities: self.capabilities.clone(),
            granted: self.granted.clone(),
            pool: self.pool.clone(),
            users: self.users.clone(),
            last_heartbeat: self.last_heartbeat,
            refusal: None,
        }
    }

    fn queue(&self) -> Option<((i64, i64), &str, bool)> {
        Some(((self.lane_id?, self.owner_id?), self.asks.as_deref()?, self.prefers_gpu?))
    }
}

/// The users that these numbers stand for.
pub(crate) async fn owners(tx: &mut Tx, ids: impl Iterator<Item = i64>) -> Result<HashMap<i64, String>> {
    let ids: BTreeSet<i64> = ids.collect();
    let owners: Vec<(i64, String)> = tx.query(OWNERS).ids(ids).all().await?;
    Ok(owners.into_iter().collect())
}

async fn idle_peers(tx: &mut Tx, worker: WorkerId, heartbeat_interval: Millis) -> Result<Vec<Peer>> {
    let since = tx.now() - heartbeat_interval - heartbeat_interval;
    peers(eligibility::idle(tx, Some(worker), since).await?, worker)
}

fn peers(rows: Vec<BoundsRow>, except: WorkerId) -> Result<Vec<Peer>> {
    let except = except.to_string();
    let peer = |row: BoundsRow| {
        let last_heartbeat = row.last_heartbeat.map(Millis);
        Ok(Peer { status: row.status()?, eligibility: row.eligibility()?, last_heartbeat })
    };
    rows.into_iter().filter(|row| row.id != except).map(peer).collect()
}

/// What tasks of this lane ask for.
pub(crate) async fn asks(tx: &mut Tx, lane: i64) -> Result<Lane> {
    const ONE: &str = "SELECT asks, prefers_gpu FROM lane WHERE id = $1";
    let (asks, prefers_gpu): (String, bool) = tx.query(ONE).bind(lane).one().await?;
    Ok(Lane { asks: capabilities(&asks)?, prefers_gpu })
}

/// Workers that are there and were told to take nothing new, and how they were told, for `why`.
pub(crate) async fn resting(tx: &mut Tx, since: Millis) -> Result<Vec<String>> {
    const RESTING: &str = "
SELECT name, CASE WHEN suspended IS NULL THEN status ELSE 'suspended' END FROM worker
WHERE status IN ('draining', 'disabled') AND coalesce(last_heartbeat, registered_at) > $1
ORDER BY name, status LIMIT 10";
    let rows: Vec<(String, String)> = tx.query(RESTING).bind(since).all().await?;
    Ok(rows.into_iter().map(|(name, status)| format!("{name} is {status}")).collect())
}
