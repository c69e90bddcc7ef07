//! Whether everything is well: for load balancers, and for people.

use crate::app::{App, NO_STORE};
use crate::body::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde::Serialize;
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
    total_bytes: u64,
    free_bytes: u64,
}

/// The same with storage and queue
#[utoipa::path(get, path = "/api/health", tag = "health", responses((status = 200, body = Detail), (status = 503, body = Detail)))]
async fn detail(State(app): State<App>) -> impl IntoResponse {
    let (status, health) = look(&app).await;
    let counts = app.store.counts().await.unwrap_or_default();
    let (total_bytes, free_bytes) = files::space(app.data.root()).unwrap_or((0, 0));
    let detail = Detail {
        health,
        storage: Storage { total_bytes, free_bytes },
        ready_tasks: counts.ready_tasks,
        running_tasks: counts.running_tasks,
        undelivered_messages: counts.undelivered_messages,
    };
    (status, [NO_STORE], Json(detail))
}
