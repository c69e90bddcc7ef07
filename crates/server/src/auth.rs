//! Who speaks: an admin, or a worker. Nothing else in this crate decides that.

use crate::app::App;
use crate::guesses::Guesses;
use crate::problem::Error;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use rules::WorkerId;
use std::net::IpAddr;
use std::time::Instant;
use wire::Proof;
use wire::http::header;

/// What a browser that signed in brings.
pub const COOKIE: &str = "vodmill";

/// Somebody who knows the admin's secret, or has shown it when signing in.
pub struct Admin;

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let offered = text(parts, header::ADMIN_SECRET);
        match offered {
            Some(secret) => is_admin(parts, app, secret).map(|()| Admin),
            None => match session(&parts.headers) {
                Some(token) if is_own_page(parts) && app.store.is_session(token).await? => Ok(Admin),
                _ => {
                    Err(Error::Unauthorized("this needs the header X-Admin-Secret, or that you sign in at /"))
                }
            },
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
                // Nobody guesses 256 random bits, so a key is looked at in any case: no fleet is held up by its neighbours.
                let attempt = Attempt::at(app, parts, key)?;
                Err(attempt.was_wrong("the worker's key is not known, or was revoked"))
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

/// Whether this is the admin's secret.
pub fn is_admin(parts: &Parts, app: &App, offered: &str) -> Result<(), Error> {
    let attempt = Attempt::at(app, parts, offered)?;
    if !app.admin.is(offered) {
        return Err(attempt.was_wrong("the admin secret is wrong"));
    }
    attempt.was_right();
    Ok(())
}

/// A secret or key is offered, and may be looked at: there were not too many wrong ones from the same address.
struct Attempt<'a> {
    guesses: &'a Guesses,
    from: IpAddr,
    offered: &'a str,
}

impl<'a> Attempt<'a> {
    fn at(app: &'a App, parts: &Parts, offered: &'a str) -> Result<Self, Error> {
        let attempt = Attempt { guesses: &app.guesses, from: app.guesses.client(parts), offered };
        attempt.guesses.may_try(attempt.from, offered, Instant::now()).map_err(Error::TooManyGuesses)?;
        Ok(attempt)
    }

    fn was_right(self) {
        self.guesses.was_right(self.offered);
    }

    fn was_wrong(self, what: &'static str) -> Error {
        self.guesses.was_wrong(self.from, self.offered, Instant::now());
        Error::Unauthorized(what)
    }
}

/// The token of somebody who signed in.
pub fn session(headers: &HeaderMap) -> Option<&str> {
    let cookies = headers.get_all(axum::http::header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs =
        cookies.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == COOKIE).map(|(_, token)| token)
}

/// A browser sends cookies with whatever any page makes it ask. Ours asks from the address it was loaded from; what
/// changes nothing may come from anywhere, for other pages cannot read the answer.
fn is_own_page(parts: &Parts) -> bool {
    if matches!(parts.method, Method::GET | Method::HEAD) {
        return true;
    }
    let origin = text(parts, "origin").and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    let hosts = [text(parts, "host"), text(parts, "x-forwarded-host")];
    origin.is_some() && hosts.contains(&origin) || text(parts, "sec-fetch-site") == Some("same-origin")
}

fn text<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    parts.headers.get(name).and_then(|value| value.to_str().ok())
}
