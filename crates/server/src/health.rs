//! Whether everything is well: for load balancers, and for people.

use crate::app::{App, NO_STORE};
use crate::auth::Admin;
use crate::body::Json;
use crate::data::Data;
use crate::problem::Result;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::time::Duration;
use store::counts::Counts;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(health)).routes(routes!(detail))
}

#[derive(Serialize, ToSchema)]
struct Health {
    /// `ok`, or `unhealthy` with status 503.
    status: &'static str,
    /// Why it is unhealthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    version: &'static str,
    database: &'static str,
    /// `ok` or `away`, where one is configured. Without it the server is slower to tell, and still `ok`.
    #[serde(skip_serializing_if = "Option::is_none")]
    redis: Option<&'static str>,
    workers: i64,
    pending_jobs: i64,
}

/// Whether the server can do its work
#[utoipa::path(get, path = "/health", tag = "health", responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn health(State(app): State<App>) -> impl IntoResponse {
    let (status, health, _) = look(&app).await;
    (status, [NO_STORE], Json(health))
}

/// A database or a bucket that does not answer by then is not there for the moment: who asks has little patience, too.
const PATIENCE: Duration = Duration::from_secs(3);

async fn look(app: &App) -> (StatusCode, Health, Counts) {
    let counts = match tokio::time::timeout(PATIENCE, app.store.counts()).await {
        Ok(counts) => counts.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the database has not answered for {PATIENCE:?}")),
    };
    let has_database = counts.as_ref().inspect_err(|why| tracing::warn!("unhealthy: {why}")).is_ok();
    let reason = match has_database {
        true => app.store.shortage().or_else(|| app.reserve.shortage()),
        false => Some("the database does not answer".into()),
    };
    let is_well = reason.is_none();
    let counts = counts.unwrap_or_default();
    let health = Health {
        status: if is_well { "ok" } else { "unhealthy" },
        reason,
        version: env!("CARGO_PKG_VERSION"),
        database: if has_database { "ok" } else { "away" },
        redis: app.redis.as_ref().map(|redis| if redis.is_up() { "ok" } else { "away" }),
        workers: counts.workers,
        pending_jobs: counts.pending_jobs,
    };
    (if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, health, counts)
}

#[derive(Serialize, ToSchema)]
struct Detail {
    #[serde(flatten)]
    health: Health,
    storage: Storage,
    ready_tasks: i64,
    running_tasks: i64,
    undelivered_messages: i64,
    /// Workers that take nothing new for now because their machines have too little disk or memory left.
    refusing_workers: Vec<Refusing>,
}

#[derive(Serialize, ToSchema)]
struct Refusing {
    worker: String,
    reason: String,
}

#[derive(Serialize, ToSchema)]
struct Storage {
    /// Where files are: `file`, or the bucket's address.
    kind: String,
    is_reachable: bool,
    /// A bucket does not say how much fits into it.
    total_bytes: Option<u64>,
    free_bytes: Option<u64>,
}

impl Storage {
    async fn look(data: &Data) -> Self {
        let Some(bucket) = data.bucket() else {
            let space = files::space(data.root()).ok();
            let (total_bytes, free_bytes) = (space.map(|it| it.0), space.map(|it| it.1));
            return Storage { kind: "file".into(), is_reachable: space.is_some(), total_bytes, free_bytes };
        };
        let asked = tokio::time::timeout(PATIENCE, bucket.check()).await;
        let is_reachable = matches!(asked, Ok(Ok(_)));
        Storage { kind: bucket.url().into(), is_reachable, total_bytes: None, free_bytes: None }
    }
}

/// The same; for an admin with storage and queue
#[utoipa::path(get, path = "/api/health", tag = "health", responses((status = 200, body = Detail), (status = 503, body = Detail)))]
async fn detail(admin: Result<Admin>, State(app): State<App>) -> Response {
    let (status, health, counts) = look(&app).await;
    if admin.is_err() {
        return (status, [NO_STORE], Json(health)).into_response();
    }
    let refusing = app.store.refusing().await.unwrap_or_default();
    let detail = Detail {
        health,
        storage: Storage::look(&app.data).await,
        ready_tasks: counts.ready_tasks,
        running_tasks: counts.running_tasks,
        undelivered_messages: counts.undelivered_messages,
        refusing_workers: refusing
            .into_iter()
            .map(|it| Refusing { worker: it.worker, reason: it.reason })
            .collect(),
    };
    (status, [NO_STORE], Json(detail)).into_response()
}
