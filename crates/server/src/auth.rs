//! Who speaks: an admin, or a worker. Nothing else in this crate decides that.

use crate::app::App;
use crate::body::Sender;
use crate::connections::Visitor;
use crate::guesses::Guesses;
use crate::problem::Error;
use crate::secret::AdminSecret;
use crate::worker::rejections;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use rules::WorkerId;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::hold::Ownership;
use tokio::sync::SemaphorePermit;
use wire::http::header;
use wire::{LeaseToken, Proof};

/// What a browser that signed in brings.
pub const COOKIE: &str = "vodmill";

/// Somebody who knows the admin's secret, or has shown it when signing in.
pub struct Admin {
    /// The token of the session it speaks in, if not with the secret.
    pub session: Option<String>,
}

impl Admin {
    /// Resolves when the session it speaks in has ended. A client with the secret has none to end.
    pub async fn until_signed_out(self, app: App) {
        let Some(token) = self.session else { return std::future::pending().await };
        loop {
            tokio::time::sleep(SESSION_CHECK).await;
            if let Ok(false) = app.store.is_session(app.admin.hash(), &token).await {
                return;
            }
        }
    }
}

/// How often a stream that began in a session looks whether the session is still open.
const SESSION_CHECK: Duration = Duration::from_secs(5);

impl FromRequestParts<App> for Admin {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Error> {
        let offered = text(parts, header::ADMIN_SECRET);
        match offered {
            Some(secret) => is_admin(parts, app, secret).map(|()| Admin { session: None }),
            None => match session(&parts.headers) {
                Some(token) if is_own_page(parts) && is_open(parts, app, token).await? => {
                    Ok(Admin { session: Some(token.to_owned()) })
                }
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
        let looked_up = {
            let _turn = turn_of_unknown(app, key).await;
            app.store.authenticate(key).await
        };
        match looked_up {
            Ok(worker) => {
                app.guesses.was_right(key);
                authenticated(parts);
                parts.extensions.insert(Sender(worker));
                Ok(Caller { worker })
            }
            Err(store::Error::BadKey) => {
                // Nobody guesses 256 random bits, so a key is looked at in any case: no fleet is held up by its neighbours.
                let attempt = Attempt::at(&app.guesses, app.addresses.of(parts), key)?;
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
        let token = text(parts, header::PROOF).and_then(LeaseToken::from_header);
        let token = token
            .ok_or_else(|| Error::Invalid(format!("the header {} is missing or malformed", header::PROOF)))?;
        let proof = token.shown_by(caller.worker);
        let ownership = app.store.ownership(proof).await?;
        if ownership == Ownership::Foreign {
            rejections::of_proof(app, proof).await;
        }
        ownership.current().map_err(Error::Refused)?;
        Ok(Holder { proof })
    }
}

/// Whether this is the admin's secret.
pub fn is_admin(parts: &Parts, app: &App, offered: &str) -> Result<(), Error> {
    is_right(parts, app, &app.admin, offered, "the admin secret is wrong")
}

/// Whether what is offered is this secret; a wrong one counts as a guess.
pub fn is_right(
    parts: &Parts,
    app: &App,
    secret: &AdminSecret,
    offered: &str,
    otherwise: &'static str,
) -> Result<(), Error> {
    is_right_from(&app.guesses, app.addresses.of(parts), secret, offered, otherwise)?;
    authenticated(parts);
    Ok(())
}

pub fn is_right_from(
    guesses: &Guesses,
    from: IpAddr,
    secret: &AdminSecret,
    offered: &str,
    otherwise: &'static str,
) -> Result<(), Error> {
    let attempt = Attempt::at(guesses, from, offered)?;
    if !secret.is(offered) {
        return Err(attempt.was_wrong(otherwise));
    }
    attempt.was_right();
    Ok(())
}

/// Whether a session with this token is open. A flood of tokens costs little: what is none is not looked up, and others wait
/// for their turn.
pub async fn is_open(parts: &Parts, app: &App, token: &str) -> Result<bool, Error> {
    if !is_hash(token) {
        return Ok(false);
    }
    let is_open = {
        let _turn = turn_of_unknown(app, token).await;
        app.store.is_session(app.admin.hash(), token).await?
    };
    if is_open {
        app.guesses.was_right(token);
        authenticated(parts);
    } else {
        app.guesses.forget(token);
    }
    Ok(is_open)
}

/// The client of this request does not count against its address any more.
pub fn authenticated(parts: &Parts) {
    if let Some(visitor) = parts.extensions.get::<Arc<Visitor>>() {
        visitor.authenticate();
    }
}

/// Credentials that were not right before are looked up a few at a time: a flood of them leaves the database to others.
async fn turn_of_unknown<'a>(app: &'a App, offered: &str) -> Option<SemaphorePermit<'a>> {
    if app.guesses.is_known(offered) {
        None
    } else {
        app.lookups.acquire().await.ok()
    }
}

/// Keys and tokens are 256 bits in hex. What is not is not looked up.
fn is_hash(offered: &str) -> bool {
    offered.len() == 64 && offered.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A secret or key is offered, and may be looked at: there were not too many wrong ones from the same address.
struct Attempt<'a> {
    guesses: &'a Guesses,
    from: IpAddr,
    offered: &'a str,
}

impl<'a> Attempt<'a> {
    fn at(guesses: &'a Guesses, from: IpAddr, offered: &'a str) -> Result<Self, Error> {
        let attempt = Attempt { guesses, from, offered };
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

/// Whether a request offers a secret, key or token that was right before. Nothing is looked up.
pub fn is_known(headers: &HeaderMap, guesses: &Guesses) -> bool {
    let of = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let key = of(axum::http::header::AUTHORIZATION.as_str()).and_then(|value| value.strip_prefix("Bearer "));
    let offered = [of(header::ADMIN_SECRET), key.map(str::trim), session(headers)];
    offered.into_iter().flatten().any(|offered| guesses.is_known(offered))
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
