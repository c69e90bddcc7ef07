//! The page at `/`: videos, workers and what happens, for somebody who signed in with the admin's secret.

use crate::app::App;
use crate::auth::{self, Admin, COOKIE};
use crate::body::{Json, Path, Tiny};
use crate::html::Policy;
use crate::problem::{Error, Result};
use axum::Router;
use axum::extract::State;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse};
use axum::routing::get;
use rules::Millis;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;
use store::session::{NewSession, Session};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

/// A page that needs nothing else.
const PAGE: &str = include_str!("home/page.html");

/// How long somebody stays signed in, in seconds.
const LASTS: i64 = 7 * 86_400;

/// It shows nothing in other sites' frames and runs nothing that is not its own.
static POLICY: LazyLock<String> = LazyLock::new(|| Policy::of(PAGE).header("", "'none'"));

pub fn page() -> Router<App> {
    let headers =
        || [(header::CONTENT_SECURITY_POLICY, POLICY.as_str()), (header::CACHE_CONTROL, "no-cache")];
    Router::new().route("/", get(move || async move { (headers(), Html(PAGE)) }))
}

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(sign_in, sign_out))
        .routes(routes!(list, end_all))
        .routes(routes!(end))
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
    Tiny(asked): Tiny<SignIn>,
) -> Result<impl IntoResponse> {
    auth::is_admin(&parts, &app, &asked.secret)?;
    let agent = parts.headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let new = NewSession {
        secret: app.admin.hash(),
        lasts: Millis(LASTS * 1000),
        client: &app.addresses.of(&parts).to_string(),
        user_agent: &wire::text::clean_name(agent.unwrap_or_default(), 200),
    };
    let token = app.store.open_session(&new).await?;
    cookie(&parts.headers, &token, LASTS)
}

/// Sign out
#[utoipa::path(delete, path = "/api/session", tag = "session",
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn sign_out(State(app): State<App>, parts: Parts) -> Result<impl IntoResponse> {
    // A client without a session writes nothing.
    if let Some(token) = auth::session(&parts.headers)
        && auth::is_open(&parts, &app, token).await?
    {
        app.store.close_session(token).await?;
        app.guesses.forget(token);
    }
    cookie(&parts.headers, "", 0)
}

/// List the open sessions of this page, newest first
#[utoipa::path(get, path = "/api/sessions", tag = "session", security(("admin" = [])),
    responses((status = 200, body = Vec<Session>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(admin: Admin, State(app): State<App>) -> Result<Json<Vec<Session>>> {
    let mut sessions = app.store.sessions(Some(app.admin.hash())).await?;
    let current = admin.session.as_deref().map(store::session::id);
    for session in &mut sessions {
        session.is_current = current.as_ref() == Some(&session.id);
    }
    Ok(Json(sessions))
}

/// End one session
#[utoipa::path(delete, path = "/api/sessions/{id}", tag = "session", params(("id" = String, Path)), security(("admin" = [])),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn end(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode> {
    app.store.end_session(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct SessionsEnded {
    pub ended: u64,
}

/// End all sessions, everywhere
#[utoipa::path(delete, path = "/api/sessions", tag = "session", security(("admin" = [])),
    responses((status = 200, body = SessionsEnded), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn end_all(_: Admin, State(app): State<App>) -> Result<Json<SessionsEnded>> {
    Ok(Json(SessionsEnded { ended: app.store.end_sessions().await? }))
}

/// No script sees it, no other site sends it, and where the page came encrypted it goes only so.
fn cookie(headers: &HeaderMap, token: &str, lasts: i64) -> Result<impl IntoResponse + use<>> {
    let is_encrypted = headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
    let secure = if is_encrypted { "; Secure" } else { "" };
    let text = format!("{COOKIE}={token}; Path=/; Max-Age={lasts}; HttpOnly; SameSite=Strict{secure}");
    let value = HeaderValue::from_str(&text).map_err(|error| Error::Internal(error.to_string()))?;
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, value)]))
}
