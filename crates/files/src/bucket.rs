//! Files in an object store: S3 and what speaks like it, Google Cloud Storage, Azure.
//!
//! An object is there as a whole or not at all, so nothing needs a second name until it is complete. Names are relative
//! to the bucket's prefix, with `/` between their parts. Requests that fail are tried again for a while before anybody
//! hears of it.

mod error;
mod lenient;
mod open;
mod resume;
mod sign;
mod unfinished;
mod writer;

pub use error::{BadAddress, Error};
pub use sign::{Digests, Signed};
pub use writer::{Finishing, Writer, Written};

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Name;
use object_store::signer::Signer;
use object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, GetOptions, GetRange, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMode, PutOptions,
};
use sha2::{Digest, Sha256};
use std::fmt;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;

pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How many files are under way at a time.
const SIDE_BY_SIDE: usize = 4;

const LONGEST_TEXT: usize = 4096;

/// S3 copies no larger object by itself.
const MOST_COPIED: u64 = 5 << 30;

/// What cannot be repeated blindly is not by the client below us.
const REPETITIONS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_millis(500), Duration::from_secs(2)];

/// Cheap to clone.
#[derive(Clone)]
pub struct Bucket(Arc<Inner>);

struct Inner {
    store: Arc<dyn ObjectStore>,
    multipart: Arc<dyn MultipartStore>,
    signer: Arc<dyn Signer>,
    /// Below which everything of ours is.
    prefix: Name,
    /// For people.
    url: String,
    /// Of a provider that people name: the same bucket elsewhere is another one.
    endpoint: Option<String>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Aws,
    #[cfg(feature = "gcp")]
    Gcp,
    #[cfg(feature = "azure")]
    Azure,
}

/// What is known of an object without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub name: String,
    pub bytes: u64,
    /// The same only for the same bytes.
    pub etag: String,
    pub modified: SystemTime,
}

/// An object, or a part of it, on its way.
pub struct Reading {
    pub whole: Found,
    pub range: Range<u64>,
    pub stream: BoxStream<'static, Result<Bytes>>,
}

/// How an object is to be told to those who read it straight from the bucket.
#[derive(Debug, Clone, Copy, Default)]
pub struct Told<'a> {
    pub content_type: Option<&'a str>,
    pub cache: Option<&'static str>,
}

/// Whoever wants to know that bytes are under way.
pub type Moved<'a> = &'a (dyn Fn() + Send + Sync);

impl Bucket {
    /// `s3://bucket/prefix`, `gs://…` or `az://…`; how to get there and as whom, the usual variables say (`AWS_…`,
    /// `GOOGLE_…`, `AZURE_…`).
    pub fn open(url: &str) -> Result<Self, BadAddress> {
        open::open(url, &[])
    }

    /// As [`Bucket::open`], with variables that count before those of this process.
    pub fn open_with(url: &str, variables: &[(&str, &str)]) -> Result<Self, BadAddress> {
        open::open(url, variables)
    }

    /// Where it is, for people. Holds no secret.
    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Which service has it, where that was named. Holds no secret.
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint.as_deref()
    }

    /// Whether it is there and lets us look.
    pub async fn check(&self) -> Result<()> {
        match self.folders("").await {
            Err(Error::NotFound(_)) => Err(Error::NotFound(format!("bucket of {}", self.0.url))),
            looked => looked.map(drop),
        }
    }

    /// What is under a name now.
    pub async fn look(&self, name: &str) -> Result<Found> {
        let meta = self.0.store.head(&self.place(name)?).await;
        Ok(self.found(meta.map_err(|error| Error::of(name, error))?))
    }

    pub async fn has(&self, name: &str) -> Result<bool> {
        match self.look(name).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// All of an object, or these bytes of it; after a cut it goes on at the same byte, in the same object.
    pub async fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Reading> {
        let (store, place) = (self.0.store.clone(), self.place(name)?);
        let ask = move |range: Option<Range<u64>>| {
            let (store, place) = (store.clone(), place.clone());
            let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
            async move { store.get_opts(&place, options).await }
        };
        let first = ask(range).await.map_err(|error| Error::of(name, error))?;
        let (whole, range) = (self.found(first.meta.clone()), first.range.clone());
        let stream = resume::resumed(name, first, move |left| ask(Some(left)));
        Ok(Reading { whole, range, stream })
    }

    /// The beginning of a small object; none if there is none.
    pub async fn text(&self, name: &str) -> Result<Option<String>> {
        let mut reading = match self.read(name, None).await {
            Err(Error::NotFound(_)) => return Ok(None),
            reading => reading?,
        };
        let mut text = Vec::new();
        while let Some(block) = reading.stream.try_next().await?.filter(|_| text.len() < LONGEST_TEXT) {
            text.extend_from_slice(&block);
        }
        text.truncate(LONGEST_TEXT);
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    /// Brings an object to this disk; its size and hash, as read. Tells `moved` of each step.
    pub async fn fetch(&self, name: &str, to: &Path, moved: Moved<'_>) -> Result<Written> {
        if let Some(folder) = to.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        let mut reading = self.read(name, None).await?;
        let mut file = tokio::fs::File::create(to).await?;
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        while let Some(block) = reading.stream.try_next().await? {
            digest.update(&block);
            bytes += block.len() as u64;
            file.write_all(&block).await?;
            moved();
        }
        file.flush().await?;
        Ok(Written { bytes, sha256: hex::encode(digest.finalize()) })
    }

    /// Reads an object through; its size and hash. Tells `moved` of each step.
    pub async fn measure(&self, name: &str, moved: Moved<'_>) -> Result<Written> {
        let mut reading = self.read(name, None).await?;
        let (mut digest, mut bytes) = (Sha256::new(), 0);
        while let Some(block) = reading.stream.try_next().await? {
            digest.update(&block);
            bytes += block.len() as u64;
            moved();
        }
        Ok(Written { bytes, sha256: hex::encode(digest.finalize()) })
    }

    /// Everything below a folder.
    pub async fn list(&self, folder: &str) -> Result<Vec<Found>> {
        let listed = self.0.store.list(Some(&self.place(folder)?));
        let found = listed.map_ok(|meta| self.found(meta)).try_collect().await;
        found.map_err(|error| Error::of(folder, error))
    }

    /// The folders that are in a folder, by their last name.
    pub async fn folders(&self, folder: &str) -> Result<Vec<String>> {
        let listed = self.0.store.list_with_delimiter(Some(&self.place(folder)?)).await;
        let listed = listed.map_err(|error| Error::of(folder, error))?;
        Ok(listed.common_prefixes.iter().filter_map(|it| it.filename().map(str::to_owned)).collect())
    }

    /// Puts an object under a name, in place of one that may be there.
    pub async fn put(&self, name: &str, content: Bytes, told: Told<'_>) -> Result<()> {
        self.put_as(name, content, told, PutMode::Overwrite).await
    }

    /// As [`Bucket::put`] for a name that must be free: of two who try, one is refused, where the store can tell.
    /// A name that is taken may have been by a try of one's own, whose answer got lost.
    pub async fn create(&self, name: &str, content: Bytes) -> Result<()> {
        for wait in REPETITIONS {
            match self.put_as(name, content.clone(), Told::default(), PutMode::Create).await {
                Err(Error::Away { .. }) => tokio::time::sleep(wait).await,
                created => return created,
            }
        }
        self.put_as(name, content, Told::default(), PutMode::Create).await
    }

    async fn put_as(&self, name: &str, content: Bytes, told: Told<'_>, mode: PutMode) -> Result<()> {
        let options = PutOptions { mode, attributes: told.attributes(), ..PutOptions::default() };
        let put = self.0.store.put_opts(&self.place(name)?, content.into(), options).await;
        put.map(drop).map_err(|error| Error::of(name, error))
    }

    /// Puts a file of this disk under a name. Tells `moved` of each step.
    pub async fn send(&self, from: &Path, name: &str, told: Told<'_>, moved: Moved<'_>) -> Result<Written> {
        self.pour(from, self.writer(name, told), moved).await
    }

    /// As [`Bucket::send`] for a name that must be free.
    pub async fn send_new(&self, from: &Path, name: &str, moved: Moved<'_>) -> Result<Written> {
        self.pour(from, self.writer(name, Told::default()).new_only(), moved).await
    }

    async fn pour(&self, from: &Path, mut writer: Writer, moved: Moved<'_>) -> Result<Written> {
        let mut file = tokio::fs::File::open(from).await?;
        loop {
            let mut block = bytes::BytesMut::with_capacity(256 << 10);
            match tokio::io::AsyncReadExt::read_buf(&mut file, &mut block).await {
                Ok(0) => return writer.finish().await,
                Ok(_) => {
                    writer.write(block.freeze()).await?;
                    moved();
                }
                Err(error) => {
                    writer.abandon().await;
                    return Err(error.into());
                }
            }
        }
    }

    /// Begins an object whose length is not known yet; nobody sees it before it is finished.
    pub fn writer(&self, name: &str, told: Told<'_>) -> Writer {
        Writer::new(self.clone(), name, told.attributes())
    }

    /// Puts all of these files of this disk under their names, several at a time.
    pub async fn send_all(
        &self,
        files: Vec<(std::path::PathBuf, String, Option<String>)>,
        cache: Option<&'static str>,
    ) -> Result<()> {
        let send = |(from, name, kind): (std::path::PathBuf, String, Option<String>)| async move {
            self.send(&from, &name, Told { content_type: kind.as_deref(), cache }, &|| {}).await.map(drop)
        };
        stream::iter(files).map(send).buffer_unordered(SIDE_BY_SIDE).try_collect().await
    }

    /// Copies an object inside the storage to a name that must be free. S3 cannot tell, so it is asked just before.
    pub async fn copy_new(&self, from: &str, to: &str) -> Result<()> {
        let found = self.look(from).await?;
        if self.has(to).await? {
            return Err(Error::Taken(to.into()));
        }
        if found.bytes > MOST_COPIED {
            return self.copy_through(from, to).await;
        }
        let mode = match self.0.kind {
            Kind::Aws => CopyMode::Overwrite,
            #[cfg(feature = "gcp")]
            Kind::Gcp => CopyMode::Create,
            #[cfg(feature = "azure")]
            Kind::Azure => CopyMode::Create,
        };
        let options = CopyOptions::new().with_mode(mode);
        let copied = self.0.store.copy_opts(&self.place(from)?, &self.place(to)?, options).await;
        copied.map_err(|error| Error::of(from, error))
    }

    async fn copy_through(&self, from: &str, to: &str) -> Result<()> {
        let mut reading = self.read(from, None).await?;
        let mut writer = self.writer(to, Told::default()).new_only();
        while let Some(block) = reading.stream.try_next().await? {
            writer.write(block).await?;
        }
        writer.finish().await.map(drop)
    }

    /// Removes an object, if it is there.
    pub async fn remove(&self, name: &str) -> Result<()> {
        match self.0.store.delete(&self.place(name)?).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            removed => removed.map_err(|error| Error::of(name, error)),
        }
    }

    /// Removes everything below a folder.
    pub async fn remove_all(&self, folder: &str) -> Result<()> {
        let names: Vec<_> =
            self.0.store.list(Some(&self.place(folder)?)).map_ok(|meta| meta.location).collect().await;
        let removed = self.0.store.delete_stream(stream::iter(names).boxed());
        let is_gone =
            |result: &object_store::Result<Name>| matches!(result, Err(object_store::Error::NotFound { .. }));
        let mut removed = removed.filter(|result| std::future::ready(!is_gone(result)));
        while let Some(result) = removed.next().await {
            result.map_err(|error| Error::of(folder, error))?;
        }
        Ok(())
    }

    fn place(&self, name: &str) -> Result<Name> {
        let name = Name::parse(name).map_err(|_| Error::NotFound(name.into()))?;
        Ok(self.0.prefix.parts().chain(name.parts()).collect())
    }

    fn found(&self, meta: ObjectMeta) -> Found {
        let below = meta.location.prefix_match(&self.0.prefix).map(|parts| parts.collect::<Name>());
        Found {
            name: below.map_or_else(|| meta.location.to_string(), |name| name.to_string()),
            bytes: meta.size,
            etag: meta.e_tag.unwrap_or_default(),
            modified: meta.last_modified.into(),
        }
    }
}

impl Told<'_> {
    fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        if let Some(kind) = self.content_type {
            attributes.insert(Attribute::ContentType, kind.to_owned().into());
        }
        if let Some(cache) = self.cache {
            attributes.insert(Attribute::CacheControl, cache.into());
        }
        attributes
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.0.url)
    }
}
