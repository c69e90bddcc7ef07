//! A file comes in and becomes a video with a job: both in one transaction, or neither.

use crate::app::Options;
use crate::data::Data;
use crate::problem::{Error, Result};
use bytes::Bytes;
use files::bucket::{Told, Written};
use files::{Bucket, Place, Reserve, Step};
use futures_util::{Stream, StreamExt};
use media::encoder::Family;
use media::settings::Settings;
use outbound::Reach;
use rules::placement::Pool;
use rules::{JobId, Priority, VideoId};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::catalogue::Entry;
use store::submit::NewJob;
use store::video::NewVideo;
use store::worker::View;
use tokio::io::AsyncWriteExt;
use utoipa::ToSchema;
use uuid::Uuid;
use worker::transcode::{Fetch, Order, PRESENTATION, Seen};

/// What somebody wants made of a file.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wish {
    /// For people. Default: the file's name.
    #[schema(max_length = 200)]
    pub title: Option<String>,
    /// Its name in addresses: letters, digits and dashes, and not digits alone. Default: made of the title.
    #[schema(max_length = 100, pattern = "^[a-z0-9]+(-[a-z0-9]+)*$")]
    pub slug: Option<String>,
    /// Whose it is. Default: `default`.
    pub user: Option<String>,
    /// 10 is most urgent. Default: 5.
    #[schema(minimum = 0, maximum = 10)]
    pub priority: Option<i64>,
    /// It may be watched while it is being made. Default: false.
    pub early_playback: bool,
    /// The pool of remote workers that makes it. Default: workers of no pool.
    #[schema(value_type = Option<String>, max_length = 32, pattern = "^[a-z0-9_-]+$")]
    pub pool: Option<Pool>,
    /// Codecs, qualities and the like; as `vodmill plan --json` shows them. Default: H.264, a ladder that fits.
    #[schema(value_type = Object)]
    pub settings: Settings,
}

/// A file of the server's own, whole and where it stays.
#[derive(Debug)]
pub struct Received {
    /// In a bucket, its name there.
    pub path: PathBuf,
    pub bytes: u64,
    pub sha256: String,
}

/// What a video is made of: a file of the server's own, or one that will be.
struct Material {
    path: PathBuf,
    bytes: Option<u64>,
    sha256: Option<String>,
    fetch: Option<Fetch>,
}

impl From<&Received> for Material {
    fn from(received: &Received) -> Self {
        Material {
            path: received.path.clone(),
            bytes: Some(received.bytes),
            sha256: Some(received.sha256.clone()),
            fetch: None,
        }
    }
}

#[derive(Clone)]
pub struct Ingest {
    store: Store,
    data: Data,
    options: Arc<Options>,
    room: Reserve,
}

impl Ingest {
    pub fn new(store: Store, data: Data, options: Arc<Options>) -> Self {
        Ingest { store, data, options, room: Reserve::default() }
    }

    /// Takes in only what leaves this free.
    pub fn with_room(self, room: Reserve) -> Self {
        Ingest { room, ..self }
    }

    /// Writes a stream to the disk, hashing on the way; of one that breaks off or is too long, nothing is left.
    pub async fn receive<E: std::fmt::Display>(
        &self,
        name: &str,
        stream: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<Received> {
        let path = self.new_source(name);
        let received = self.write(&path, stream).await;
        // Half an object is none.
        if received.is_err() && self.data.bucket().is_none() {
            let _ = self.data.remove_source(&path).await;
        }
        received
    }

    async fn write<E: std::fmt::Display>(
        &self,
        path: &Path,
        stream: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<Received> {
        if let Place::Bucket(bucket, name) = self.data.source(path) {
            return self.write_to(&bucket, &name, stream).await;
        }
        let disk = |error: std::io::Error| Error::disk("keeping the upload", &error);
        self.room.room_for(0).map_err(Error::Full)?;
        let mut file = tokio::fs::File::create_new(path).await.map_err(disk)?;
        let (mut digest, mut bytes) = (Sha256::new(), 0_u64);
        let mut stream = std::pin::pin!(stream);
        while let Some(block) = stream.next().await {
            let block = block.map_err(|error| Error::Invalid(format!("the upload broke off: {error}")))?;
            bytes += block.len() as u64;
            if bytes > self.options.max_upload_bytes {
                return Err(too_large(self.options.max_upload_bytes));
            }
            self.room.room_to_go_on(block.len()).map_err(Error::Full)?;
            digest.update(&block);
            file.write_all(&block).await.map_err(disk)?;
        }
        file.flush().await.map_err(disk)?;
        Step::ReceiveSource.across(file.sync_all()).await.map_err(disk)?;
        Ok(Received { path: path.into(), bytes, sha256: hex::encode(digest.finalize()) })
    }

    async fn write_to<E: std::fmt::Display>(
        &self,
        bucket: &Bucket,
        name: &str,
        stream: impl Stream<Item = Result<Bytes, E>>,
    ) -> Result<Received> {
        let mut writer = bucket.writer(name, Told::default());
        let mut stream = std::pin::pin!(stream);
        while let Some(block) = stream.next().await {
            let written = match block {
                Err(error) => Err(Error::Invalid(format!("the upload broke off: {error}"))),
                Ok(block) if writer.bytes() + block.len() as u64 > self.options.max_upload_bytes => {
                    Err(too_large(self.options.max_upload_bytes))
                }
                Ok(block) => writer.write(block).await.map_err(Error::from),
            };
            if let Err(error) = written {
                writer.abandon().await;
                return Err(error);
            }
        }
        let Written { bytes, sha256 } = Step::ReceiveObject.across(writer.finish()).await?;
        Ok(Received { path: name.into(), bytes, sha256 })
    }

    /// Takes over a file that lies on the server's own disk already, under a name that is the same each time: whoever was
    /// stopped in between is gone on with. The caller, who alone is at it, removes the file when it has become a video.
    pub async fn adopt(&self, path: PathBuf, from: PathBuf) -> Result<Received> {
        let limit = self.options.max_upload_bytes;
        if let Place::Bucket(bucket, name) = self.data.source(&path) {
            return adopt_into(&bucket, &name, &from, limit).await;
        }
        let room = self.room.clone();
        let adopted = tokio::task::spawn_blocking(move || adopt(&from, &path, limit, &room)).await;
        adopted.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
    }

    fn new_source(&self, name: &str) -> PathBuf {
        self.source(&Uuid::now_v7().to_string(), name)
    }

    /// Where a source with this id is kept, whose file was called so.
    pub fn source(&self, id: &str, name: &str) -> PathBuf {
        let extension = Path::new(name).extension().and_then(|extension| extension.to_str());
        let extension =
            extension.filter(|it| it.len() <= 8 && it.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let extension = extension.map(|it| format!(".{}", it.to_ascii_lowercase())).unwrap_or_default();
        self.data.source_called(&format!("{id}{extension}"))
    }

    /// Makes a video and its first job of a received file; of one that is refused, nothing is left. After a failure it may
    /// have become a video all the same: the janitor removes it when it has not.
    pub async fn accept(
        &self,
        received: &Received,
        name: &str,
        wish: &Wish,
        upload: Option<&str>,
    ) -> Result<(VideoId, JobId)> {
        let accepted = match received.bytes {
            0 => Err(Error::unprocessable("empty", "the file is empty")),
            _ => self.submit(&received.into(), name, wish, upload).await,
        };
        if accepted.as_ref().is_err_and(Error::is_refusal) {
            let _ = self.data.remove_source(&received.path).await;
        }
        accepted
    }

    /// Makes a video of a file that is at an address; its job begins with fetching it.
    pub async fn import(&self, url: &str, wish: &Wish) -> Result<(VideoId, JobId)> {
        let allow_private = self.options.import_allow_private;
        let parsed = Reach::private(allow_private)
            .parse(url)
            .map_err(|refused| Error::unprocessable("bad_url", refused.to_string()))?;
        let name = parsed.path_segments().and_then(|mut parts| parts.next_back()).unwrap_or_default();
        let name = if name.is_empty() { "video" } else { name };
        let path = self.new_source(name);
        let fetch = Fetch {
            url: url.into(),
            to: path.to_string_lossy().into_owned(),
            max_bytes: self.options.max_upload_bytes,
            allow_private,
        };
        let material = Material { path, bytes: None, sha256: None, fetch: Some(fetch) };
        self.submit(&material, name, wish, None).await
    }

    async fn submit(
        &self,
        material: &Material,
        name: &str,
        wish: &Wish,
        upload: Option<&str>,
    ) -> Result<(VideoId, JobId)> {
        let priority = self.check(wish)?;
        let decided =
            Wish { settings: self.decided(wish.settings.clone(), wish.pool.as_ref()).await?, ..wish.clone() };
        let title = clean_title(wish.title.as_deref().unwrap_or_else(|| stem(name)));
        let asked = wish.slug.as_deref();
        for slug in slugs(asked, &title) {
            let new = self.new_video(material, wish, &title, slug)?;
            let order = |video| self.order(video, &title, material, &decided, priority);
            let job = |video| {
                let spec = worker::transcode::spec(&order(video)).map_err(store::Error::BadJson)?;
                Ok(NewJob { spec, video: Some(video), idempotency_key: None })
            };
            match self.store.submit_video(&new, upload, job).await {
                Err(store::Error::Taken(_)) if asked.is_none() => {}
                submitted => return Ok(submitted?),
            }
        }
        Err(Error::Internal("no free slug was found".into()))
    }

    /// With hardware that a worker has that is here now, where that was left to us. One rendition has one encoder, so
    /// this holds for the whole job, which then waits for such workers alone. So what a remote worker says of itself does
    /// not decide: its hardware counts where an admin allowed it by name.
    async fn decided(&self, settings: Settings, pool: Option<&Pool>) -> Result<Settings> {
        if settings.encoder != Family::Auto {
            return Ok(settings);
        }
        let workers = self.store.workers(false).await?;
        let takes_work = |worker: &&View| {
            let is_in_pool = worker.kind == "local" || worker.pool.as_deref() == pool.map(Pool::as_str);
            is_in_pool && !matches!(worker.status.as_str(), "draining" | "disabled")
        };
        let offers = |worker: &View, family: Family| {
            let lists = |list: &str, name: &str| list.split(',').any(|capability| capability == name);
            let is_allowed = |name: &str| {
                worker.kind == "local" || worker.granted.as_deref().is_some_and(|it| lists(it, name))
            };
            let has = |name: &str| lists(&worker.capabilities, name) && is_allowed(name);
            settings.codecs.iter().all(|codec| has(&family.encoder(*codec)))
        };
        let is_offered =
            |family: &Family| workers.iter().filter(takes_work).any(|worker| offers(worker, *family));
        let encoder = Family::HARDWARE.into_iter().find(is_offered).unwrap_or(Family::Software);
        Ok(Settings { encoder, ..settings })
    }

    fn check(&self, wish: &Wish) -> Result<Priority> {
        self.check_settings(&wish.settings)?;
        if let Some(slug) = wish.slug.as_deref().filter(|slug| !is_slug(slug)) {
            let what = format!(
                "`{slug}` is no slug: lower-case letters, digits and single dashes, at most 100, and not digits alone"
            );
            return Err(Error::unprocessable("bad_slug", what));
        }
        // As the spec of a job has it.
        if wish.user.as_ref().is_some_and(|user| user.chars().count() > 64) {
            return Err(Error::unprocessable("bad_user", "the name of a user may have 64 characters"));
        }
        priority(wish)
    }

    /// Those a person may choose, within what this server takes on.
    fn check_settings(&self, settings: &Settings) -> Result<()> {
        let bad = |why: String| Error::unprocessable("bad_settings", why);
        settings.check().map_err(|error| bad(error.to_string()))?;
        self.options.file_limits.check_settings(settings).map_err(|error| bad(error.to_string()))
    }

    /// What can be said before the file is there: nobody sends a gigabyte to hear that its slug is taken.
    pub async fn foresee(&self, wish: &Wish) -> Result<()> {
        self.check(wish)?;
        match &wish.slug {
            Some(slug) if self.store.find_video(slug).await?.is_some() => {
                Err(store::Error::Taken(slug.clone()).into())
            }
            _ => Ok(()),
        }
    }

    fn new_video(&self, material: &Material, wish: &Wish, title: &str, slug: String) -> Result<NewVideo> {
        let settings =
            serde_json::to_string(&wish.settings).map_err(|error| Error::Internal(error.to_string()))?;
        Ok(NewVideo {
            slug,
            title: title.into(),
            user: wish.user.clone().unwrap_or_else(|| "default".into()),
            source: Some(material.path.to_string_lossy().into_owned()),
            source_hash: material.sha256.clone(),
            source_bytes: material.bytes.and_then(|bytes| i64::try_from(bytes).ok()),
            settings: Some(settings),
            is_early_playback: wish.early_playback,
            pool: wish.pool.as_ref().map(ToString::to_string),
        })
    }

    fn order(
        &self,
        video: VideoId,
        title: &str,
        material: &Material,
        wish: &Wish,
        priority: Priority,
    ) -> Order {
        let source = material.path.to_string_lossy().into_owned();
        let settings = Settings { parallel: self.options.parallel, ..wish.settings.clone() };
        Order {
            name: title.into(),
            user: wish.user.clone().unwrap_or_else(|| "default".into()),
            priority,
            video,
            // An object does not change under its name.
            seen: material.path.is_absolute().then(|| Seen::of(&source).ok()).flatten(),
            source,
            fetch: material.fetch.clone(),
            settings,
            is_early_playback: wish.early_playback,
            pool: wish.pool.clone(),
            output: self.data.output(video),
            generation: format!("g-{}", hex::encode(rand::random::<[u8; 6]>())),
            carry: None,
            stall: self.options.stall,
            timeout: Some(self.options.encode_timeout),
            max_attempts: self.options.max_attempts,
            backoff_initial: failpoint::shortened("VODMILL_BACKOFF_SECONDS", Duration::from_secs(10)),
        }
    }

    /// Makes a new generation of a video; the present one is shown until the new one is complete.
    /// With `carry`, that is the folder of the generation whose other rungs are shown on.
    pub async fn again(
        &self,
        video: &Entry,
        settings: Settings,
        priority: Option<i64>,
        carry: Option<PathBuf>,
    ) -> Result<JobId> {
        self.check_settings(&settings)?;
        let path = PathBuf::from(video.source.clone().unwrap_or_default());
        if !self.data.has_source(&path).await? {
            let what = format!("the source of video {} is not there any more", video.id);
            return Err(Error::conflict("source_missing", what));
        }
        let pool = video.pool.as_deref().and_then(|pool| pool.parse().ok());
        let settings = self.decided(settings, pool.as_ref()).await?;
        let wish = Wish { settings, priority, pool, user: Some(video.user.clone()), ..Wish::default() };
        let material = Material { path, bytes: None, sha256: None, fetch: None };
        let carry = carry.map(|folder| folder.to_string_lossy().into_owned());
        let order = self.order(video.id, &video.title, &material, &wish, self::priority(&wish)?);
        let order = Order { carry, ..order };
        let spec = worker::transcode::spec(&order).map_err(|error| Error::Internal(error.to_string()))?;
        let job = NewJob { spec, video: Some(video.id), idempotency_key: None };
        Ok(self.store.submit(&job).await?.id())
    }

    /// The folder of a generation from which rungs can be taken over.
    pub async fn carried(&self, video: VideoId, generation: &str) -> Result<PathBuf> {
        let is_there = match self.data.published(video, generation, PRESENTATION) {
            Place::Disk(path) => path.is_file(),
            Place::Below(root, name) => files::Tree::open(&root).and_then(|tree| tree.read(&name)).is_ok(),
            Place::Bucket(bucket, name) => bucket.has(&name).await?,
        };
        if is_there {
            return Ok(Path::new(&self.data.output(video)).join(generation));
        }
        let what = "what is shown now was made by a version that did not keep what is needed to show its other \
                    qualities on; make all of them again";
        Err(Error::conflict("cannot_carry", what))
    }
}

fn priority(wish: &Wish) -> Result<Priority> {
    let Some(priority) = wish.priority else { return Ok(Priority::default()) };
    Priority::try_from(priority).map_err(|bad| Error::unprocessable("bad_priority", bad.to_string()))
}

pub(crate) fn too_large(limit: u64) -> Error {
    Error::TooLarge(format!("the file is larger than {limit} bytes, the most this server takes"))
}

/// Gives the file a second name, or copies it from another file system, and reads it through for its hash.
fn adopt(from: &Path, to: &Path, limit: u64, room: &Reserve) -> Result<Received> {
    let disk = |error: std::io::Error| Error::disk("taking over the file", &error);
    let is_moved = !from.exists() && to.exists();
    let found = std::fs::metadata(if is_moved { to } else { from }).map_err(disk)?;
    if found.len() > limit {
        return Err(too_large(limit));
    }
    if !is_moved {
        let folder = to.parent().unwrap_or(to);
        if std::fs::metadata(folder).map_err(disk)?.dev() != found.dev() {
            room.room_for(found.len()).map_err(Error::Full)?;
        }
        // Half a copy may be there, or a name so old that the janitor is about to remove it.
        files::remove(to).map_err(disk)?;
        Step::AdoptSource.around(|| files::link(from, to)).map_err(disk)?;
    }
    let Written { bytes, sha256 } = files::read_through(to).map_err(disk)?;
    for path in [Some(to), to.parent()].into_iter().flatten() {
        std::fs::File::open(path).and_then(|file| file.sync_all()).map_err(disk)?;
    }
    Ok(Received { path: to.into(), bytes, sha256 })
}

async fn adopt_into(bucket: &Bucket, name: &str, from: &Path, limit: u64) -> Result<Received> {
    let disk = |error: std::io::Error| Error::disk("taking over the file", &error);
    if tokio::fs::metadata(from).await.map_err(disk)?.len() > limit {
        return Err(too_large(limit));
    }
    let sending = bucket.send(from, name, Told::default(), &|| {});
    let Written { bytes, sha256 } = Step::AdoptObject.across(sending).await?;
    Ok(Received { path: name.into(), bytes, sha256 })
}

/// `My talk.mov` without what only programs read.
fn stem(name: &str) -> &str {
    Path::new(name).file_stem().and_then(|stem| stem.to_str()).unwrap_or(name)
}

fn clean_title(title: &str) -> String {
    let clean: String = wire::text::clean_name(title, 4000).chars().take(200).collect();
    if clean.is_empty() { "untitled".into() } else { clean }
}

/// A slug with digits alone would be taken for the number of another video.
pub(crate) fn is_slug(slug: &str) -> bool {
    let part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let is_number = slug.bytes().all(|byte| byte.is_ascii_digit());
    slug.len() <= 100 && !is_number && slug.split('-').all(part)
}

/// The one asked for; or one made of the title, and others that are likely free.
fn slugs(asked: Option<&str>, title: &str) -> impl Iterator<Item = String> {
    let own = asked.map_or_else(|| slug_of(title), str::to_owned);
    let other = own.clone();
    let numbered = move |n| format!("{other}-{n}");
    let drawn = format!("{own}-{}", hex::encode(rand::random::<[u8; 4]>()));
    std::iter::once(own).chain((2..=5).map(numbered)).chain([drawn])
}

pub(crate) fn slug_of(title: &str) -> String {
    let title = title.to_lowercase();
    let words = title.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug: String = words.collect::<Vec<_>>().join("-").chars().take(80).collect();
    let slug = slug.trim_matches('-').to_owned();
    match slug.as_str() {
        "" => "video".into(),
        slug if is_slug(slug) => slug.into(),
        number => format!("video-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_becomes_a_slug() {
        for (title, slug) in [
            ("Talk", "talk"),
            ("Über Café!", "ber-caf"),
            ("…", "video"),
            ("a  b--c", "a-b-c"),
            ("2001", "video-2001"),
        ] {
            assert_eq!(slug_of(title), slug);
            assert!(is_slug(&slug_of(title)));
        }
        assert!(!is_slug("1") && is_slug("1a") && is_slug("1-2"));
        assert!(!is_slug("") && !is_slug("-a") && !is_slug("a--b") && !is_slug("A") && !is_slug("../a"));
        assert_eq!(slugs(None, "talk").take(3).collect::<Vec<_>>(), ["talk", "talk-2", "talk-3"]);
    }
}
