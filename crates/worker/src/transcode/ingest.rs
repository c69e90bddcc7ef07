//! A file that somebody named by its address is fetched, once and whole, to where all later stages read it.
//!
//! It has its place before it is there. Whoever fetches it first puts it there, and whoever comes later takes what is
//! there: so an execution that lost its lease can replace nothing. What has arrived outlives the execution
//! ([`super::partial`]), and the next one asks for the rest.

use super::partial::{Arrived, Partial};
use super::tools::disk;
use super::{Work, outcome};
use crate::depot::{Depot, ask};
use crate::handler::{BoxFuture, Failed, Outcome};
use crate::pace::Pace;
use files::Step;
use files::bucket::{self, Bucket, Written};
use outbound::Reach;
use reqwest::header::{
    CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderMap, HeaderName, IF_RANGE, LAST_MODIFIED, RANGE,
};
use reqwest::{Client, Response, StatusCode, Url};
use serde::{Deserialize, Serialize};
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::fs::File;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use wire::Arrival;

/// What is to be fetched, and where to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fetch {
    pub url: String,
    pub to: String,
    /// A larger one is not taken.
    pub max_bytes: u64,
    /// It may come from this machine or from a private network.
    pub allow_private: bool,
}

/// What a server lets jobs fetch, whatever their payloads say.
#[derive(Debug, Clone)]
pub struct Imports {
    /// Where sources are kept: on the disk, or in the bucket.
    pub folder: PathBuf,
    pub max_bytes: u64,
    pub allow_private: bool,
}

impl Fetch {
    /// As far as both the job and the settings of this server allow it.
    fn within(self, imports: Option<&Imports>) -> Result<Self, Failed> {
        let imports = imports.ok_or_else(|| Failed::permanent("this worker fetches no files"))?;
        let to = Path::new(&self.to);
        let is_source =
            to.file_name().is_some() && to.parent().is_some_and(|it| is_same(it, &imports.folder));
        if !is_source {
            return Err(Failed::permanent(format!(
                "the job would fetch a file to {}, which is not in {}, where the server keeps sources",
                self.to,
                imports.folder.display()
            )));
        }
        Ok(Fetch {
            max_bytes: self.max_bytes.min(imports.max_bytes),
            allow_private: self.allow_private && imports.allow_private,
            ..self
        })
    }
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    one == other || (one.is_absolute() && real(one).is_some() && real(one) == real(other))
}

/// The file as it arrived, by its own name.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fetched {
    path: String,
    bytes: u64,
    sha256: String,
}

const CONNECTING: Duration = Duration::from_secs(10);
/// Nothing for so long, and the connection counts as broken.
const SILENCE: Duration = Duration::from_secs(30);
/// How often one execution begins again or goes on; the task may have further executions.
const TRIES: u32 = 10;
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often what has arrived is made durable.
const NOTED_EVERY: Duration = Duration::from_secs(1);

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let fetch = work.payload::<Fetch>()?.within(work.tools.imports.as_ref())?;
        work.context.set_step("fetch");
        let found = tokio::select! {
            found = arrive(&work, &fetch) => found?,
            () = work.context.stop.cancelled() => return Err(Failed::transient("stopped on request")),
        };
        let made = outcome(&found)?;
        Ok(Outcome { arrival: Some(Arrival { bytes: found.bytes, sha256: found.sha256 }), ..made })
    })
}

/// Puts the file where it stays, unless it is there; what is there then.
async fn arrive(work: &Work<'_>, fetch: &Fetch) -> Result<Fetched, Failed> {
    let to = PathBuf::from(&fetch.to);
    if let (Depot::Bucket(bucket), true) = (&work.tools.depot, to.is_relative()) {
        return arrive_in(bucket, work, fetch).await;
    }
    // First, for the file may become the source itself: nothing is written to it once it has its place.
    let partial = Partial::open(work.context).await?;
    if !to.exists() {
        let (fetched, to) = (bring(work, fetch, &partial).await?, to.clone());
        let placed = move || {
            let placed = Step::Arrive.around(|| files::first(&fetched, &to));
            placed.map_err(|error| disk("keeping", &to, &error))
        };
        work.blocking(placed).await?;
    }
    partial.remove().await;
    work.blocking(move || read_through(&to)).await
}

async fn arrive_in(bucket: &Bucket, work: &Work<'_>, fetch: &Fetch) -> Result<Fetched, Failed> {
    let moved = || work.context.progress.beat();
    let partial = Partial::open(work.context).await?;
    if !ask(work.context, bucket.has(&fetch.to)).await? {
        let fetched = bring(work, fetch, &partial).await?;
        let placing = async {
            match Step::ArriveObject.across(bucket.send_new(&fetched, &fetch.to, &moved)).await {
                Ok(_) | Err(bucket::Error::Taken(_)) => Ok(()),
                Err(error) => Err(error),
            }
        };
        ask(work.context, placing).await?;
    }
    partial.remove().await;
    // What is told of it now must be true of it for ever.
    ask(work.context, Step::Seal.across(bucket.seal(&fetch.to))).await?;
    let Written { bytes, sha256 } = ask(work.context, bucket.measure(&fetch.to, &moved)).await?;
    Ok(Fetched { path: fetch.to.rsplit('/').next().unwrap_or_default().into(), bytes, sha256 })
}

fn read_through(path: &Path) -> Result<Fetched, Failed> {
    let name = path.file_name().unwrap_or_default();
    let read = files::read_through(path).map_err(|error| disk("reading", path, &error))?;
    Ok(Fetched { path: name.to_string_lossy().into_owned(), bytes: read.bytes, sha256: read.sha256 })
}

/// Fetches the file, or what is missing of it; its name on this disk.
async fn bring(work: &Work<'_>, fetch: &Fetch, partial: &Partial) -> Result<PathBuf, Failed> {
    let reach = Reach::private(fetch.allow_private);
    let url = reach.parse(&fetch.url).map_err(|refused| Failed::permanent(refused.to_string()))?;
    let client = reach
        .client()
        .redirect(reach.redirects())
        .connect_timeout(CONNECTING)
        .read_timeout(SILENCE)
        .build()
        .map_err(|error| Failed::transient(outbound::told(error)))?;
    let arrived = partial.arrived(fetch).await;
    let path = partial.file();
    let mut file = File::options().create(true).truncate(false).write(true).open(&path).await;
    if let Ok(file) = &mut file {
        continue_at(file, arrived.bytes).await.map_err(|error| disk("making", &path, &error))?;
    }
    let file = file.map_err(|error| disk("making", &path, &error))?;
    let Arrived { bytes: at, whole, version } = arrived;
    let mut download = Download {
        work,
        client,
        url,
        partial,
        fetch,
        path,
        file,
        at,
        fetched: 0,
        whole,
        version,
        noted: Instant::now(),
    };
    download.run().await?;
    work.context.count_bytes(download.fetched, 0);
    Ok(download.path)
}

async fn continue_at(file: &mut File, at: u64) -> std::io::Result<()> {
    file.set_len(at).await?;
    file.seek(SeekFrom::Start(at)).await.map(drop)
}

struct Download<'a> {
    work: &'a Work<'a>,
    client: Client,
    url: Url,
    partial: &'a Partial,
    fetch: &'a Fetch,
    path: PathBuf,
    file: File,
    /// How much is there.
    at: u64,
    /// How much of that this execution has fetched.
    fetched: u64,
    /// How much there will be, if that is known.
    whole: Option<u64>,
    /// What must be the same for the rest to fit.
    version: Option<String>,
    /// When it was last noted how much is there.
    noted: Instant,
}

/// Why a try ended before the file did.
enum Ended {
    /// Another try may go on.
    Broken(String),
    Failed(Failed),
}

impl From<Failed> for Ended {
    fn from(failed: Failed) -> Self {
        Ended::Failed(failed)
    }
}

impl Download<'_> {
    async fn run(&mut self) -> Result<(), Failed> {
        let mut pace = Pace::new(FIRST_WAIT, LONGEST_WAIT);
        for tries in 1.. {
            let why = match self.go_on().await {
                Ok(()) => return self.finish().await,
                Err(Ended::Failed(failed)) => return Err(failed),
                Err(Ended::Broken(why)) => why,
            };
            if tries >= TRIES {
                return Err(Failed::transient(self.told(&why)));
            }
            tracing::debug!("fetching {} broke off at byte {}: {why}", outbound::shown(&self.url), self.at);
            tokio::time::sleep(pace.next()).await;
        }
        Ok(())
    }

    /// Asks for what is missing, or for all where the other side cannot say that it is still the same file.
    async fn go_on(&mut self) -> Result<(), Ended> {
        if self.at > 0 && self.whole == Some(self.at) {
            return Ok(());
        }
        let mut request = self.client.get(self.url.clone());
        if let Some(version) = self.version.as_ref().filter(|_| self.at > 0) {
            request = request.header(RANGE, format!("bytes={}-", self.at)).header(IF_RANGE, version);
        }
        let mut answer = request.send().await.map_err(|error| self.broken(error))?;
        self.begin(&answer).await?;
        while let Some(block) = answer.chunk().await.map_err(|error| self.broken(error))? {
            self.at += block.len() as u64;
            self.fetched += block.len() as u64;
            self.fits(self.at)?;
            self.work.tools.room.room_to_go_on(block.len()).map_err(|why| self.no_room(&why))?;
            self.file.write_all(&block).await.map_err(|error| self.disk(&error))?;
            self.work.context.progress.beat();
            if let Some(whole) = self.whole.filter(|whole| *whole > 0) {
                self.work.context.progress.set_fraction(self.at as f64 / whole as f64);
            }
            self.note().await?;
        }
        match self.whole {
            Some(whole) if whole != self.at => {
                Err(Ended::Broken(format!("{} of {whole} bytes came", self.at)))
            }
            _ => Ok(()),
        }
    }

    /// What the answer is: the rest, or the file from its beginning, or neither.
    async fn begin(&mut self, answer: &Response) -> Result<(), Ended> {
        let (status, headers) = (answer.status(), answer.headers());
        if status == StatusCode::PARTIAL_CONTENT && first_byte(headers) == Some(self.at) {
            return Ok(());
        }
        if status != StatusCode::OK {
            return Err(self.refused(status));
        }
        if text(headers, CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/html")) {
            return Err(Failed::permanent(self.told("it answers with a web page, not with a file")).into());
        }
        self.version = version(headers);
        self.whole = answer.content_length();
        self.fits(self.whole.unwrap_or(0))?;
        self.has_room()?;
        self.at = 0;
        continue_at(&mut self.file, 0).await.map_err(|error| disk("keeping", &self.path, &error))?;
        Ok(())
    }

    /// Has what arrived on the disk, and says so, where the next execution can ask for the rest.
    async fn note(&mut self) -> Result<(), Failed> {
        if self.version.is_none() || self.noted.elapsed() < NOTED_EVERY {
            return Ok(());
        }
        self.file.flush().await.map_err(|error| self.disk(&error))?;
        self.file.sync_data().await.map_err(|error| self.disk(&error))?;
        let arrived = Arrived { bytes: self.at, whole: self.whole, version: self.version.clone() };
        self.partial.note(self.fetch, &arrived).await.map_err(|error| self.disk(&error))?;
        if self.partial.is_kept() {
            self.work.context.set_kept(self.at);
        }
        self.noted = Instant::now();
        Ok(())
    }

    async fn finish(&mut self) -> Result<(), Failed> {
        if self.at == 0 {
            return Err(Failed::permanent(self.told("the file is empty")));
        }
        self.file.sync_all().await.map_err(|error| self.disk(&error))
    }

    fn fits(&self, bytes: u64) -> Result<(), Failed> {
        if bytes <= self.fetch.max_bytes {
            return Ok(());
        }
        let why =
            format!("the file is larger than {} bytes, the most this server takes", self.fetch.max_bytes);
        Err(Failed::permanent(self.told(&why)))
    }

    /// Better told before a disk is filled than after.
    fn has_room(&self) -> Result<(), Failed> {
        let coming = self.whole.unwrap_or(0);
        self.work.tools.room.room_for(coming).map_err(|why| self.no_room(&why))?;
        let (Some(whole), Ok((_, free))) = (self.whole, files::space(&self.path)) else { return Ok(()) };
        if whole <= free {
            return Ok(());
        }
        let why = format!("the file has {whole} bytes, and the disk has {free} left; make some space");
        Err(Failed::transient(self.told(&why)))
    }

    fn no_room(&self, why: &str) -> Failed {
        Failed::transient(self.told(why))
    }

    fn refused(&self, status: StatusCode) -> Ended {
        const WORTH_ANOTHER_TRY: [u16; 4] = [408, 416, 425, 429];
        let why = format!("it answers {status}");
        if status.is_client_error() && !WORTH_ANOTHER_TRY.contains(&status.as_u16()) {
            return Failed::permanent(self.told(&why)).into();
        }
        Ended::Broken(why)
    }

    fn broken(&self, error: reqwest::Error) -> Ended {
        // Addresses that nobody may ask for do not become better ones.
        let is_final = error.is_redirect() || is_private(&error);
        let why = outbound::told(error);
        if is_final {
            Failed::permanent(self.told(&why)).into()
        } else {
            Ended::Broken(why)
        }
    }

    fn disk(&self, error: &std::io::Error) -> Failed {
        disk("keeping", &self.path, error)
    }

    fn told(&self, why: &str) -> String {
        format!("{} cannot be fetched: {why}", outbound::shown(&self.url))
    }
}

fn is_private(error: &reqwest::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(found) = cause {
        if found.downcast_ref::<outbound::Error>().is_some() {
            return true;
        }
        cause = found.source();
    }
    false
}

/// What tells this file from another at the same address; a weak tag does not.
fn version(headers: &HeaderMap) -> Option<String> {
    let tag = text(headers, ETAG).filter(|tag| !tag.starts_with("W/"));
    tag.or_else(|| text(headers, LAST_MODIFIED)).map(str::to_owned)
}

/// `bytes 100-199/200`
fn first_byte(headers: &HeaderMap) -> Option<u64> {
    text(headers, CONTENT_RANGE)?.strip_prefix("bytes ")?.split('-').next()?.parse().ok()
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_gives_no_permission_that_the_server_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let sources = folder.path().join("sources");
        std::fs::create_dir(&sources).unwrap();
        let imports = |allow_private| Imports { folder: sources.clone(), max_bytes: 100, allow_private };
        let fetch = |to: &Path, max_bytes| Fetch {
            url: "http://192.168.0.1/x".into(),
            to: to.to_str().unwrap().into(),
            max_bytes,
            allow_private: true,
        };
        let to = sources.join("a.mp4");

        let within = fetch(&to, 1000).within(Some(&imports(false))).unwrap();
        assert_eq!((within.max_bytes, within.allow_private), (100, false));
        let within = fetch(&to, 10).within(Some(&imports(true))).unwrap();
        assert_eq!((within.max_bytes, within.allow_private), (10, true));
        assert!(fetch(&to, 10).within(None).is_err());
        for elsewhere in
            [folder.path().join("a.mp4"), sources.join("../a.mp4"), sources.join(".."), "a".into()]
        {
            let refused = fetch(&elsewhere, 10).within(Some(&imports(true))).unwrap_err();
            assert!(refused.to_string().contains("where the server keeps sources"), "{refused}");
        }
        let object = Imports { folder: "sources".into(), ..imports(true) };
        assert!(fetch(Path::new("sources/a.mp4"), 10).within(Some(&object)).is_ok());
        assert!(fetch(Path::new("videos/1/a.mp4"), 10).within(Some(&object)).is_err());
    }
}
