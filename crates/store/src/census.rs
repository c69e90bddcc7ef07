//! How much waits, runs and works in the whole system: what the metrics of every server tell alike.

use crate::Store;
use crate::error::Result;
use crate::from_row::row;
use rules::Millis;

/// How many workers are told apart by their load.
const MAX_LOADS: i64 = 500;

#[derive(Debug, Clone, Default)]
pub struct Census {
    pub tasks: Vec<Tasks>,
    pub jobs: Jobs,
    pub workers: Vec<Workers>,
    pub loads: Vec<Load>,
    pub outbox: Outbox,
    /// Leases that are over and have not been taken back. More than a few, for long, and nobody does.
    pub overdue_leases: i64,
    /// By the database's clock.
    pub at: Millis,
}

row! {
    /// Tasks that wait, run, or have failed and will be looked at again.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Tasks {
        /// `READY`, `RUNNING` or `ERROR`.
        pub state: String,
        pub priority: i64,
        pub count: i64,
        /// When the oldest of them came into this state; of those in `ERROR`, when the first is due.
        pub since: i64,
    }
}

row! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Jobs {
        pub open: i64,
        /// Those of which something runs.
        pub in_progress: i64,
    }
}

row! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Workers {
        pub status: String,
        pub count: i64,
        pub slots: i64,
        pub running: i64,
    }
}

row! {
    /// How busy one worker says it is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Load {
        pub id: String,
        pub name: String,
        pub slots: i64,
        pub running: i64,
    }
}

row! {
    /// Effects and alerts on their way.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct Outbox {
        pub count: i64,
        pub since: Option<i64>,
    }
}

/// Each part by its index: what is done or not yet released is not looked at, however much there is.
const TASKS: &str = "
SELECT 'READY' AS state, priority, count(*) AS count, min(queued_at) AS since
FROM task WHERE queued_at IS NOT NULL GROUP BY priority
UNION ALL
SELECT 'ERROR' AS state, priority, count(*) AS count, min(due_at) AS since
FROM task WHERE due_at IS NOT NULL GROUP BY priority
UNION ALL
SELECT 'RUNNING' AS state, priority, count(*) AS count, min(leased_at) AS since
FROM task WHERE leased_at IS NOT NULL AND committed_at IS NULL GROUP BY priority";

const JOBS: &str = "
SELECT (SELECT count(*) FROM job WHERE outcome IS NULL) AS open,
       (SELECT count(DISTINCT job_id) FROM (
            SELECT id / 1048576 AS job_id FROM task WHERE leased_at IS NOT NULL AND committed_at IS NULL
            UNION ALL
            SELECT id / 1048576 AS job_id FROM task WHERE committed_at IS NOT NULL AND finished_at IS NULL
        ) open) AS in_progress";

const WORKERS: &str = "
SELECT status, count(*) AS count, CAST(sum(slots) AS BIGINT) AS slots, CAST(sum(running) AS BIGINT) AS running
FROM worker GROUP BY status";

const LOADS: &str = "
SELECT id, name, slots, running FROM worker
WHERE status NOT IN ('offline', 'disabled')
ORDER BY id LIMIT $1";

const OUTBOX: &str =
    "SELECT count(*) AS count, min(created_at) AS since FROM outbox WHERE delivered_at IS NULL";

const OVERDUE: &str = "
SELECT count(*) FROM task
WHERE leased_at IS NOT NULL AND committed_at IS NULL AND lease_expires_at <= $1";

impl Store {
    pub async fn census(&self) -> Result<Census> {
        let mut tx = self.db.look().await?;
        let at = tx.now();
        Ok(Census {
            tasks: tx.query(TASKS).all().await?,
            jobs: tx.query(JOBS).one().await?,
            workers: tx.query(WORKERS).all().await?,
            loads: tx.query(LOADS).bind(MAX_LOADS).all().await?,
            outbox: tx.query(OUTBOX).one().await?,
            overdue_leases: tx.query(OVERDUE).bind(at).one::<(i64,)>().await?.0,
            at,
        })
    }
}
