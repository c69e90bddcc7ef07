//! How much there is of everything: for health and metrics.

use crate::Store;
use crate::error::Result;
use crate::from_row::row;
use serde::Serialize;

row! {
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
    pub struct Counts {
        /// Heard of lately.
        pub workers: i64,
        /// Open jobs.
        pub pending_jobs: i64,
        pub ready_tasks: i64,
        pub running_tasks: i64,
        pub undelivered_messages: i64,
    }
}

const COUNT: &str = "
SELECT (SELECT count(*) FROM worker WHERE status NOT IN ('offline', 'disabled')) AS workers,
       (SELECT count(*) FROM job WHERE outcome IS NULL) AS pending_jobs,
       (SELECT count(*) FROM task WHERE queued_at IS NOT NULL) AS ready_tasks,
       (SELECT count(*) FROM task WHERE leased_at IS NOT NULL AND committed_at IS NULL) AS running_tasks,
       (SELECT count(*) FROM outbox WHERE delivered_at IS NULL) AS undelivered_messages";

row! {
    /// A worker that takes nothing new although a slot is free.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize)]
    pub struct Refusing {
        pub worker: String,
        /// What its machine has too little of.
        pub reason: String,
    }
}

/// Nobody reads more of them.
const MOST_REFUSING: i64 = 100;

const REFUSING: &str = "
SELECT name AS worker, refusal AS reason FROM worker
WHERE refusal IS NOT NULL AND status IN ('active', 'idle', 'busy') ORDER BY name, id LIMIT $1";

impl Store {
    pub async fn counts(&self) -> Result<Counts> {
        self.db.read().await?.query(COUNT).one().await
    }

    /// Workers whose machines have too little disk or memory left, by name.
    pub async fn refusing(&self) -> Result<Vec<Refusing>> {
        self.db.read().await?.query(REFUSING).bind(MOST_REFUSING).all().await
    }
}
