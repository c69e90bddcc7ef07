//! All outputs of an execution in one tar.gz (document 001, §4), unpacked so that it can do no harm.

use super::allowance::{MOST_FILES, Most};
use super::outputs::{PARTIAL, not_placed};
use super::rejections;
use crate::app::App;
use crate::auth::Holder;
use crate::body::Json;
use crate::data::{Data, is_tame};
use crate::problem::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use files::{Reserve, Step};
use flate2::read::GzDecoder;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tar::{Archive, Entry, EntryType, PaxExtensions};
use tokio::time::Instant;
use tokio_util::io::{StreamReader, SyncIoBridge};
use wire::Proof;
use wire::http::Output;

/// Headers of files, of folders, and of names that are too long for a header.
const MOST_HEADERS: usize = 4 * MOST_FILES;

/// A header, and a name that is too long for one.
const HEADER_BYTES: u64 = 512;
const LONGEST_NAME: u64 = 1024;

/// The attributes of one file in the format of POSIX (pax).
const LONGEST_ATTRIBUTES: u64 = 64 << 10;

/// So much an archive may unpack to, however small it is; and beyond it, so many times its size.
const FREE_BYTES: u64 = 64 << 20;
const MOST_TIMES: u64 = 100;

/// All names of an archive together.
const NAMES_BYTES: usize = 16 << 20;

pub fn routes() -> Router<App> {
    Router::new().route("/api/worker/outputs", post(unpack))
}

/// Bring all outputs of an execution as one archive
///
/// Answers with the manifest of what was unpacked: what `complete` is to name.
#[utoipa::path(post, path = "/api/worker/outputs", tag = "worker", security(("worker" = [])), params(("X-Vodmill-Proof" = String, Header, description = "Of the execution, as `claim` gave it: `TASK.FENCE.TOKEN`")),
    request_body(content = Vec<u8>, content_type = "application/gzip"),
    responses((status = 201, body = Vec<Output>), (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn unpack(
    Holder { proof }: Holder,
    State(app): State<App>,
    content: Body,
) -> Result<(StatusCode, Json<Vec<Output>>)> {
    let incoming = app.data.incoming(proof.execution());
    let turn = app.unpacking.begin(proof)?;
    let most = app.allowances.most(&app, proof.execution()).await?;
    let broke_off = Arc::new(AtomicBool::new(false));
    let stream = no_slower(content.into_data_stream()).inspect_err({
        let broke_off = broke_off.clone();
        move |_| broke_off.store(true, Ordering::Relaxed)
    });
    let reader = SyncIoBridge::new(StreamReader::new(Box::pin(stream)));
    let room = app.room.clone();
    room.room_for(0).map_err(Error::Full)?;
    // Files get their names when nothing writes to them any more: a `complete` may come at any moment.
    let unpacking = incoming.join(PARTIAL).join(format!("unpacking-{:016x}", rand::random::<u64>()));
    let unpacked = tokio::task::spawn_blocking({
        let (incoming, unpacking) = (incoming.clone(), unpacking.clone());
        move || {
            let _turn = turn;
            let outputs = extract(reader, &unpacking, most, &room)?;
            place_all(&outputs, &unpacking, &incoming)?;
            Ok(outputs)
        }
    });
    let unpacked = unpacked.await.unwrap_or_else(|error| Err(Error::Internal(error.to_string())));
    let _ = files::remove(&unpacking);
    if let Err(error) = &unpacked {
        // Half an archive is none.
        let _ = files::remove(&incoming);
        // A connection that breaks off is no fault of the worker's.
        if !broke_off.load(Ordering::Relaxed) {
            rejections::of_request(&app, proof.worker, error).await;
        }
    }
    let outputs = unpacked?;
    let files = outputs.iter().map(|output| (output.path.as_str(), output.bytes));
    if let Err(error) = app.allowances.take(&app, proof.execution(), files).await {
        let _ = files::remove(&incoming);
        app.allowances.forget(proof.execution());
        return Err(error);
    }
    if let Some(bucket) = app.data.bucket() {
        // The upload may have outlasted its lease.
        app.store.ownership(proof).await?.current().map_err(Error::Refused)?;
        let kept = |output: &Output| {
            let name = Data::incoming_object(proof.execution(), &output.path);
            (incoming.join(&output.path), name, None)
        };
        Step::SendArchive.across(bucket.send_all(outputs.iter().map(kept).collect(), None)).await?;
        let _ = files::remove(&incoming);
    }
    Ok((StatusCode::CREATED, Json(outputs)))
}

/// Archives that are unpacked now. Each holds a thread until all of it has come, and files wait for such threads.
#[derive(Default)]
pub struct Unpacking(Mutex<Vec<Proof>>);

/// Archives that are unpacked at a time, and of these, of one worker.
const AT_ONCE: usize = 16;
const OF_ONE_WORKER: usize = 2;

impl Unpacking {
    fn begin(self: &Arc<Self>, proof: Proof) -> Result<Turn> {
        let mut now = self.now();
        if now.iter().any(|it| it.execution() == proof.execution()) {
            return Err(Error::conflict(
                "superseded",
                "an archive of this execution is being unpacked; send it when that is done",
            ));
        }
        let of_worker = now.iter().filter(|it| it.worker == proof.worker).count();
        if now.len() >= AT_ONCE || of_worker >= OF_ONE_WORKER {
            return Err(Error::Protocol {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "too_busy",
                detail: format!(
                    "the server unpacks {AT_ONCE} archives at a time, {OF_ONE_WORKER} of one worker; send it again later"
                ),
            });
        }
        now.push(proof);
        Ok(Turn { unpacking: self.clone(), proof })
    }

    fn now(&self) -> MutexGuard<'_, Vec<Proof>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends with the thread, which may outlive its request.
struct Turn {
    unpacking: Arc<Unpacking>,
    proof: Proof,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.unpacking.now().retain(|it| it.execution() != self.proof.execution());
    }
}

/// From the second minute on, an archive comes with this many bytes a second on average, or it is given up.
const SLOWEST: u64 = 64 << 10;
const FIRST: Duration = Duration::from_secs(60);

/// Fails when the bytes come too slowly, whether they come at all or not.
fn no_slower<E: std::error::Error + Send + Sync + 'static>(
    bytes: impl Stream<Item = std::result::Result<Bytes, E>>,
) -> impl Stream<Item = std::io::Result<Bytes>> {
    let began = Instant::now();
    stream::try_unfold((Box::pin(bytes), 0), move |(mut bytes, came): (_, u64)| async move {
        let due = began + FIRST + Duration::from_secs(came / SLOWEST);
        match tokio::time::timeout_at(due, bytes.next()).await {
            Err(_) => Err(std::io::Error::new(
                std::io::ErrorKind::TimedOut,
                format!("it comes with less than {SLOWEST} bytes a second"),
            )),
            Ok(None) => Ok(None),
            Ok(Some(Err(error))) => Err(std::io::Error::other(error)),
            Ok(Some(Ok(block))) => {
                let came = came + block.len() as u64;
                Ok(Some((block, (bytes, came))))
            }
        }
    })
}

/// Killed in the middle, the same archive sent again replaces what is there.
fn place_all(outputs: &[Output], from: &Path, to: &Path) -> Result<()> {
    let disk = |error: std::io::Error| not_placed("unpacking the archive", &error);
    for output in outputs {
        let place = to.join(&output.path);
        std::fs::create_dir_all(place.parent().unwrap_or(to)).map_err(disk)?;
        Step::PlaceArchive.around(|| std::fs::rename(from.join(&output.path), place)).map_err(disk)?;
    }
    Ok(())
}

/// Only plain files under tame names, each once, and no more of them and of their bytes than allowed: however small the
/// archive was.
///
/// Entries are read raw, because the library would hold a name of any length in memory.
pub(crate) fn extract(archive: impl Read, to: &Path, most: Most, room: &Reserve) -> Result<Vec<Output>> {
    let limit = most.bytes;
    let overhead = MOST_HEADERS as u64 * 2 * HEADER_BYTES;
    let mut archive = Archive::new(Unpacked::of(archive).take(limit.saturating_add(overhead)));
    let (mut outputs, mut names, mut left) = (Vec::<Output>::new(), HashSet::new(), limit);
    let (mut long_name, mut headers, mut names_bytes) = (None, 0, 0);
    for entry in archive.entries().map_err(broken)?.raw(true) {
        let mut entry = entry.map_err(broken)?;
        headers += 1;
        if headers > MOST_HEADERS {
            return Err(refused(format!("the archive has more than {MOST_HEADERS} headers")));
        }
        let kind = entry.header().entry_type();
        match kind {
            EntryType::GNULongName => {
                long_name = Some(text(&mut entry, LONGEST_NAME)?.trim_end_matches('\0').to_owned());
                continue;
            }
            EntryType::XHeader => {
                long_name = path_attribute(&text(&mut entry, LONGEST_ATTRIBUTES)?)?.or(long_name);
                continue;
            }
            // What is said of all files, such as a comment, is no file's name.
            EntryType::XGlobalHeader | EntryType::Directory => {
                long_name = None;
                continue;
            }
            _ => {}
        }
        let path = match long_name.take() {
            Some(path) => path,
            None => String::from_utf8(entry.path_bytes().into_owned()).unwrap_or_default(),
        };
        let path = path.strip_prefix("./").unwrap_or(&path).to_owned();
        if kind != EntryType::Regular {
            return Err(refused(format!("{} is a {kind:?}; only plain files are taken", shown(&path))));
        }
        if !is_tame(&path) {
            let what = format!("`{}` leads out of the execution's place, or is no plain name", shown(&path));
            return Err(refused(what));
        }
        names_bytes += path.len();
        if outputs.len() >= most.files || names_bytes > NAMES_BYTES || entry.size() > left {
            return Err(Error::TooLarge(format!(
                "the archive unpacks to more than {} files or {limit} bytes, the most that its task makes; \
                 the setting max_output_gb limits what any may bring",
                most.files
            )));
        }
        if !names.insert(path.clone()) {
            return Err(refused(format!("{path} comes twice")));
        }
        let output = write(&mut entry, path, to, room)?;
        left -= output.bytes;
        outputs.push(output);
    }
    Ok(outputs)
}

/// What an archive unpacks to, as long as it is in proportion to the archive.
struct Unpacked<R: Read> {
    decoder: GzDecoder<Counted<R>>,
    bytes: u64,
}

impl<R: Read> Unpacked<R> {
    fn of(archive: R) -> Self {
        Unpacked { decoder: GzDecoder::new(Counted { inner: archive, bytes: 0 }), bytes: 0 }
    }
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, block: &mut [u8]) -> std::io::Result<usize> {
        let read = self.decoder.read(block)?;
        self.bytes += read as u64;
        if self.bytes > FREE_BYTES.max(self.decoder.get_ref().bytes.saturating_mul(MOST_TIMES)) {
            let what = format!("it unpacks to more than {FREE_BYTES} bytes and {MOST_TIMES} times its size");
            return Err(std::io::Error::other(what));
        }
        Ok(read)
    }
}

struct Counted<R> {
    inner: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, block: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(block)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// The content of an entry that says something of the next one.
fn text(entry: &mut Entry<'_, impl Read>, limit: u64) -> Result<String> {
    if entry.size() > limit {
        let what = format!("a header has {} bytes; at most {limit} are taken", entry.size());
        return Err(refused(what));
    }
    let mut text = Vec::new();
    entry.take(limit).read_to_end(&mut text).map_err(broken)?;
    String::from_utf8(text).map_err(|_| refused("a header is not UTF-8".into()))
}

/// The name that pax attributes give the next file, if they do: records of `LENGTH KEY=VALUE`.
fn path_attribute(attributes: &str) -> Result<Option<String>> {
    let mut path = None;
    for attribute in PaxExtensions::new(attributes.as_bytes()) {
        let attribute = attribute.map_err(broken)?;
        match (attribute.key(), attribute.value()) {
            (Ok("path"), Ok(value)) => path = Some(value.to_owned()),
            // The size in the header is what is read, and must be the whole truth.
            (Ok("size"), _) => return Err(refused("a file's size must be in its own header".into())),
            _ => {}
        }
    }
    Ok(path)
}

/// A name as an error may repeat it.
fn shown(name: &str) -> String {
    name.chars().take(100).flat_map(char::escape_default).collect()
}

fn write(entry: &mut Entry<'_, impl Read>, path: String, to: &Path, room: &Reserve) -> Result<Output> {
    let disk = |error: std::io::Error| Error::disk("unpacking the archive", &error);
    let place = to.join(&path);
    let unplaced = |error: std::io::Error| not_placed("unpacking the archive", &error);
    std::fs::create_dir_all(place.parent().unwrap_or(to)).map_err(unplaced)?;
    let mut file = File::create_new(&place).map_err(unplaced)?;
    let (mut digest, mut bytes, mut block) = (Sha256::new(), 0, vec![0; 64 << 10]);
    loop {
        let read = entry.read(&mut block).map_err(broken)?;
        if read == 0 {
            break;
        }
        bytes += read as u64;
        digest.update(&block[..read]);
        room.room_to_go_on(read).map_err(Error::Full)?;
        file.write_all(&block[..read]).map_err(disk)?;
    }
    Ok(Output { path, bytes, sha256: hex::encode(digest.finalize()) })
}

fn refused(what: String) -> Error {
    Error::unprocessable("bad_archive", what)
}

fn broken(error: std::io::Error) -> Error {
    refused(format!("the archive cannot be read to its end: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rules::{Fence, JobId, TaskId, Token, WorkerId};
    use uuid::Uuid;

    #[test]
    fn each_worker_has_few_archives_unpacked_at_a_time_and_each_execution_one() {
        let unpacking = Arc::new(Unpacking::default());
        let workers: Vec<WorkerId> = (0..20).map(|_| WorkerId(Uuid::new_v4())).collect();
        let proof = |at: usize, worker| Proof {
            task: TaskId::new(JobId(1), at as i64),
            fence: Fence(1),
            token: Token(1),
            worker,
        };

        let first = unpacking.begin(proof(1, workers[0])).unwrap();
        assert!(unpacking.begin(proof(1, workers[0])).is_err(), "of the same execution");
        let second = unpacking.begin(proof(2, workers[0])).unwrap();
        assert!(unpacking.begin(proof(3, workers[0])).is_err(), "of the same worker");
        let others: Vec<_> = (4..20).filter_map(|at| unpacking.begin(proof(at, workers[at])).ok()).collect();
        assert_eq!(others.len(), AT_ONCE - 2);
        drop((first, second));
        assert!(unpacking.begin(proof(1, workers[0])).is_ok());
    }

    /// Time jumps ahead whenever nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn an_archive_that_comes_byte_by_byte_is_given_up() {
        let began = Instant::now();
        let bytes = stream::repeat(()).then(|()| async {
            tokio::time::sleep(Duration::from_secs(50)).await;
            Ok::<_, std::io::Error>(Bytes::from_static(b"a"))
        });

        let came: Vec<_> = no_slower(bytes).collect().await;

        assert_eq!(came.len(), 2);
        assert!(came[1].is_err() && began.elapsed() < Duration::from_secs(100));
    }
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use tar::{Builder, Header};

    fn extract(archive: &[u8], to: &Path, limit: u64) -> Result<Vec<Output>> {
        super::extract(archive, to, most(limit), &Reserve::default())
    }

    fn most(bytes: u64) -> Most {
        Most { bytes, files: MOST_FILES }
    }

    fn archive(fill: impl Fn(&mut Builder<GzEncoder<Vec<u8>>>)) -> Vec<u8> {
        let mut builder = Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        fill(&mut builder);
        builder.into_inner().unwrap().finish().unwrap()
    }

    fn entry(builder: &mut Builder<GzEncoder<Vec<u8>>>, kind: EntryType, name: &str, content: &[u8]) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if kind == EntryType::Symlink || kind == EntryType::Link {
            header.set_link_name("/etc/passwd").unwrap();
        }
        // The builder itself would refuse what we must be able to refuse.
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    #[test]
    fn plain_files_are_unpacked_and_listed() {
        let folder = tempfile::tempdir().unwrap();
        let good = archive(|builder| {
            entry(builder, EntryType::Directory, "720p/", b"");
            entry(builder, EntryType::Regular, "./720p/seg.m4s", b"media");
        });

        let outputs = extract(&good[..], folder.path(), 100).unwrap();

        assert_eq!((outputs[0].path.as_str(), outputs[0].bytes), ("720p/seg.m4s", 5));
        assert_eq!(std::fs::read(folder.path().join("720p/seg.m4s")).unwrap(), b"media");
    }

    /// Millions of zeros, of which a compressed archive has a few kilobytes.
    fn entry_of(builder: &mut Builder<GzEncoder<Vec<u8>>>, kind: EntryType, content: impl Read, bytes: u64) {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes);
        header.set_cksum();
        builder.append(&header, content).unwrap();
    }

    #[test]
    fn long_names_are_taken_in_both_formats() {
        let folder = tempfile::tempdir().unwrap();
        let name = format!("{}/{}.m4s", "a".repeat(120), "b".repeat(120));
        let gnu = archive(|builder| {
            let mut header = Header::new_gnu();
            header.set_size(5);
            header.set_mode(0o644);
            builder.append_data(&mut header, &name, &b"media"[..]).unwrap();
        });
        let pax = archive(|builder| {
            builder.append_pax_extensions([("path", name.as_bytes()), ("mtime", b"1.5")]).unwrap();
            entry(builder, EntryType::Regular, "short", b"media");
        });

        for (format, archive) in [("gnu", gnu), ("pax", pax)] {
            let outputs = extract(&archive[..], &folder.path().join(format), 100).unwrap();
            assert_eq!((outputs.len(), &outputs[0].path), (1, &name), "{format}");
        }
    }

    #[test]
    fn headers_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let zeros = |bytes| std::io::repeat(0).take(bytes);
        for kind in [EntryType::GNULongName, EntryType::XHeader, EntryType::GNULongLink] {
            let bytes = 64 << 20;
            let bomb = archive(|builder| {
                entry_of(builder, kind, zeros(bytes), bytes);
                entry(builder, EntryType::Regular, "a", b"x");
            });
            assert!(bomb.len() < 1 << 20);

            let refused = extract(&bomb[..], folder.path(), 1 << 30).unwrap_err();

            assert!(
                matches!(refused, Error::Unprocessable { code: "bad_archive", .. }),
                "{kind:?}: {refused}"
            );
        }
        let sized = archive(|builder| {
            builder.append_pax_extensions([("size", &b"9999999999"[..])]).unwrap();
            entry(builder, EntryType::Regular, "a", b"x");
        });
        assert!(extract(&sized[..], folder.path(), 100).is_err());
        // Content of what is no file counts, too.
        let endless = archive(|builder| {
            for _ in 0..8 {
                entry_of(builder, EntryType::Directory, zeros(64 << 20), 64 << 20);
            }
        });
        assert!(extract(&endless[..], folder.path(), 100).is_err());
    }

    #[test]
    fn what_is_unpacked_is_in_proportion_to_the_archive() {
        let folder = tempfile::tempdir().unwrap();
        let zeros = |mib: u64| {
            archive(|builder| {
                let mut header = Header::new_gnu();
                header.set_path("zeros").unwrap();
                header.set_size(mib << 20);
                header.set_cksum();
                builder.append(&header, std::io::repeat(0).take(mib << 20)).unwrap();
            })
        };
        let unpack = |archive: &[u8], to: &str| {
            super::extract(archive, &folder.path().join(to), most(1 << 30), &Reserve::default())
        };

        assert_eq!(unpack(&zeros(60), "small").unwrap().len(), 1);
        let refused = unpack(&zeros(100), "bomb").unwrap_err();
        assert!(matches!(refused, Error::Unprocessable { code: "bad_archive", .. }), "{refused}");
        assert!(refused.to_string().contains("100 times its size"), "{refused}");
    }

    #[test]
    fn tricks_are_refused() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("execution");
        let regular = EntryType::Regular;
        for (what, kind, name) in [
            ("traversal", regular, "../evil"),
            ("an absolute path", regular, "/tmp/evil"),
            ("a hidden file", regular, ".bashrc"),
            ("a symbolic link", EntryType::Symlink, "link"),
            ("a hard link", EntryType::Link, "link"),
            ("a device", EntryType::Char, "null"),
            ("a pipe", EntryType::Fifo, "pipe"),
        ] {
            let bad = archive(|builder| entry(builder, kind, name, b""));

            assert!(extract(&bad[..], &folder, 100).is_err(), "{what}");
        }
        let twice = archive(|builder| (0..2).for_each(|_| entry(builder, regular, "a", b"x")));
        assert!(extract(&twice[..], &folder, 100).is_err());
        for (first, then) in [("q/a", "q"), ("f", "f/x"), ("g", "g/x/y")] {
            let both =
                archive(|builder| [first, then].iter().for_each(|it| entry(builder, regular, it, b"x")));
            let refused = extract(&both[..], &folder, 100).unwrap_err();
            assert!(
                matches!(refused, Error::Unprocessable { code: "path_conflict", .. }),
                "{first}: {refused}"
            );
        }
        let bomb = archive(|builder| entry(builder, regular, "zeros", &vec![0; 1 << 20]));
        assert!(bomb.len() < 10_000);
        assert!(matches!(extract(&bomb[..], &folder, 1000), Err(Error::TooLarge(_))));
        let cut = archive(|builder| entry(builder, regular, "cut", &[7; 4096]));
        assert!(extract(&cut[..cut.len() / 2], &folder, 1 << 20).is_err());
        assert!(!outside.path().join("evil").exists() && !Path::new("/tmp/evil").exists());
    }
}
