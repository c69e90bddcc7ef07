//! Captions that a person attached to a video: they outlive its generations.

use crate::Store;
use crate::db::{Step, again};
use crate::error::{Error, Result};
use crate::from_row::row;
use rules::VideoId;
use serde::{Deserialize, Serialize};

row! {
    #[derive(utoipa::ToSchema, Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
    pub struct Caption {
        /// A BCP 47 tag.
        pub language: String,
        /// For people.
        pub label: String,
        pub updated_at: i64,
    }
}

const LIST: &str = "SELECT language, label, updated_at FROM caption WHERE video_id = $1 ORDER BY language";
const TEXT: &str = "SELECT text FROM caption WHERE video_id = $1 AND language = $2";
const SET: &str = "
INSERT INTO caption (video_id, language, label, text, updated_at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (video_id, language) DO UPDATE SET label = excluded.label, text = excluded.text,
    updated_at = excluded.updated_at";
const DELETE: &str = "DELETE FROM caption WHERE video_id = $1 AND language = $2";
pub(crate) const DELETE_ALL: &str = "DELETE FROM caption WHERE video_id = $1";

impl Store {
    pub async fn captions(&self, video: VideoId) -> Result<Vec<Caption>> {
        self.db.read().await?.query(LIST).bind(video).all().await
    }

    pub async fn caption_text(&self, video: VideoId, language: &str) -> Result<String> {
        let mut tx = self.db.read().await?;
        let found: Option<(String,)> = tx.query(TEXT).bind(video).bind(language).optional().await?;
        found.map(|(text,)| text).ok_or(Error::NotFound("caption"))
    }

    /// Attaches captions, or replaces those of the same language.
    pub async fn set_caption(&self, video: VideoId, language: &str, label: &str, text: &str) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::SetCaption).await?;
            let locked = crate::video::lock_all(&mut tx, [video]).await?;
            locked.get(&video).ok_or(Error::NotFound("video"))?;
            let now = tx.now();
            tx.query(SET).bind(video).bind(language).bind(label).bind(text).bind(now).execute().await?;
            tx.commit().await
        })
        .await
    }

    pub async fn delete_caption(&self, video: VideoId, language: &str) -> Result<()> {
        again(|| async {
            let mut tx = self.db.write(Step::DeleteCaption).await?;
            let deleted = tx.query(DELETE).bind(video).bind(language).execute().await?;
            tx.commit().await?;
            if deleted == 0 { Err(Error::NotFound("caption")) } else { Ok(()) }
        })
        .await
    }
}
