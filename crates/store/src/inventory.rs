//! Which files the database names: what `vodmill doctor --files` compares with those that are there.

use crate::Store;
use crate::error::{Error, Result};
use rules::{ExecutionId, Fence, JobId, TaskId, Token, VideoId};
use serde_json::Value;

/// A video's own files.
#[derive(Debug, Clone)]
pub struct VideoFiles {
    pub id: VideoId,
    pub source: Option<String>,
    pub source_bytes: Option<i64>,
    pub source_sha256: Option<String>,
    /// What each of its generations was committed with.
    pub manifests: Vec<Value>,
}

/// What a task has committed in a job that may go on.
#[derive(Debug, Clone)]
pub struct Committed {
    pub execution: ExecutionId,
    pub stage: String,
    pub kind: String,
    pub result: Value,
}

const VIDEOS: &str =
    "SELECT id, source, source_bytes, source_hash FROM video WHERE id > $1 ORDER BY id LIMIT 200";

const MANIFESTS: &str = "SELECT manifest FROM generation WHERE video_id = $1 ORDER BY id";

/// Those whose commits are still read: they are open, or failed and may be retried.
const JOBS: &str = concat!("SELECT id FROM job WHERE ", crate::hold::goes_on!(), " ORDER BY id");

const COMMITTED: &str = "
SELECT t.id, t.fence, t.token, s.name, s.kind, t.result
FROM task t JOIN stage s ON s.job_id = $3 AND s.position = t.stage
WHERE t.id BETWEEN $1 AND $2 AND t.committed_at IS NOT NULL AND t.result LIKE '%\"execution\"%'
ORDER BY t.id";

impl Store {
    /// Up to 200 videos after this one, deleted ones as well: their files are kept until they are purged.
    pub async fn files_of_videos(&self, after: VideoId) -> Result<Vec<VideoFiles>> {
        let mut tx = self.db.read().await?;
        type Row = (i64, Option<String>, Option<i64>, Option<String>);
        let rows: Vec<Row> = tx.query(VIDEOS).bind(after.0).all().await?;
        let mut videos = Vec::with_capacity(rows.len());
        for (id, source, source_bytes, source_sha256) in rows {
            let manifests: Vec<(String,)> = tx.query(MANIFESTS).bind(id).all().await?;
            let manifests =
                manifests.iter().map(|(text,)| serde_json::from_str(text)).collect::<Result<_, _>>()?;
            videos.push(VideoFiles { id: VideoId(id), source, source_bytes, source_sha256, manifests });
        }
        Ok(videos)
    }

    pub async fn jobs_that_may_go_on(&self) -> Result<Vec<JobId>> {
        let rows: Vec<(i64,)> = self.db.read().await?.query(JOBS).all().await?;
        Ok(rows.into_iter().map(|(id,)| JobId(id)).collect())
    }

    /// Results of a job that name files of the execution that made them.
    pub async fn committed_files(&self, job: JobId) -> Result<Vec<Committed>> {
        type Row = (i64, i64, i64, String, String, String);
        let (first, last) = TaskId::range(job);
        let mut tx = self.db.read().await?;
        let rows: Vec<Row> = tx.query(COMMITTED).bind(first).bind(last).bind(job).all().await?;
        let committed = |(task, fence, token, stage, kind, result): Row| {
            let execution = ExecutionId { task: TaskId(task), fence: Fence(fence), token: Token(token) };
            Ok(Committed { execution, stage, kind, result: serde_json::from_str(&result)? })
        };
        rows.into_iter().map(committed).collect::<Result<_, Error>>()
    }
}
