//! The page at `/`: videos, workers and what happens, for somebody who signed in with the admin's secret.

use crate::app::App;
use crate::auth::{self, COOKIE};
use crate::body::Json;
use crate::problem::{Error, Result};
use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use rules::Millis;
use serde::Deserialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

/// A page that needs nothing else.
const PAGE: &str = include_str!("home/page.html");

/// How long somebody stays signed in, in seconds.
const LASTS: i64 = 7 * 86_400;

/// It shows nothing in other sites' frames and runs nothing that is not its own.
const HEADERS: [(HeaderName, &str); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; style-src 'self' 'unsafe-inline'; script-src 'self' 'unsafe-inline'; frame-ancestors 'none'",
    ),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

pub fn page() -> Router<App> {
    Router::new().route("/", get(|| async { (HEADERS, Html(PAGE)) }))
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(sign_in, sign_out))
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct SignIn {
    /// The admin's.
    secret: String,
}

/// Sign in: a cookie stands for the admin's secret from now on, for a week
#[utoipa::path(post, path = "/api/session", tag = "session", request_body = SignIn,
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn sign_in(
    State(app): State<App>,
    parts: Parts,
    Json(asked): Json<SignIn>,
) -> Result<impl IntoResponse> {
    auth::is_admin(&parts, &app, &asked.secret)?;
    let token = app.store.open_session(Millis(LASTS * 1000)).await?;
    cookie(&parts.headers, &token, LASTS)
}

/// Sign out
#[utoipa::path(delete, path = "/api/session", tag = "session",
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn sign_out(State(app): State<App>, headers: HeaderMap) -> Result<impl IntoResponse> {
    if let Some(token) = auth::session(&headers) {
        app.store.close_session(token).await?;
    }
    cookie(&headers, "", 0)
}

/// No script sees it, no other site sends it, and where the page came encrypted it goes only so.
fn cookie(headers: &HeaderMap, token: &str, lasts: i64) -> Result<impl IntoResponse + use<>> {
    let is_encrypted = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}");
    let value = HeaderValue::from_str(&text).map_err(|error| Error::Internal(error.to_string()))?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, value)]))
}
