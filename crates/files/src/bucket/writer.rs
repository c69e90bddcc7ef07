//! An object that grows: small ones are put whole, large ones in parts.

use super::unfinished::Note;
use super::{Bucket, Error, Result};
use crate::Step;
use bytes::{Bytes, BytesMut};
use object_store::multipart::PartId;
use object_store::{Attributes, MultipartId, PutMultipartOptions, PutOptions};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;

/// Every part but the last has this size; some stores want all equal. At most ten thousand parts make 156 GiB.
const PART: usize = 16 << 20;

/// How many parts are under way at a time; each takes memory.
const SIDE_BY_SIDE: usize = 2;

/// What a whole object turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    pub bytes: u64,
    pub sha256: String,
}

/// Nobody sees the object before [`Writer::finish`]. One that is dropped leaves parts that are given up later.
pub struct Writer {
    bucket: Bucket,
    name: String,
    attributes: Attributes,
    buffer: BytesMut,
    digest: Sha256,
    bytes: u64,
    parts: Option<Parts>,
    is_new_only: bool,
}

/// An object of which every part is there, and that nobody sees yet.
pub struct Finishing {
    bucket: Bucket,
    name: String,
    parts: Parts,
    list: Vec<PartId>,
    written: Written,
}

struct Parts {
    id: MultipartId,
    note: Note,
    begun: usize,
    done: Vec<(usize, PartId)>,
    sending: JoinSet<Result<(usize, PartId)>>,
}

impl Writer {
    pub(super) fn new(bucket: Bucket, name: &str, attributes: Attributes) -> Self {
        Writer {
            bucket,
            name: name.into(),
            attributes,
            buffer: BytesMut::new(),
            digest: Sha256::new(),
            bytes: 0,
            parts: None,
            is_new_only: false,
        }
    }

    /// Refuses to finish when there is an object of this name by then. That is asked just before; once the name is
    /// [sealed](Bucket::seal), whoever had asked earlier is refused too. So it is always written in parts, however small.
    pub fn new_only(self) -> Self {
        Writer { is_new_only: true, ..self }
    }

    /// How much was written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes any amount; returns when there is room for more.
    pub async fn write(&mut self, block: Bytes) -> Result<()> {
        self.digest.update(&block);
        self.bytes += block.len() as u64;
        self.buffer.extend_from_slice(&block);
        while self.buffer.len() >= PART {
            let part = self.buffer.split_to(PART).freeze();
            self.send(part).await?;
        }
        Ok(())
    }

    async fn send(&mut self, part: Bytes) -> Result<()> {
        let mut parts = match self.parts.take() {
            Some(parts) => parts,
            None => self.begin().await?,
        };
        let sent = parts.send(&self.bucket, &self.name, part).await;
        self.parts = Some(parts);
        sent
    }

    async fn begin(&self) -> Result<Parts> {
        let options = PutMultipartOptions { attributes: self.attributes.clone(), ..Default::default() };
        let place = self.bucket.place(&self.name)?;
        let id = self.bucket.0.multipart.create_multipart_opts(&place, options).await;
        let id = id.map_err(|error| Error::of(&self.name, error))?;
        let note = Step::BeginParts.across(Note::write(&self.bucket, &self.name, &id)).await?;
        Ok(Parts { id, note, begun: 0, done: Vec::new(), sending: JoinSet::new() })
    }

    /// Makes it seen, as a whole.
    pub async fn finish(mut self) -> Result<Written> {
        if self.parts.is_some() || self.is_new_only {
            return self.looked().await?.complete().await;
        }
        let (written, last) = (self.written(), self.buffer.split().freeze());
        let options = PutOptions { attributes: self.attributes, ..PutOptions::default() };
        let put = self.bucket.0.store.put_opts(&self.bucket.place(&self.name)?, last.into(), options).await;
        put.map(|_| written).map_err(|error| Error::of(&self.name, error))
    }

    /// All of it is there, and if its name must be free, it was after that: where parts cannot be given up (Azure), whoever
    /// finishes under the same name drops those that were there before.
    pub async fn looked(mut self) -> Result<Finishing> {
        let (written, last) = (self.written(), self.buffer.split().freeze());
        if !last.is_empty() || self.parts.is_none() {
            self.send(last).await?;
        }
        let Some(parts) = &mut self.parts else { return Err(Error::NotFound(self.name)) };
        let list = parts.all().await?;
        if self.is_new_only && self.bucket.has(&self.name).await? {
            let taken = Error::Taken(self.name.clone());
            self.abandon().await;
            return Err(taken);
        }
        let Some(parts) = self.parts.take() else { return Err(Error::NotFound(self.name)) };
        Ok(Finishing { bucket: self.bucket, name: self.name, parts, list, written })
    }

    fn written(&mut self) -> Written {
        Written { bytes: self.bytes, sha256: hex::encode(self.digest.finalize_reset()) }
    }

    /// Leaves nothing of it.
    pub async fn abandon(mut self) {
        let (Some(mut parts), Ok(place)) = (self.parts.take(), self.bucket.place(&self.name)) else { return };
        parts.sending.shutdown().await;
        if self.bucket.0.multipart.abort_multipart(&place, &parts.id).await.is_ok() {
            parts.note.remove(&self.bucket).await;
        }
    }
}

impl Finishing {
    /// Makes it seen, as a whole.
    pub async fn complete(self) -> Result<Written> {
        let Finishing { bucket, name, parts, list, written } = self;
        let place = bucket.place(&name)?;
        let completing = bucket.0.multipart.complete_multipart(&place, &parts.id, list);
        if let Err(error) = Step::CompleteParts.across(completing).await {
            // An answer that got lost is asked for again, and by then there is nothing left to complete.
            let found = bucket.look(&name).await;
            if !found.is_ok_and(|found| found.bytes == written.bytes) {
                return Err(Error::of(&name, error));
            }
        }
        parts.note.remove(&bucket).await;
        Ok(written)
    }
}

impl Parts {
    async fn send(&mut self, bucket: &Bucket, name: &str, part: Bytes) -> Result<()> {
        self.note.refresh(bucket).await?;
        while self.sending.len() >= SIDE_BY_SIDE {
            self.next().await?;
        }
        let (index, place, id) = (self.begun, bucket.place(name)?, self.id.clone());
        let (bucket, name) = (bucket.clone(), name.to_owned());
        self.begun += 1;
        self.sending.spawn(async move {
            let sent = bucket.0.multipart.put_part(&place, &id, index, part.into()).await;
            sent.map(|part| (index, part)).map_err(|error| Error::of(&name, error))
        });
        Ok(())
    }

    async fn next(&mut self) -> Result<()> {
        if let Some(sent) = self.sending.join_next().await {
            self.done.push(sent.map_err(|error| std::io::Error::other(error.to_string()))??);
        }
        Ok(())
    }

    /// In order, once all are there.
    async fn all(&mut self) -> Result<Vec<PartId>> {
        while !self.sending.is_empty() {
            self.next().await?;
        }
        self.done.sort_by_key(|(index, _)| *index);
        Ok(self.done.drain(..).map(|(_, part)| part).collect())
    }
}
