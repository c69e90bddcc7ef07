//! What goes on at this moment: how far executions are, and how busy workers. Nobody keeps it.

use crate::Store;
use crate::error::Result;
use crate::from_row::row;
use rules::{JobId, TaskId, VideoId};
use serde::Serialize;

/// One execution that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Running {
    #[serde(skip)]
    pub job: JobId,
    #[serde(skip)]
    pub video: Option<VideoId>,
    pub stage: String,
    pub segment: i64,
    /// How far it is, in thousandths, if it can tell.
    pub permille: Option<i64>,
    pub step: Option<String>,
}

row! {
    /// How busy a worker is.
    #[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
    pub struct Load {
        #[serde(rename = "worker")]
        pub id: String,
        pub status: String,
        pub phase: String,
        pub running: i64,
    }
}

/// As many as the fleet has slots.
const RUNNING: &str = "
SELECT t.id, j.video_id, s.name, t.segment, t.permille, t.step
FROM task t
JOIN job j ON j.id = t.id / 1048576
JOIN stage s ON s.job_id = t.id / 1048576 AND s.position = t.stage
WHERE t.leased_at IS NOT NULL AND t.committed_at IS NULL AND t.status = 'IN_PROGRESS'
ORDER BY t.id LIMIT $1";

const LOADS: &str =
    "SELECT id, status, phase, running FROM worker WHERE status <> 'offline' ORDER BY id LIMIT $1";

impl Store {
    /// Executions under way, by job.
    pub async fn running(&self, max: i64) -> Result<Vec<Running>> {
        type Row = (i64, Option<i64>, String, i64, Option<i64>, Option<String>);
        let rows: Vec<Row> = self.db.look().await?.query(RUNNING).bind(max).all().await?;
        let running = |(task, video, stage, segment, permille, step): Row| Running {
            job: TaskId(task).job(),
            video: video.map(VideoId),
            stage,
            segment,
            permille,
            step,
        };
        Ok(rows.into_iter().map(running).collect())
    }

    pub async fn loads(&self, max: i64) -> Result<Vec<Load>> {
        self.db.look().await?.query(LOADS).bind(max).all().await
    }
}
