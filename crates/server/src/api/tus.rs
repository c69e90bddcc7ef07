//! Resumable uploads by tus 1.0: creation, termination, expiration, checksums are the file's own.
//!
//! On a disk an upload grows as one file; in a bucket it is in [`pieces`], and any server goes on with it.

use super::uploads::{UploadQuery, accept};
use crate::app::App;
use crate::auth::Admin;
use crate::body::Path;
use crate::ingest::too_large;
use crate::pieces;
use crate::problem::{Error, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use axum::middleware::{self, Next};
use axum::routing::{options, post};
use base64::Engine;
use files::Step;
use futures_util::StreamExt;
use rules::Millis;
use serde_json::{Map, Value};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};
use store::upload::Upload;
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

const VERSION: &str = "1.0.0";

/// The version of tus that is spoken.
#[derive(utoipa::ToSchema)]
#[allow(dead_code)]
pub(crate) enum Version {
    #[schema(rename = "1.0.0")]
    One,
}

const RESUMABLE: HeaderName = HeaderName::from_static("tus-resumable");
const OFFSET: HeaderName = HeaderName::from_static("upload-offset");
const LENGTH: HeaderName = HeaderName::from_static("upload-length");
const CHUNK: &str = "application/offset+octet-stream";

pub fn routes() -> Router<App> {
    Router::new()
        .route("/api/uploads", post(create))
        .route("/api/uploads/{id}", axum::routing::head(look).patch(append).delete(terminate))
        .layer(middleware::from_fn(speak))
        .route("/api/uploads", options(abilities))
}

/// Every answer says which version is spoken, and no other is listened to.
async fn speak(request: Request, next: Next) -> axum::response::Response {
    let version = request.headers().get(RESUMABLE).and_then(|version| version.to_str().ok());
    let mut response = if version == Some(VERSION) {
        next.run(request).await
    } else {
        let wrong = Error::Protocol {
            status: StatusCode::PRECONDITION_FAILED,
            code: "tus_version",
            detail: format!("this needs the header Tus-Resumable: {VERSION}"),
        };
        let mut response = axum::response::IntoResponse::into_response(wrong);
        response.headers_mut().insert("tus-version", HeaderValue::from_static(VERSION));
        response
    };
    response.headers_mut().insert(RESUMABLE, HeaderValue::from_static(VERSION));
    response
}

/// What of tus 1.0 is spoken here
#[utoipa::path(options, path = "/api/uploads", tag = "uploads", responses((status = 204, headers(
    ("Tus-Version" = String), ("Tus-Extension" = String), ("Tus-Max-Size" = u64)))))]
pub(crate) async fn abilities(State(app): State<App>) -> Result<Response<Body>> {
    answer(
        StatusCode::NO_CONTENT,
        &[
            ("tus-resumable", VERSION.into()),
            ("tus-version", VERSION.into()),
            ("tus-extension", "creation,termination,expiration".into()),
            ("tus-max-size", app.options.max_upload_bytes.to_string()),
        ],
    )
}

/// Begin an upload that can be resumed, by tus 1.0
///
/// `Upload-Metadata` says what `POST /api/videos` has in its query: `filename`, `slug`, `title` and so on. Any tus client
/// goes on from here.
#[utoipa::path(post, path = "/api/uploads", tag = "uploads", security(("admin" = [])),
    params(("Tus-Resumable" = Version, Header), ("Upload-Length" = u64, Header, description = "Of the whole file"),
        ("Upload-Metadata" = Option<String>, Header, description = "Names, and values in base64")),
    responses((status = 201, description = "It has begun", headers(("Location" = String), ("Upload-Offset" = u64),
        ("Upload-Expires" = String))),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn create(_: Admin, State(app): State<App>, headers: HeaderMap) -> Result<Response<Body>> {
    let length = number(&headers, &LENGTH)?;
    if length > app.options.max_upload_bytes {
        return Err(too_large(app.options.max_upload_bytes));
    }
    // It would never get the piece with which it becomes a video.
    if length == 0 {
        return Err(Error::unprocessable("empty", "the file is empty"));
    }
    let metadata =
        metadata(headers.get("upload-metadata").and_then(|it| it.to_str().ok()).unwrap_or_default())?;
    if app.data.bucket().is_none() {
        app.room.room_for(length).map_err(Error::Full)?;
    }
    app.ingest.foresee(&query(&metadata)?.wish()?).await?;
    let id = Uuid::new_v4().simple().to_string();
    let lives = Millis(i64::try_from(app.options.upload_lives.as_millis()).unwrap_or(i64::MAX));
    let expires_at = app
        .store
        .begin_upload(&id, i64::try_from(length).unwrap_or(i64::MAX), &Value::Object(metadata), lives)
        .await?;
    if app.data.bucket().is_none() {
        tokio::fs::File::create_new(place(&app, &id))
            .await
            .map_err(|error| Error::disk("making the upload", &error))?;
    }
    answer(
        StatusCode::CREATED,
        &[("location", format!("/api/uploads/{id}")), ("upload-offset", "0".into()), expires(expires_at)],
    )
}

/// How much of an upload has come
#[utoipa::path(head, path = "/api/uploads/{id}", tag = "uploads", security(("admin" = [])),
    params(("id" = String, Path), ("Tus-Resumable" = Version, Header)),
    responses((status = 200, headers(("Upload-Offset" = u64), ("Upload-Length" = u64), ("Upload-Expires" = Option<String>),
        ("X-Vodmill-Video" = Option<i64>, description = "What it has become"))), (status = "4XX")))]
pub(crate) async fn look(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Response<Body>> {
    let upload = find(&app, &id).await?;
    let offset = offset(&app, &upload).await?;
    let mut headers = vec![
        ("upload-offset", offset.to_string()),
        ("upload-length", upload.length.to_string()),
        ("cache-control", "no-store".into()),
    ];
    match upload.video {
        Some(video) => headers.push(("x-vodmill-video", video.to_string())),
        None => headers.push(expires(upload.expires_at)),
    }
    answer(StatusCode::OK, &headers)
}

/// Send the next piece of an upload
///
/// What has come of a connection that breaks is kept. With the last byte it becomes a video.
#[utoipa::path(patch, path = "/api/uploads/{id}", tag = "uploads", security(("admin" = [])),
    params(("id" = String, Path), ("Tus-Resumable" = Version, Header),
        ("Upload-Offset" = u64, Header, description = "Where the piece belongs: what `HEAD` says")),
    request_body(content = Vec<u8>, content_type = "application/offset+octet-stream"),
    responses((status = 204, headers(("Upload-Offset" = u64), ("Upload-Expires" = Option<String>),
        ("X-Vodmill-Video" = Option<i64>, description = "What it has become, with the last piece"))),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn append(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>> {
    if headers.get("content-type").is_none_or(|kind| kind != CHUNK) {
        return Err(Error::Protocol {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code: "unsupported_media_type",
            detail: format!("a piece of an upload is sent as Content-Type: {CHUNK}"),
        });
    }
    let upload = find(&app, &id).await?;
    let claimed = number(&headers, &OFFSET)?;
    let _writing = lock(&app, &upload)?;
    let found = offset(&app, &upload).await?;
    if claimed != found {
        return Err(Error::conflict(
            "offset_mismatch",
            format!("the upload is at {found}, not at {claimed}"),
        ));
    }
    let length = upload.length.unsigned_abs();
    let reached = match app.data.bucket() {
        _ if upload.video.is_some() => length,
        Some(bucket) => pieces::append(bucket, &id, found, length, body.into_data_stream()).await?,
        None if !place(&app, &id).exists() => length,
        None => write(&app, &id, found, length, body).await?,
    };
    let mut headers = vec![("upload-offset", reached.to_string())];
    if reached == length {
        let video = finish(&app, &upload).await?;
        headers.push(("x-vodmill-video", video.to_string()));
    } else {
        headers.push(expires(upload.expires_at));
    }
    answer(StatusCode::NO_CONTENT, &headers)
}

/// One request at a time writes, whichever server it came to. Let go of when dropped, and by any crash. In a bucket the
/// pieces themselves see to it.
fn lock(app: &App, upload: &Upload) -> Result<Option<std::fs::File>> {
    if upload.video.is_some() || app.data.bucket().is_some() {
        return Ok(None);
    }
    let file = std::fs::File::open(found(app, upload)).map_err(|error| unreadable(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::Error(error)) => Err(unreadable(&error)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Error::Protocol {
            status: StatusCode::LOCKED,
            code: "upload_busy",
            detail: "another request is writing to this upload; look at its offset and go on then".into(),
        }),
    }
}

/// Appends what comes; what has come of a connection that breaks is kept.
async fn write(app: &App, id: &str, from: u64, length: u64, body: Body) -> Result<u64> {
    let disk = |error: std::io::Error| Error::disk("keeping the upload", &error);
    app.room.room_for(0).map_err(Error::Full)?;
    let opened = tokio::fs::OpenOptions::new().append(true).open(place(app, id)).await;
    let (mut file, mut at) = (opened.map_err(disk)?, from);
    let mut stream = body.into_data_stream();
    let mut broken = None;
    while let Some(block) = stream.next().await {
        match block {
            Ok(block) if at + block.len() as u64 > length => {
                broken =
                    Some(Error::TooLarge(format!("more came than the {length} bytes that were declared")));
                break;
            }
            Ok(block) => {
                if let Err(why) = app.room.room_to_go_on(block.len()) {
                    broken = Some(Error::Full(why));
                    break;
                }
                file.write_all(&block).await.map_err(disk)?;
                at += block.len() as u64;
            }
            Err(error) => {
                broken = Some(Error::Invalid(format!("the connection broke off: {error}")));
                break;
            }
        }
    }
    file.flush().await.map_err(disk)?;
    Step::GrowUpload.across(file.sync_data()).await.map_err(disk)?;
    broken.map_or(Ok(at), Err)
}

/// The last byte is here. Killed in between, the client's next look and append finish it.
async fn finish(app: &App, upload: &Upload) -> Result<rules::VideoId> {
    if let Some(video) = app.store.upload(&upload.id).await?.video {
        return Ok(video);
    }
    let Value::Object(metadata) = &upload.metadata else { return Err(Error::Internal("no metadata".into())) };
    let query = query(metadata)?;
    let name = named(&upload.metadata);
    let source = source(app, upload);
    let received = match app.data.bucket() {
        Some(bucket) => pieces::join(bucket, &upload.id, &source.to_string_lossy()).await?,
        None => app.ingest.adopt(source, place(app, &upload.id)).await?,
    };
    let uploaded = accept(app, &received, &name, &query.wish()?, Some(&upload.id)).await?;
    // What is left behind here is removed when the upload is forgotten.
    let _ = match app.data.bucket() {
        Some(bucket) => pieces::remove(bucket, &upload.id).await.is_ok(),
        None => remove(app, &upload.id).await.is_ok(),
    };
    Ok(rules::VideoId(uploaded.id))
}

/// Give an upload up
#[utoipa::path(delete, path = "/api/uploads/{id}", tag = "uploads", security(("admin" = [])),
    params(("id" = String, Path), ("Tus-Resumable" = Version, Header)),
    responses((status = 204), (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn terminate(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<StatusCode> {
    find(&app, &id).await?;
    // The file first: nobody would ever find it without its row.
    match app.data.bucket() {
        Some(bucket) => pieces::remove(bucket, &id).await?,
        None => match remove(&app, &id).await {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::disk("removing the upload", &error));
            }
            _ => {}
        },
    }
    app.store.forget_upload(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn remove(app: &App, id: &str) -> std::io::Result<()> {
    Step::EndUpload.across(tokio::fs::remove_file(place(app, id))).await
}

async fn find(app: &App, id: &str) -> Result<Upload> {
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(Error::NotFound("upload"));
    }
    let upload = app.store.upload(id).await?;
    if upload.expires_at <= app.store.now().await? && upload.video.is_none() {
        return Err(Error::Protocol {
            status: StatusCode::GONE,
            code: "upload_expired",
            detail: "the upload took too long and was given up; begin it anew".into(),
        });
    }
    Ok(upload)
}

async fn offset(app: &App, upload: &Upload) -> Result<u64> {
    if upload.video.is_some() {
        return Ok(upload.length.unsigned_abs());
    }
    if let Some(bucket) = app.data.bucket() {
        return pieces::offset(bucket, &upload.id).await;
    }
    let found = tokio::fs::metadata(found(app, upload)).await;
    Ok(found.map_err(|error| unreadable(&error))?.len())
}

/// One without its file is being given up, or was when the server died.
fn unreadable(error: &std::io::Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound => Error::NotFound("upload"),
        _ => Error::disk("opening the upload", error),
    }
}

/// Where the file lies: an older server that was stopped while it made a video of it may have moved it already.
fn found(app: &App, upload: &Upload) -> PathBuf {
    let (place, source) = (place(app, &upload.id), source(app, upload));
    if !place.exists() && source.exists() { source } else { place }
}

fn source(app: &App, upload: &Upload) -> PathBuf {
    app.ingest.source(&upload.id, &named(&upload.metadata))
}

fn place(app: &App, id: &str) -> PathBuf {
    app.data.uploads().join(id)
}

/// When nobody may go on with it any more.
fn expires(at: Millis) -> (&'static str, String) {
    let at = UNIX_EPOCH + Duration::from_millis(at.0.max(0).unsigned_abs());
    ("upload-expires", httpdate::fmt_http_date(at))
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Result<u64> {
    let value = headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok());
    value.ok_or_else(|| Error::Invalid(format!("the header {name} is missing or no number")))
}

/// `key base64,key base64,…`
pub(crate) fn metadata(text: &str) -> Result<Map<String, Value>> {
    let mut found = Map::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once(' ').unwrap_or((pair, ""));
        let value = base64::engine::general_purpose::STANDARD.decode(value.trim()).ok();
        let value = value.and_then(|bytes| String::from_utf8(bytes).ok());
        let value = value.ok_or_else(|| {
            Error::Invalid(format!("Upload-Metadata: the value of `{key}` is not base64 of UTF-8"))
        })?;
        found.insert(key.into(), value.into());
    }
    Ok(found)
}

fn named(metadata: &Value) -> String {
    let name = metadata.get("filename").or_else(|| metadata.get("name")).and_then(Value::as_str);
    name.unwrap_or("video").into()
}

/// The same words as in a query; `filename` is what tus clients call the name. Others are theirs alone.
fn query(metadata: &Map<String, Value>) -> Result<UploadQuery> {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).map(str::to_owned);
    let priority = text("priority").map(|it| it.parse()).transpose();
    Ok(UploadQuery {
        name: text("filename").or_else(|| text("name")),
        title: text("title"),
        slug: text("slug"),
        user: text("user"),
        priority: priority.map_err(|_| Error::Invalid("Upload-Metadata: priority is no number".into()))?,
        early_playback: text("early_playback").map(|it| it == "true"),
        pool: text("pool"),
        settings: text("settings"),
    })
}

fn answer(status: StatusCode, headers: &[(&'static str, String)]) -> Result<Response<Body>> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, value);
    }
    response.body(Body::empty()).map_err(|error| Error::Internal(error.to_string()))
}
