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

impl Store {
    pub async fn counts(&self) -> Result<Counts> {
        self.db.read().await?.query(COUNT).one().await
    }
}
