//! Telling the outside that a job has failed.

use crate::alert::{self, Alert, Kind, PATTERN};
use crate::db::Tx;
use crate::error::Result;
use rules::JobId;
use serde_json::json;

const ABOUT: &str = "SELECT video_id, name, version FROM job WHERE id = $1";

/// How often jobs of a video failed since one last completed; a job that was tried again by a person may have done so
/// several times. Its log says so, and outlives it.
const FAILURES: &str = "
SELECT count(*) FROM job_log l
WHERE l.level = 'error' AND l.task_id IS NULL AND l.message LIKE 'the job is failed%' AND l.job_id IN (
    SELECT id FROM job WHERE video_id = $1
    UNION ALL
    SELECT job_id FROM job_archive WHERE video_id = $1
) AND l.job_id > (
    SELECT coalesce(max(c.id), 0) FROM (
        SELECT id FROM job WHERE video_id = $1 AND outcome = 'completed'
        UNION ALL
        SELECT job_id FROM job_archive WHERE video_id = $1 AND outcome = 'completed'
    ) c
)";

/// Raises the alerts of a job that has just failed, in the transaction that says so.
pub(crate) async fn tell(tx: &mut Tx, job: JobId, reason: &str, is_exhausted: bool) -> Result<()> {
    let (video, name, version): (Option<i64>, String, i64) = tx.query(ABOUT).bind(job).one().await?;
    let key = format!("{job}_{version}");
    let mut alerts = Vec::new();
    if is_exhausted {
        let data = json!({ "job": job, "name": name, "video": video, "error": reason });
        alerts.push(Alert { kind: Kind::JobMaxRetriesExceeded, key: key.clone(), job: Some(job), data });
    }
    if let Some(video) = video {
        let (failures,): (i64,) = tx.query(FAILURES).bind(video).one().await?;
        if failures >= PATTERN {
            let data =
                json!({ "job": job, "name": name, "video": video, "error": reason, "failures": failures });
            alerts.push(Alert { kind: Kind::JobFailedPattern, key, job: Some(job), data });
        }
    }
    alert::raise(tx, alerts).await
}
