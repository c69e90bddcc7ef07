//! Streams for anybody: playlists that move with the video's pointer, generations that never change.

use crate::app::App;
use crate::body::Path;
use crate::data::is_tame;
use crate::html::{Policy, Static};
use crate::problem::{Error, Result};
use crate::ranged::{self, Told};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use media::kind;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::sync::{Arc, LazyLock};
use store::catalogue::{Entry, GenerationKey};

mod captions;
pub mod early;

/// Generations are never written twice under one name.
const FOREVER: &str = "public, max-age=31536000, immutable";
/// Which generation is the current one may change at any time.
const BRIEFLY: &str = "public, max-age=2, must-revalidate";

const PAGE: &str = include_str!("playback/watch.html");

/// What is kept of generations that were asked for: a few kilobytes of each.
pub const STREAMS_BYTES: usize = 16 << 20;

/// What is needed to play a generation; a small part of its manifest.
#[derive(Deserialize)]
pub struct Stream {
    /// The name of its folder.
    #[serde(default)]
    generation: String,
    #[serde(default)]
    duration: Option<f64>,
    #[serde(default)]
    indexes: Vec<Index>,
}

#[derive(Deserialize)]
struct Index {
    name: String,
    text: String,
}

impl Stream {
    async fn of(app: &App, generation: GenerationKey) -> Result<Arc<Self>> {
        if let Some(known) = app.streams.find(&generation) {
            return Ok(known);
        }
        let _turn = app.streams.turn().await;
        if let Some(known) = app.streams.find(&generation) {
            return Ok(known);
        }
        let stream: Stream = app.store.manifest(generation.id).await?;
        let bytes = stream.indexes.iter().map(|index| index.name.len() + index.text.len()).sum();
        Ok(app.streams.keep(generation, stream, bytes))
    }

    /// What is shown of a video now, if anything.
    async fn shown(app: &App, video: &Entry) -> Result<Option<Arc<Self>>> {
        let Some(id) = video.generation else { return Ok(None) };
        Stream::of(app, app.store.generation_key(id).await?).await.map(Some)
    }

    fn index(&self, name: &str) -> Result<&str> {
        let mut named = self.indexes.iter().filter(|index| index.name == name);
        named.next().map(|index| index.text.as_str()).ok_or(Error::NotFound("file of this video"))
    }
}

pub fn routes() -> Router<App> {
    Router::new()
        .route("/videos/{slug}/{file}", get(index))
        .route("/videos/{slug}/captions/{file}", get(captions::serve))
        .route("/videos/{slug}/early/{job}/{track}/{file}", get(early::serve))
        .route("/videos/{slug}/{generation}/{*path}", get(file))
        .route("/watch/{slug}", get(watch))
        .route("/assets/hls.js", get(player))
}

/// A video that may be seen.
async fn shown(app: &App, slug: &str) -> Result<Entry> {
    let video = app.store.entry_called(slug).await?;
    if video.deleted_at.is_some() {
        Err(Error::NotFound("video"))
    } else {
        Ok(video)
    }
}

/// The stream of a video
///
/// `master.m3u8` and `manifest.mpd` of the current generation, as files one level above it.
#[utoipa::path(get, path = "/videos/{slug}/{file}", tag = "playback", params(("slug" = String, Path), ("file" = String, Path)),
    responses((status = 200, body = String, content_type = "application/vnd.apple.mpegurl"),
        (status = 304, description = "As it was: `If-None-Match`"),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn index(
    State(app): State<App>,
    Path((slug, file)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    let video = shown(&app, &slug).await?;
    let mut text = match Stream::shown(&app, &video).await? {
        Some(stream) => stream.index(&file)?.to_owned(),
        None if file == "master.m3u8" => early::playlist_of(&app, &video).await?,
        None => return Err(Error::NotFound("stream: the video is not ready yet")),
    };
    if file == "master.m3u8" {
        text = captions::add(&text, &app.store.captions(video.id).await?);
    }
    let etag = format!("\"{}\"", &hex::encode(Sha256::digest(text.as_bytes()))[..32]);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|it| it.to_str().ok());
    let response = Response::builder()
        .header(header::ETAG, &etag)
        .header(header::CACHE_CONTROL, BRIEFLY)
        .header(header::CONTENT_TYPE, kind::of(&file));
    let (status, body) = match known {
        Some(known) if known == etag => (StatusCode::NOT_MODIFIED, Body::empty()),
        _ => (StatusCode::OK, Body::from(text)),
    };
    response.status(status).body(body).map_err(|error| Error::Internal(error.to_string()))
}

/// A file of a generation, or a range of it; it never changes
#[utoipa::path(get, path = "/videos/{slug}/{generation}/{path}", tag = "playback",
    params(("slug" = String, Path), ("generation" = String, Path), ("path" = String, Path), ("Range" = Option<String>, Header)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 307, description = "It is at `playback_url`"),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn file(
    State(app): State<App>,
    Path((slug, generation, path)): Path<(String, String, String)>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    let video = shown(&app, &slug).await?;
    if !is_tame(&generation) || !is_tame(&path) {
        return Err(Error::NotFound("file"));
    }
    if let Some(base) = &app.options.playback_url {
        let to = format!("{base}/videos/{}/{generation}/{path}", video.id);
        return elsewhere(&to);
    }
    let place = app.data.published(video.id, &generation, &path);
    let told = Told {
        content_type: kind::of(&path),
        etag: hex::encode(&Sha256::digest(format!("{}/{generation}/{path}", video.id))[..16]),
        cache: FOREVER,
    };
    ranged::respond(&place, &told, &method, &headers).await
}

/// To a CDN in front of the bucket; what is listed there is relative, so players come back for nothing.
fn elsewhere(to: &str) -> Result<Response<Body>> {
    let response = Response::builder()
        .status(StatusCode::TEMPORARY_REDIRECT)
        .header(header::LOCATION, to)
        .header(header::CACHE_CONTROL, BRIEFLY);
    response.body(Body::empty()).map_err(|error| Error::Internal(error.to_string()))
}

/// A page that plays it, for people. A video of which nothing can be played is not there, and its title is not told.
async fn watch(State(app): State<App>, Path(slug): Path<String>) -> Result<impl IntoResponse> {
    static POLICY: LazyLock<Policy> = LazyLock::new(|| Policy::of(PAGE));
    let video = shown(&app, &slug).await?;
    if video.generation.is_none() && !video.is_early_playback {
        return Err(Error::NotFound("video"));
    }
    let page = PAGE.replace("{{title}}", &escaped(&video.title)).replace("{{slug}}", &escaped(&video.slug));
    // Where segments are when they are not here; the browser asks there after a redirect.
    let elsewhere = app.options.playback_url.as_deref().and_then(origin).unwrap_or_default();
    let policy = POLICY.header(&elsewhere, "'self'");
    Ok(([(header::CONTENT_SECURITY_POLICY, policy)], Html(page)))
}

async fn player(headers: HeaderMap) -> Response<Body> {
    static PLAYER: LazyLock<Static> = LazyLock::new(|| {
        Static::new("text/javascript", "public, max-age=86400", include_str!("../assets/hls.min.js"))
    });
    PLAYER.answer(&headers)
}

/// ` https://cdn.example.org` of an address below it.
fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split('/').next()?;
    let is_plain = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    is_plain.then(|| format!(" {scheme}://{host}"))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
        .replace('\'', "&#39;")
}
