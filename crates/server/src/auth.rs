//! Who speaks: an admin, or a worker. Nothing else in this crate decides that.

use crate::app::App;
use crate::problem::Error;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use rules::WorkerId;
use wire::Proof;
use wire::http::header;

/// Somebody who knows the admin's secret.
pub struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let offered = text(parts, header::ADMIN_SECRET);
        match offered {
            Some(secret) if app.admin.is(secret) => Ok(Admin),
            Some(_) => Err(Error::Unauthorized("the admin secret is wrong")),
            None => Err(Error::Unauthorized("this needs the header X-Admin-Secret")),
        }
    }
}

/// A worker, known by its key.
pub struct Caller {
    pub worker: WorkerId,
}

impl FromRequestParts<App> for Caller {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let offered = text(parts, axum::http::header::AUTHORIZATION.as_str());
        let key = offered.and_then(|value| value.strip_prefix("Bearer ")).map(str::trim);
        let key = key.ok_or(Error::Unauthorized("this needs a worker's key: Authorization: Bearer KEY"))?;
        match app.store.authenticate(key).await {
            Ok(worker) => Ok(Caller { worker }),
            Err(store::Error::BadKey) => {
                Err(Error::Unauthorized("the worker's key is not known, or was revoked"))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A worker that speaks of an execution of its own, in a request without a body to say so.
pub struct Holder {
    pub proof: Proof,
}

impl FromRequestParts<App> for Holder {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let caller = Caller::from_request_parts(parts, app).await?;
        let proof = text(parts, header::PROOF).and_then(Proof::from_header);
        let proof = proof
            .ok_or_else(|| Error::Invalid(format!("the header {} is missing or malformed", header::PROOF)))?;
        app.store.holds(caller.worker, proof).await?.map_err(Error::Refused)?;
        Ok(Holder { proof })
    }
}

fn text<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}
