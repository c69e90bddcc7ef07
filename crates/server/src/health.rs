//! Whether everything is well: for load balancers, and for people.

use crate::app::{App, NO_STORE};
use crate::auth::Admin;
use crate::body::Json;
use crate::data::Data;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::counts::Counts;
use tokio::sync::Mutex;
use tokio::time::Instant;
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

/// However many ask, the database counts no more often.
const FRESH: Duration = Duration::from_secs(1);

/// The newest counts, or why there are none; shared by all requests.
#[derive(Clone, Default)]
pub struct Latest(Arc<Mutex<Option<(Instant, Found)>>>);

type Found = Result<Counts, String>;

impl Latest {
    async fn counts(&self, counting: impl Future<Output = Found> + Send + 'static) -> Found {
        let mut known = self.0.clone().lock_owned().await;
        if let Some((at, found)) = &*known
            && at.elapsed() < FRESH
        {
            return found.clone();
        }
        // By itself: if this client is gone, the next one need not begin again.
        let counted = tokio::spawn(async move {
            let found = counting.await;
            *known = Some((Instant::now(), found.clone()));
            found
        });
        counted.await.unwrap_or_else(|error| Err(error.to_string()))
    }
}

async fn count(store: Store) -> Found {
    let found = match tokio::time::timeout(PATIENCE, store.counts()).await {
        Ok(counts) => counts.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the database has not answered for {PATIENCE:?}")),
    };
    found.inspect_err(|why| tracing::warn!("unhealthy: {why}"))
}

async fn look(app: &App) -> (StatusCode, Health, Counts) {
    let counts = app.health.counts(count(app.store.clone())).await;
    let has_database = counts.is_ok();
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
async fn detail(admin: crate::problem::Result<Admin>, State(app): State<App>) -> Response {
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[tokio::test(start_paused = true)]
    async fn however_many_ask_the_database_counts_once_a_second() {
        let (latest, counted) = (Latest::default(), Arc::new(AtomicI64::new(0)));
        let ask = || {
            let counted = counted.clone();
            latest.counts(async move {
                let pending_jobs = counted.fetch_add(1, Ordering::Relaxed) + 1;
                tokio::time::sleep(Duration::from_millis(100)).await;
                Ok(Counts { pending_jobs, ..Counts::default() })
            })
        };

        // One that is gone before it has its answer changes nothing for the others.
        assert!(tokio::time::timeout(Duration::from_millis(10), ask()).await.is_err());
        let found = futures_util::future::join_all((0..100).map(|_| ask())).await;
        assert!(found.iter().all(|found| found.as_ref().unwrap().pending_jobs == 1), "{found:?}");

        tokio::time::sleep(FRESH).await;
        assert_eq!(ask().await.unwrap().pending_jobs, 2);
    }
}
