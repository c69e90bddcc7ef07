//! Workers: let in, listed, drained, disabled, enabled, shut out.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Path, Query};
use crate::problem::{Error, Result};
use axum::extract::State;
use rules::WorkerId;
use rules::placement::{BadCapability, Capabilities, Grant, Pool};
use rules::task::Death;
use rules::worker::Command;
use serde::{Deserialize, Serialize};
use store::Store;
use store::worker::View;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;
use wire::http::{Problem, Registered, Registration};
use wire::{Hello, Kind};

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(drain))
        .routes(routes!(disable))
        .routes(routes!(enable))
        .routes(routes!(revoke))
}

/// Users that one worker can be bound to.
const MOST_USERS: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Also those that left.
    all: Option<bool>,
}

/// List workers, newest first
#[utoipa::path(get, path = "/api/workers", tag = "workers", params(ListQuery), security(("admin" = [])),
    responses((status = 200, body = Vec<View>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(_: Admin, State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Json<Vec<View>>> {
    Ok(Json(app.store.workers(query.all.unwrap_or(false)).await?))
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct WorkerStatus {
    pub status: String,
}

async fn tell(app: &App, id: &str, command: Command) -> Result<Json<WorkerStatus>> {
    let status = app.store.manage_worker(parse(id)?, command).await?;
    Ok(Json(WorkerStatus { status: status.to_string() }))
}

fn parse(id: &str) -> Result<WorkerId> {
    id.parse().map_err(|_| Error::NotFound("worker"))
}

/// Let it finish what it has; it takes nothing new
#[utoipa::path(post, path = "/api/workers/{id}/drain", tag = "workers", params(("id" = uuid::Uuid, Path)), security(("admin" = [])),
    responses((status = 200, body = WorkerStatus), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn drain(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<WorkerStatus>> {
    tell(&app, &id, Command::Drain).await
}

/// Switch it off: it takes nothing new until somebody enables it
#[utoipa::path(post, path = "/api/workers/{id}/disable", tag = "workers", params(("id" = uuid::Uuid, Path)), security(("admin" = [])),
    responses((status = 200, body = WorkerStatus), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn disable(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<WorkerStatus>> {
    tell(&app, &id, Command::Disable).await
}

/// Switch it on again
#[utoipa::path(post, path = "/api/workers/{id}/enable", tag = "workers", params(("id" = uuid::Uuid, Path)), security(("admin" = [])),
    responses((status = 200, body = WorkerStatus), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn enable(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<WorkerStatus>> {
    tell(&app, &id, Command::Enable).await
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Revoked {
    /// How many keys it had.
    pub keys: u64,
}

/// Shut it out: its key is worth nothing any more, and what it had leased is free at once
#[utoipa::path(post, path = "/api/workers/{id}/revoke", tag = "workers", params(("id" = uuid::Uuid, Path)), security(("admin" = [])),
    responses((status = 200, body = Revoked), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn revoke(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<Revoked>> {
    Ok(Json(shut_out(&app.store, parse(&id)?).await?))
}

pub async fn shut_out(store: &Store, id: WorkerId) -> store::Result<Revoked> {
    let keys = store.revoke_keys(id).await?;
    if keys == 0 {
        return Err(store::Error::NotFound("worker with a key"));
    }
    store.lose_worker(id, Death::ByPerson).await?;
    Ok(Revoked { keys })
}

/// Makes a worker known that has not been heard of, and its key.
pub async fn let_in(store: &Store, asked: Registration) -> Result<Registered> {
    let name: String = asked.name.trim().chars().filter(|c| !c.is_control()).take(200).collect();
    if name.is_empty() {
        return Err(Error::Invalid("a worker needs a name".into()));
    }
    let grant = grant(&asked)?;
    let hello = Hello {
        worker: WorkerId(Uuid::now_v7()),
        name,
        kind: Kind::Remote,
        hostname: String::new(),
        version: String::new(),
        slots: 0,
        capabilities: capabilities(&asked.capabilities)?,
        metadata: asked.metadata,
    };
    let key = store.enroll_worker(&hello, &grant).await?;
    Ok(Registered { worker_id: hello.worker, api_key: key.reveal().into() })
}

/// What the admin allows the worker.
fn grant(asked: &Registration) -> Result<Grant> {
    let bad = |bad: BadCapability| Error::unprocessable("bad_capability", bad.to_string());
    if asked.users.len() > MOST_USERS
        || asked.users.iter().any(|user| !(1..=64).contains(&user.chars().count()))
    {
        let what = format!("a worker can be bound to {MOST_USERS} users, each of 1 to 64 characters");
        return Err(Error::unprocessable("bad_users", what));
    }
    let granted = capabilities(&asked.capabilities)?;
    let grant = Grant {
        capabilities: (!asked.capabilities.is_empty()).then_some(granted),
        pool: asked.pool.as_deref().map(str::parse::<Pool>).transpose().map_err(bad)?,
        users: (!asked.users.is_empty()).then(|| asked.users.iter().cloned().collect()),
    };
    grant.check().map_err(bad)?;
    Ok(grant)
}

pub(crate) fn capabilities(names: &[String]) -> Result<Capabilities> {
    Capabilities::new(names).map_err(|bad| Error::unprocessable("bad_capability", bad.to_string()))
}
