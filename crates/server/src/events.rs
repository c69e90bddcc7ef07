//! `GET /api/events`: what happens, as it happens, by Server-Sent Events; resumed where it broke off.
//!
//! One [`tail`] for each process reads the database and hands out what it finds, written once; a [`listener`] costs a
//! place in its channel. One that cannot keep up, or comes back, is caught up from the database.

mod frame;
mod hub;
mod listener;
mod progress;
mod tail;

pub(crate) use hub::Hub;

use crate::app::{App, NO_STORE};
use crate::auth::Admin;
use crate::body::Query;
use crate::problem::{Error, Result};
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use frame::Filter;
use futures_util::StreamExt;
use listener::{Listener, Start};
use serde::Deserialize;
use store::Cursor;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(listen))
}

/// Reads the database for all listeners, while there are any.
pub(crate) async fn run(app: App) {
    tokio::join!(tail::run(&app), progress::run(&app));
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListenQuery {
    /// Begin after the event of this id. `Last-Event-ID` wins over it.
    after: Option<String>,
    /// Only events of this job.
    job: Option<i64>,
    /// Only events of this video.
    video: Option<i64>,
}

/// Follow what happens, as Server-Sent Events
///
/// `job`: submitted, its state, ended, retried. `segment`: a task is done (so many of so many of its stage) or failed.
/// `video`: published, rolled back, deleted, restored, purged. `worker`: its status. Each has an `id`: sent back as
/// `Last-Event-ID`, exactly what was missed follows. Without an id: `quality`, how far a job's qualities are, before the
/// `segment` that changed it; and, never repeated, `progress`, how far each running execution of a job is, at most once a
/// second, and `worker`, how busy it is. `reset` says that the id is not of this
/// database's history: load everything anew. A comment comes now and then, so that proxies keep the connection.
#[utoipa::path(get, path = "/api/events", tag = "events", security(("admin" = [])),
    params(ListenQuery, ("Last-Event-ID" = Option<String>, Header, description = "The last `id` seen")),
    responses((status = 200, description = "A stream without end", body = String, content_type = "text/event-stream"),
        (status = 503, description = "Too many listen already", body = Problem, content_type = "application/problem+json"),
        (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn listen(
    admin: Admin,
    State(app): State<App>,
    headers: HeaderMap,
    Query(query): Query<ListenQuery>,
) -> Result<Response> {
    let filter = Filter { job: query.job, video: query.video };
    let start = start(&headers, query.after.as_deref())?;
    let seat = app.events.take_seat().ok_or_else(|| Error::Protocol {
        status: StatusCode::SERVICE_UNAVAILABLE,
        code: "too_many_listeners",
        detail: "as many as may listen already do; try again later".into(),
    })?;
    let listener = Listener::new(app.clone(), seat, filter, start).await?;
    let events = listener.stream().take_until(Box::pin(admin.until_signed_out(app)));
    Ok(([NO_STORE, EVENT_STREAM, UNBUFFERED], Body::from_stream(events)).into_response())
}

const EVENT_STREAM: (HeaderName, HeaderValue) =
    (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));

/// nginx would hold events back.
const UNBUFFERED: (HeaderName, HeaderValue) =
    (HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));

/// A browser repeats what it was told, and would give up for ever if that were called a mistake.
fn start(headers: &HeaderMap, after: Option<&str>) -> Result<Start> {
    let said = headers.get("last-event-id").filter(|id| !id.is_empty());
    if let Some(id) = said {
        let cursor = id.to_str().ok().and_then(|id| id.parse().ok());
        return Ok(cursor.map_or(Start::Lost, Start::After));
    }
    let after: Option<Cursor> = after
        .map(str::parse)
        .transpose()
        .map_err(|error: store::NoCursor| Error::Invalid(format!("after: {error}")))?;
    Ok(after.map_or(Start::Now, Start::After))
}
