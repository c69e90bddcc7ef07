//! Objects that are written in parts, and were not finished: a note under `unfinished/` tells of each while it lasts.
//!
//! No store of the three lists them all in the same way, so we write them down ourselves, before the first part is sent.

use super::{Bucket, Error, Result, Told};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

const FOLDER: &str = "unfinished";

/// How often a note is written again while its object grows.
const REFRESH: Duration = Duration::from_secs(600);

pub(super) struct Note {
    name: String,
    text: Vec<u8>,
    written: Instant,
}

#[derive(Serialize, Deserialize)]
struct Unfinished {
    name: String,
    id: String,
}

impl Note {
    pub async fn write(bucket: &Bucket, name: &str, id: &str) -> Result<Self> {
        let unfinished = Unfinished { name: name.into(), id: id.into() };
        let text = serde_json::to_vec(&unfinished).map_err(std::io::Error::other)?;
        let note = Note { name: format!("{FOLDER}/{}", uuid::Uuid::now_v7()), text, written: Instant::now() };
        note.put(bucket).await?;
        Ok(note)
    }

    /// An old note is one whose writer is gone.
    pub async fn refresh(&mut self, bucket: &Bucket) -> Result<()> {
        if self.written.elapsed() > REFRESH {
            self.put(bucket).await?;
            self.written = Instant::now();
        }
        Ok(())
    }

    async fn put(&self, bucket: &Bucket) -> Result<()> {
        bucket.put(&self.name, self.text.clone().into(), Told::default()).await
    }

    /// A note that cannot be removed now is removed with what it tells of, later.
    pub async fn remove(self, bucket: &Bucket) {
        let _ = bucket.remove(&self.name).await;
    }
}

impl Bucket {
    /// Gives up what was begun in parts and not heard of for so long.
    pub async fn give_up_unfinished(&self, age: Duration) -> Result<()> {
        for note in self.list(FOLDER).await? {
            if !note.modified.elapsed().is_ok_and(|found| found > age) {
                continue;
            }
            let mut reading = self.read(&note.name, None).await?;
            let mut text = Vec::new();
            while let Some(block) = futures_util::TryStreamExt::try_next(&mut reading.stream).await? {
                text.extend_from_slice(&block);
            }
            if let Ok(Unfinished { name, id }) = serde_json::from_slice(&text) {
                let given_up = self.0.multipart.abort_multipart(&self.place(&name)?, &id).await;
                match given_up.map_err(|error| Error::of(&name, error)) {
                    Ok(()) | Err(Error::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            }
            self.remove(&note.name).await?;
        }
        Ok(())
    }
}
