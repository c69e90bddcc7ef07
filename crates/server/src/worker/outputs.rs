//! Files that an execution brings, into its own place: nobody else writes there, and nothing there is seen.

use super::allowance;
use super::rejections;
use super::writers::Writer;
use crate::app::App;
use crate::auth::Holder;
use crate::body;
use crate::data::{Data, is_tame};
use crate::problem::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::put;
use files::bucket::Told;
use files::{Bucket, Reserve, Step};
use futures_util::StreamExt;
use rules::ExecutionId;
use sha2::{Digest, Sha256};
use std::io::{Read, SeekFrom, Write};
use std::path::{Path, PathBuf};
use tokio::fs::{File, OpenOptions};
use tokio::io::{AsyncSeekExt, AsyncWriteExt};
use wire::Proof;

/// Below an execution's incoming folder: what is not whole yet.
pub(super) const PARTIAL: &str = ".partial";

pub fn routes() -> Router<App> {
    Router::new().route("/api/worker/outputs/{*path}", put(bring).head(look))
}

/// Where a file goes when it is whole, and until then.
struct Place {
    whole: PathBuf,
    partial: PathBuf,
    /// Where it goes at once, for another server may be told of it next.
    bucket: Option<(Bucket, String)>,
}

impl Place {
    fn of(app: &App, execution: ExecutionId, path: &str) -> Result<Self> {
        if !is_tame(path) {
            let what = format!(
                "`{path}` is no path for an output: letters, digits, `-_.+@=`, and `/` between parts"
            );
            return Err(Error::unprocessable("bad_path", what));
        }
        let incoming = app.data.incoming(execution);
        let name = allowance::hash(path);
        let object = |bucket: &Bucket| (bucket.clone(), Data::incoming_object(execution, path));
        let bucket = app.data.bucket().map(object);
        Ok(Place { whole: incoming.join(path), partial: incoming.join(PARTIAL).join(name), bucket })
    }
}

/// Which bytes come, of how many.
pub(crate) struct Piece {
    pub from: u64,
    pub total: u64,
}

/// Bring one file of an execution's outputs
///
/// Whole, or what is missing at its end. It is seen by nobody before the execution is committed.
#[utoipa::path(put, path = "/api/worker/outputs/{path}", tag = "worker", security(("worker" = [])),
    params(("path" = String, Path, description = "Its name, with slashes between folders"), ("X-Vodmill-Proof" = String, Header, description = "Of the execution, as `claim` gave it: `TASK.FENCE.TOKEN`"),
        ("X-Vodmill-Sha256" = String, Header, description = "Of the whole file, in hex"),
        ("Content-Range" = Option<String>, Header, description = "`bytes FROM-TO/TOTAL`, to its end")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It was there already"), (status = 201, description = "It is there, whole"),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn bring(
    Holder { proof }: Holder,
    State(app): State<App>,
    body::Path(path): body::Path<String>,
    headers: HeaderMap,
    content: Body,
) -> Result<StatusCode> {
    let place = match Place::of(&app, proof.execution(), &path) {
        Err(error) => {
            rejections::of_request(&app, proof.worker, &error).await;
            return Err(error);
        }
        place => place?,
    };
    let declared = text(&headers, wire::http::header::SHA256).filter(|hash| hash.len() == 64);
    let declared = declared.ok_or_else(|| {
        Error::Invalid(format!("the header {} must be a SHA-256 in hex", wire::http::header::SHA256))
    })?;
    let piece = piece(&headers)?;
    if piece.total > app.options.max_output_bytes {
        return Err(Error::TooLarge(format!("an output may have {} bytes", app.options.max_output_bytes)));
    }
    if is_there(&place.whole, piece.total, declared).await {
        return Ok(StatusCode::OK);
    }
    let file = std::iter::once((path.as_str(), piece.total));
    app.allowances.take(&app, proof.execution(), file).await?;
    // What is kept is a copy.
    let coming = piece.total.saturating_sub(piece.from).saturating_add(piece.total);
    app.room.room_for(coming).map_err(Error::Full)?;
    let writer = app.writers.enter(&place.partial).await;
    let written = write(&writer, &place.partial, &piece, content, &app.room).await;
    let brought = match written {
        // It goes on where it was.
        Err(error) if !matches!(error, Error::Full(_)) => {
            rejections::of_request(&app, proof.worker, &error).await;
            return Err(error);
        }
        Err(full) => Err(full),
        Ok(()) => writer.write(finish(&app, proof, &place, &piece, declared)).await,
    };
    if let Err(error) = brought {
        if matches!(error, Error::Full(_)) {
            // It would keep others from making room.
            let _ = tokio::fs::remove_file(&place.partial).await;
        }
        rejections::of_request(&app, proof.worker, &error).await;
        return Err(error);
    }
    Ok(StatusCode::CREATED)
}

/// How much of an output has come
#[utoipa::path(head, path = "/api/worker/outputs/{path}", tag = "worker", security(("worker" = [])),
    params(("path" = String, Path, description = "Its name, with slashes between folders"), ("X-Vodmill-Proof" = String, Header, description = "Of the execution, as `claim` gave it: `TASK.FENCE.TOKEN`")),
    responses((status = 200, headers(("Upload-Offset" = u64))), (status = "4XX")))]
pub(crate) async fn look(
    Holder { proof }: Holder,
    State(app): State<App>,
    body::Path(path): body::Path<String>,
) -> Result<Response<Body>> {
    let place = Place::of(&app, proof.execution(), &path)?;
    let length = |path: PathBuf| async move { tokio::fs::metadata(path).await.ok().map(|found| found.len()) };
    let whole = match &place.bucket {
        Some((bucket, name)) => bucket.look(name).await.ok().map(|found| found.bytes),
        None => length(place.whole).await,
    };
    let offset = match whole {
        Some(bytes) => Some(bytes),
        None => length(place.partial).await,
    };
    let offset = offset.ok_or(Error::NotFound("output"))?;
    let response =
        Response::builder().header("upload-offset", offset).header(header::CACHE_CONTROL, "no-store");
    response.body(Body::empty()).map_err(|error| Error::Internal(error.to_string()))
}

/// `Content-Range: bytes N-M/TOTAL`; without it, all of it comes at once.
pub(crate) fn piece(headers: &HeaderMap) -> Result<Piece> {
    let length = text(headers, header::CONTENT_LENGTH.as_str()).and_then(|it| it.parse::<u64>().ok());
    let Some(range) = text(headers, header::CONTENT_RANGE.as_str()) else {
        let total = length.ok_or_else(|| Error::Protocol {
            status: StatusCode::LENGTH_REQUIRED,
            code: "length_required",
            detail: "an output is sent with its Content-Length".into(),
        })?;
        return Ok(Piece { from: 0, total });
    };
    let bad =
        || Error::Invalid(format!("`{range}` is no range for an output; bytes FROM-TO/TOTAL, to its end"));
    let (part, total) = range.strip_prefix("bytes ").and_then(|it| it.split_once('/')).ok_or_else(bad)?;
    let (from, to) = part.split_once('-').ok_or_else(bad)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| bad());
    let (from, to, total) = (number(from)?, number(to)?, number(total)?);
    if from > to || to.checked_add(1) != Some(total) {
        return Err(bad());
    }
    Ok(Piece { from, total })
}

async fn is_there(whole: &Path, total: u64, declared: &str) -> bool {
    let found = tokio::fs::metadata(whole).await;
    found.is_ok_and(|found| found.len() == total)
        && hash(whole).await.is_ok_and(|hash| hash.eq_ignore_ascii_case(declared))
}

/// What has come of a connection that breaks is kept, to go on from there.
async fn write(
    writer: &Writer<'_>,
    partial: &Path,
    piece: &Piece,
    content: Body,
    room: &Reserve,
) -> Result<()> {
    let mut file = writer.write(open(partial, piece)).await?;
    let (mut at, mut stream) = (piece.from, content.into_data_stream());
    while let Some(block) = stream.next().await {
        let block = block
            .map_err(|error| Error::Invalid(format!("the connection broke off at byte {at}: {error}")))?;
        at += block.len() as u64;
        if at > piece.total {
            return Err(Error::unprocessable(
                "size_mismatch",
                format!("more came than the {} bytes declared", piece.total),
            ));
        }
        room.room_to_go_on(block.len()).map_err(Error::Full)?;
        writer.write(append(&mut file, &block)).await?;
    }
    Ok(())
}

/// Written when this returns.
async fn append(file: &mut File, block: &[u8]) -> Result<()> {
    let disk = |error: std::io::Error| Error::disk("keeping the output", &error);
    file.write_all(block).await.map_err(disk)?;
    file.flush().await.map_err(disk)
}

/// What is missing comes behind what there is.
async fn open(partial: &Path, piece: &Piece) -> Result<File> {
    let disk = |error: std::io::Error| Error::disk("keeping the output", &error);
    if let Some(folder) = partial.parent() {
        tokio::fs::create_dir_all(folder).await.map_err(disk)?;
    }
    let mut file =
        OpenOptions::new().create(true).write(true).truncate(false).open(partial).await.map_err(disk)?;
    let has = file.metadata().await.map_err(disk)?.len();
    if piece.from > has {
        return Err(Error::conflict(
            "offset_mismatch",
            format!("{has} bytes of it are here; it cannot go on at {}", piece.from),
        ));
    }
    file.set_len(piece.from).await.map_err(disk)?;
    file.seek(SeekFrom::Start(piece.from)).await.map_err(disk)?;
    Ok(file)
}

/// Under its own name only when it is what it was said to be; and if it is not, it is sent again whole.
async fn finish(app: &App, proof: Proof, place: &Place, piece: &Piece, declared: &str) -> Result<()> {
    let (total, room) = (piece.total, &app.room);
    let disk = |error: std::io::Error| Error::disk("keeping the output", &error);
    let found = tokio::fs::metadata(&place.partial).await.map_err(disk)?.len();
    if found != total {
        return Err(Error::unprocessable(
            "size_mismatch",
            format!("{total} bytes were declared, and {found} came"),
        ));
    }
    // A request that was cut off may still hold the partial file and write to it. So what is kept is a copy, of which the
    // hash is taken while it is made.
    let partial_copy = place.partial.with_extension(format!("{:016x}", rand::random::<u64>()));
    let copied = copied(&place.partial, &partial_copy, room).await;
    if copied.is_err() {
        let _ = tokio::fs::remove_file(&partial_copy).await;
    }
    let hash = copied?;
    if !hash.eq_ignore_ascii_case(declared) {
        tokio::fs::remove_file(&partial_copy).await.map_err(disk)?;
        tokio::fs::remove_file(&place.partial).await.map_err(disk)?;
        return Err(Error::unprocessable(
            "hash_mismatch",
            format!("what came has the SHA-256 {hash}, not {declared}"),
        ));
    }
    // The upload may have outlasted its lease.
    if let Err(refusal) = app.store.ownership(proof).await?.current() {
        tokio::fs::remove_file(&partial_copy).await.map_err(disk)?;
        return Err(Error::Refused(refusal));
    }
    if let Some((bucket, name)) = &place.bucket {
        Step::SendOutput.across(bucket.send(&partial_copy, name, Told::default(), &|| {})).await?;
        tokio::fs::remove_file(&partial_copy).await.map_err(disk)?;
        return tokio::fs::remove_file(&place.partial).await.map_err(disk);
    }
    if let Err(error) = place_whole(&partial_copy, &place.whole).await {
        tokio::fs::remove_file(&partial_copy).await.map_err(disk)?;
        return Err(not_placed("keeping the output", &error));
    }
    match tokio::fs::remove_file(&place.partial).await {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(disk(error)),
        _ => Ok(()),
    }
}

async fn place_whole(from: &Path, whole: &Path) -> std::io::Result<()> {
    if let Some(folder) = whole.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    Step::TakeOutput.across(tokio::fs::rename(from, whole)).await
}

/// Two outputs such as `a` and `a/b` exclude each other: that is the worker's fault.
pub(super) fn not_placed(doing: &str, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory};
    match error.kind() {
        AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory => Error::unprocessable(
            "path_conflict",
            "the path of one output is a folder in the path of another; a path is either a file or a folder",
        ),
        _ => Error::disk(doing, error),
    }
}

/// Copies a file to a new one that is read-only; the hash of the copy.
async fn copied(from: &Path, to: &Path, room: &Reserve) -> Result<String> {
    let disk = |error: std::io::Error| Error::disk("keeping the output", &error);
    let (from, to, room) = (from.to_owned(), to.to_owned(), room.clone());
    let copy = move || {
        let mut from = std::fs::File::open(from).map_err(disk)?;
        let mut to = std::fs::File::create_new(to).map_err(disk)?;
        let (mut digest, mut block) = (Sha256::new(), vec![0; 256 << 10]);
        loop {
            match from.read(&mut block).map_err(disk)? {
                0 => break,
                read => {
                    digest.update(&block[..read]);
                    room.room_to_go_on(read).map_err(Error::Full)?;
                    to.write_all(&block[..read]).map_err(disk)?;
                }
            }
        }
        Ok(hex::encode(digest.finalize()))
    };
    let copied = tokio::task::spawn_blocking(copy).await;
    copied.unwrap_or_else(|error| Err(Error::Internal(error.to_string())))
}

pub(super) async fn hash(path: &Path) -> std::io::Result<String> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || files::read_through(&path)).await;
    Ok(read.map_err(std::io::Error::other)??.sha256)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
