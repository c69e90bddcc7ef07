//! The file an execution is about, by ranges, so that a worker reads only the part it needs.

use crate::app::App;
use crate::auth::Holder;
use crate::problem::{Error, Result};
use crate::ranged::{self, Told};
use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response};
use axum::routing::get;
use std::path::Path;

pub fn routes() -> Router<App> {
    Router::new().route("/api/worker/source", get(source))
}

/// The file that an execution is about, or a range of it
#[utoipa::path(get, path = "/api/worker/source", tag = "worker", security(("worker" = [])),
    params(("X-Vodmill-Proof" = String, Header, description = "Of the execution, as `claim` gave it: `TASK.FENCE.TOKEN`"), ("Range" = Option<String>, Header)),
    responses((status = 200, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, body = Vec<u8>, content_type = "application/octet-stream"),
        (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
pub(crate) async fn source(
    Holder { proof }: Holder,
    State(app): State<App>,
    method: Method,
    headers: HeaderMap,
) -> Result<Response<Body>> {
    let video = app
        .store
        .video_of_job(proof.task.job())
        .await?
        .ok_or(Error::NotFound("source: the job is about no video"))?;
    let video = app.store.entry(video).await?;
    let path = video.source.ok_or(Error::NotFound("source of this video"))?;
    let told = Told {
        content_type: "application/octet-stream",
        etag: video.source_sha256.unwrap_or_else(|| path.clone()),
        cache: "no-store",
    };
    ranged::respond(&app.data.source(Path::new(&path)), &told, &method, &headers).await
}
