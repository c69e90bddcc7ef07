//! Whether everything is well: for load balancers, and for people.

use crate::app::{App, NO_STORE};
use crate::body::Json;
use crate::data::Data;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;
use std::time::Duration;
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
    let (status, health) = look(&app).await;
    (status, [NO_STORE], Json(health))
}

async fn look(app: &App) -> (StatusCode, Health) {
    let counts = app.store.counts().await;
    let (is_well, counts) = match counts {
        Ok(counts) => (true, counts),
        Err(error) => {
            tracing::warn!("unhealthy: {error}");
            (false, store::counts::Counts::default())
        }
    };
    let health = Health {
        status: if is_well { "ok" } else { "unhealthy" },
        version: env!("CARGO_PKG_VERSION"),
        database: if is_well { "ok" } else { "away" },
        redis: app.redis.as_ref().map(|redis| if redis.is_up() { "ok" } else { "away" }),
        workers: counts.workers,
        pending_jobs: counts.pending_jobs,
    };
    (if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, health)
}

#[derive(Serialize, ToSchema)]
struct Detail {
    #[serde(flatten)]
    health: Health,
    storage: Storage,
    ready_tasks: i64,
    running_tasks: i64,
    undelivered_messages: i64,
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

/// A bucket that does not answer by then is not there for the moment.
const PATIENCE: Duration = Duration::from_secs(5);

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

/// The same with storage and queue
#[utoipa::path(get, path = "/api/health", tag = "health", responses((status = 200, body = Detail), (status = 503, body = Detail)))]
async fn detail(State(app): State<App>) -> impl IntoResponse {
    let (status, health) = look(&app).await;
    let counts = app.store.counts().await.unwrap_or_default();
    let detail = Detail {
        health,
        storage: Storage::look(&app.data).await,
        ready_tasks: counts.ready_tasks,
        running_tasks: counts.running_tasks,
        undelivered_messages: counts.undelivered_messages,
    };
    (status, [NO_STORE], Json(detail))
}
