//! `GET /metrics`: what Prometheus reads.
//!
//! On the server's own address it takes the metrics' token (`Authorization: Bearer`) or the admin's secret. On an address
//! of its own, which only those who may ask can reach, it takes anybody; or, where there is a token, whoever has it.

mod census;
mod http;

pub use http::measure;

use crate::app::App;
use crate::auth;
use crate::client_address::ClientAddresses;
use crate::connections::Caps;
use crate::guesses::Guesses;
use crate::listen::{self, Door};
use crate::problem::{Error, Result};
use crate::secret::AdminSecret;
use axum::Router;
use axum::extract::{FromRequestParts, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use census::Latest;
use std::path::PathBuf;
use std::sync::Arc;
use store::Store;
use telemetry::{Text, text};
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What a process has to tell, and to whom. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    token: Option<AdminSecret>,
    /// What is asked of the database. A worker leaves that to servers.
    latest: Option<Latest>,
    /// Folders whose disk may fill, and what they are called.
    folders: Vec<(&'static str, PathBuf)>,
}

impl Metrics {
    pub fn of_server(store: Store, data: PathBuf, token: Option<AdminSecret>) -> Self {
        census::expect();
        Metrics::new(Some(Latest::new(store)), vec![("data", data)], token)
    }

    pub fn of_worker(work: PathBuf, token: Option<AdminSecret>) -> Self {
        Metrics::new(None, vec![("work", work)], token)
    }

    fn new(
        latest: Option<Latest>,
        folders: Vec<(&'static str, PathBuf)>,
        token: Option<AdminSecret>,
    ) -> Self {
        Metrics(Arc::new(Inner { token, latest, folders }))
    }

    async fn text(&self) -> Response {
        let mut text = Text::default();
        if let Some(latest) = &self.0.latest {
            latest.write(&mut text).await;
        }
        self.write_space(&mut text);
        telemetry::write(&mut text);
        ([(header::CONTENT_TYPE, text::CONTENT_TYPE)], text.into_string()).into_response()
    }

    fn write_space(&self, text: &mut Text) {
        // A folder that is not there yet is on the disk of the first one above it that is.
        let there = |folder: &PathBuf| folder.ancestors().find_map(|above| files::space(above).ok());
        let folders = self.0.folders.iter();
        let spaces: Vec<_> = folders.filter_map(|(name, folder)| Some((*name, there(folder)?))).collect();
        text.family("vodmill_storage_free_bytes", "gauge", "Free on the disk that holds this folder.");
        for (name, (_, free)) in &spaces {
            text.sample("vodmill_storage_free_bytes", [("folder", *name)], free);
        }
        text.family("vodmill_storage_size_bytes", "gauge", "Size of the disk that holds this folder.");
        for (name, (total, _)) in &spaces {
            text.sample("vodmill_storage_size_bytes", [("folder", *name)], total);
        }
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let offered = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    offered.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim)
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Somebody who may read the metrics on the server's own address.
struct Reader;

impl FromRequestParts<App> for Reader {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self> {
        let has_secret = parts.headers.contains_key(wire::http::header::ADMIN_SECRET);
        if let (Some(token), Some(offered), false) =
            (&app.metrics.0.token, bearer(&parts.headers), has_secret)
        {
            return auth::is_right(parts, app, token, offered, "the metrics token is wrong").map(|()| Reader);
        }
        match crate::auth::Admin::from_request_parts(parts, app).await {
            Ok(_) => Ok(Reader),
            Err(error @ Error::TooManyGuesses(_)) => Err(error),
            Err(_) => Err(Error::Unauthorized(
                "this needs Authorization: Bearer with VODMILL_METRICS_TOKEN, or the header X-Admin-Secret; \
                 or ask at the address of VODMILL_METRICS_LISTEN",
            )),
        }
    }
}

/// What Prometheus reads
#[utoipa::path(get, path = "/metrics", tag = "health", security(("admin" = [])),
    responses((status = 200, body = String, content_type = "text/plain"), (status = "4XX", body = wire::http::Problem, content_type = "application/problem+json")))]
async fn metrics(_: Reader, State(app): State<App>) -> Response {
    app.metrics.text().await
}

/// Serves the metrics, and nothing else, on an address of their own.
pub async fn serve(metrics: Metrics, listener: TcpListener) {
    let options = crate::Options::default();
    let guesses = Arc::new(Guesses::new(options.guesses_per_minute));
    let door = Door {
        caps: Caps { total: CONNECTIONS, unauthenticated: CONNECTIONS, per_address: CONNECTIONS / 2 },
        ..options.door(ClientAddresses::default(), guesses.clone())
    };
    let alone = Alone { metrics, guesses };
    let router = Router::new().route("/metrics", get(shown)).with_state(alone);
    listen::serve(listener, router, door, std::future::pending()).await;
}

/// On the metrics' own address.
const CONNECTIONS: usize = 128;

#[derive(Clone)]
struct Alone {
    metrics: Metrics,
    guesses: Arc<Guesses>,
}

async fn shown(State(alone): State<Alone>, parts: Parts) -> Result<Response> {
    if let Some(token) = &alone.metrics.0.token {
        let why = "this needs Authorization: Bearer with VODMILL_METRICS_TOKEN";
        let offered = bearer(&parts.headers).ok_or(Error::Unauthorized(why))?;
        let from = ClientAddresses::default().of(&parts);
        auth::is_right_from(&alone.guesses, from, token, offered, "the metrics token is wrong")?;
    }
    Ok(alone.metrics.text().await)
}
