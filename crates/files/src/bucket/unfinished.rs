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
            if let Some(unfinished) = self.unfinished(&note.name).await? {
                self.give_up(&unfinished).await?;
            }
            self.remove(&note.name).await?;
        }
        Ok(())
    }

    /// Lets nobody replace an object that is there: of those who write it too, and [only if it is
    /// new](super::Writer::new_only), who began before this is given up here, and who begins later will see it.
    pub async fn seal(&self, name: &str) -> Result<()> {
        for note in self.list(FOLDER).await? {
            let unfinished = self.unfinished(&note.name).await?;
            if let Some(rival) = unfinished.filter(|unfinished| unfinished.name == name) {
                self.give_up(&rival).await?;
            }
        }
        Ok(())
    }

    /// None for a note that nobody can read, or that was removed since.
    async fn unfinished(&self, note: &str) -> Result<Option<Unfinished>> {
        let mut reading = match self.read(note, None).await {
            Err(Error::NotFound(_)) => return Ok(None),
            reading => reading?,
        };
        let mut text = Vec::new();
        while let Some(block) = futures_util::TryStreamExt::try_next(&mut reading.stream).await? {
            text.extend_from_slice(&block);
        }
        Ok(serde_json::from_slice(&text).ok())
    }

    async fn give_up(&self, Unfinished { name, id }: &Unfinished) -> Result<()> {
        let given_up = self.0.multipart.abort_multipart(&self.place(name)?, id).await;
        match given_up.map_err(|error| Error::of(name, error)) {
            Ok(()) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::open::in_memory;
    use super::*;
    use bytes::Bytes;

    async fn content(bucket: &Bucket, name: &str) -> Vec<u8> {
        let mut reading = bucket.read(name, None).await.unwrap();
        let mut text = Vec::new();
        while let Some(block) = futures_util::TryStreamExt::try_next(&mut reading.stream).await.unwrap() {
            text.extend_from_slice(&block);
        }
        text
    }

    #[tokio::test]
    async fn nobody_replaces_a_sealed_object_however_late() {
        let bucket = in_memory();
        let mut slow = bucket.writer("sources/a.mov", Told::default()).new_only();
        slow.write(Bytes::from_static(b"slow")).await.unwrap();
        let mut slower = bucket.writer("sources/a.mov", Told::default()).new_only();
        slower.write(Bytes::from_static(b"slower")).await.unwrap();

        // One stands still after it has looked, and just before it is done.
        let about_to_finish = slow.looked().await.unwrap();
        let mut quick = bucket.writer("sources/a.mov", Told::default()).new_only();
        quick.write(Bytes::from_static(b"quick")).await.unwrap();
        quick.finish().await.unwrap();
        bucket.seal("sources/a.mov").await.unwrap();

        assert!(about_to_finish.complete().await.is_err());
        assert!(matches!(slower.finish().await, Err(Error::Taken(_))));
        assert_eq!(content(&bucket, "sources/a.mov").await, b"quick");
    }
}
