//! Resumable uploads on their way. How much of one has come, the file itself says.

use crate::Store;
use crate::db::{Step, again};
use crate::error::{Error, Result};
use rules::{Millis, VideoId};
use serde_json::Value;

#[derive(Debug, Clone)]
pub struct Upload {
    /// Random: who knows it may go on with it.
    pub id: String,
    pub length: i64,
    pub metadata: Value,
    pub expires_at: Millis,
    /// What became of it.
    pub video: Option<VideoId>,
}

const INSERT: &str = "
INSERT INTO upload (id, length, metadata, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)";
const FIND: &str = "SELECT id, length, metadata, expires_at, video_id FROM upload WHERE id = $1";
const DELETE: &str = "DELETE FROM upload WHERE id = $1";
const EXPIRED: &str = "
SELECT id, length, metadata, expires_at, video_id FROM upload WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2";
pub(crate) const DONE: &str = "UPDATE upload SET video_id = $1 WHERE id = $2 AND video_id IS NULL";

type Row = (String, i64, String, i64, Option<i64>);

impl Store {
    pub async fn begin_upload(
        &self,
        id: &str,
        length: i64,
        metadata: &Value,
        lives: Millis,
    ) -> Result<Millis> {
        again(|| async {
            let mut tx = self.db.write(Step::BeginUpload).await?;
            let now = tx.now();
            let row = tx.query(INSERT).bind(id).bind(length).bind(metadata.to_string()).bind(now);
            row.bind(now + lives).execute().await?;
            tx.commit().await?;
            Ok(now + lives)
        })
        .await
    }

    pub async fn upload(&self, id: &str) -> Result<Upload> {
        let found: Option<Row> = self.db.read().await?.query(FIND).bind(id).optional().await?;
        read(found.ok_or(Error::NotFound("upload"))?)
    }

    pub async fn forget_upload(&self, id: &str) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::ForgetUpload).await?;
            tx.query(DELETE).bind(id).execute().await?;
            tx.commit().await
        })
        .await
    }

    /// Those that nobody may go on with any more.
    pub async fn expired_uploads(&self, max: i64) -> Result<Vec<Upload>> {
        let mut tx = self.db.read().await?;
        let now = tx.now();
        let rows: Vec<Row> = tx.query(EXPIRED).bind(now).bind(max).all().await?;
        rows.into_iter().map(read).collect()
    }
}

fn read((id, length, metadata, expires_at, video): Row) -> Result<Upload> {
    let metadata = serde_json::from_str(&metadata)?;
    Ok(Upload { id, length, metadata, expires_at: Millis(expires_at), video: video.map(VideoId) })
}
