//! Request bodies that are read into memory, and queries and paths. Mistakes are answered with a problem.
//!
//! An extractor's name says how large its body may be: [`Tiny`] is for clients that have not authenticated, [`Json`] for
//! ordinary requests, [`Large`] for those that carry a job or a result. A handler takes its credentials as an earlier
//! argument, so a larger body is read only after the client has authenticated.

use crate::app::App;
use crate::problem::Error;
use axum::body::Body;
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The largest body that a client may send before it has authenticated.
pub const TINY_BYTES: usize = 4 << 10;

/// The largest body of an ordinary request.
pub const SMALL_BYTES: usize = 64 << 10;

/// How long a client may take to send a body that is read into memory.
const TIME_TO_SEND: Duration = Duration::from_secs(60);
const TIME_TO_SEND_TINY: Duration = Duration::from_secs(10);

/// All request bodies together take at most this much memory; further ones wait.
pub const BUDGET_BYTES: usize = 256 << 20;

static BUDGET: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(BUDGET_BYTES / UNIT)));

/// A share of the budget. Semaphores count in 32 bits.
const UNIT: usize = 1 << 10;

tokio::task_local! {
    /// What the bodies of the current request hold of the budget, until it is answered.
    static HELD: RefCell<Vec<OwnedSemaphorePermit>>;
}

/// Gives a request's share of the budget back when it has been answered.
pub async fn account(request: Request, next: Next) -> Response {
    HELD.scope(RefCell::default(), next.run(request)).await
}

/// JSON, in and out. As a request it may have [`SMALL_BYTES`].
pub struct Json<T>(pub T);

/// JSON of a client that need not have authenticated: at most [`TINY_BYTES`].
pub struct Tiny<T>(pub T);

/// JSON of at most `max_request_mb`.
pub struct Large<T>(pub T);

/// Text of at most `max_request_mb`.
pub struct Text(pub String);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let body = read_json(request, &Limit::fixed(SMALL_BYTES)).await?;
        parse(&body).map(Json)
    }
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Tiny<T> {
    type Rejection = Error;

    async fn from_request(request: Request, _: &S) -> Result<Self, Error> {
        let limit = Limit { is_accounted: false, time: TIME_TO_SEND_TINY, ..Limit::fixed(TINY_BYTES) };
        let body = read_json(request, &limit).await?;
        parse(&body).map(Tiny)
    }
}

impl<T: DeserializeOwned> FromRequest<App> for Large<T> {
    type Rejection = Error;

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        let body = read_json(request, &Limit::of_settings(app)).await?;
        parse(&body).map(Large)
    }
}

impl FromRequest<App> for Text {
    type Rejection = Error;

    async fn from_request(request: Request, app: &App) -> Result<Self, Error> {
        let body = read(request, &Limit::of_settings(app)).await?;
        let text = String::from_utf8(body.into())
            .map_err(|_| Error::Invalid("the request body is not UTF-8 text".into()))?;
        Ok(Text(text))
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        axum::Json(self.0).into_response()
    }
}

/// How much of a body is read into memory, and how long that may take.
pub struct Limit {
    pub bytes: usize,
    /// The setting that changes it.
    pub setting: Option<&'static str>,
    is_accounted: bool,
    time: Duration,
}

impl Limit {
    fn fixed(bytes: usize) -> Self {
        Limit { bytes, setting: None, is_accounted: true, time: TIME_TO_SEND }
    }

    pub fn of_settings(app: &App) -> Self {
        Limit { setting: Some("max_request_mb"), ..Limit::fixed(app.options.max_body_bytes) }
    }

    fn exceeded(&self) -> Error {
        let setting = self.setting.map(|name| format!("; the setting {name} changes it")).unwrap_or_default();
        Error::TooLarge(format!("the request body exceeds the limit of {} bytes{setting}", self.bytes))
    }
}

async fn read_json(request: Request, limit: &Limit) -> Result<Bytes, Error> {
    if !is_json(request.headers()) {
        return Err(Error::Protocol {
            status: StatusCode::UNSUPPORTED_MEDIA_TYPE,
            code: "unsupported_media_type",
            detail: "the body must be JSON, with Content-Type: application/json".into(),
        });
    }
    read(request, limit).await
}

/// Reads a whole body into memory. A body whose declared length is over the limit is refused unread.
pub async fn read(request: Request, limit: &Limit) -> Result<Bytes, Error> {
    let declared = declared_length(request.headers());
    if declared.is_some_and(|bytes| bytes > limit.bytes as u64) {
        return Err(limit.exceeded());
    }
    let reading = async {
        if limit.is_accounted {
            let bytes = declared.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(limit.bytes);
            reserve(bytes).await?;
        }
        collect(request.into_body(), limit).await
    };
    tokio::time::timeout(limit.time, reading).await.unwrap_or_else(|_| {
        Err(Error::Protocol {
            status: StatusCode::REQUEST_TIMEOUT,
            code: "body_timeout",
            detail: format!("the request body did not arrive within {} seconds", limit.time.as_secs()),
        })
    })
}

async fn collect(body: Body, limit: &Limit) -> Result<Bytes, Error> {
    axum::body::to_bytes(body, limit.bytes).await.map_err(|error| {
        let is_over =
            std::error::Error::source(&error).is_some_and(|it| it.is::<http_body_util::LengthLimitError>());
        if is_over {
            limit.exceeded()
        } else {
            Error::Invalid(format!("the request body broke off: {error}"))
        }
    })
}

async fn reserve(bytes: usize) -> Result<(), Error> {
    let units = u32::try_from(bytes.min(BUDGET_BYTES).div_ceil(UNIT)).unwrap_or(u32::MAX);
    let permit = BUDGET.clone().acquire_many_owned(units).await;
    let permit = permit.map_err(|error| Error::Internal(error.to_string()))?;
    // A body that is read outside of a request, as in a test, holds nothing.
    let _ = HELD.try_with(|held| held.borrow_mut().push(permit));
    Ok(())
}

pub fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok())
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    Ok(axum::Json::from_bytes(body)?.0)
}

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Query), rejection(Error))]
pub struct Query<T>(pub T);

#[derive(FromRequestParts)]
#[from_request(via(axum::extract::Path), rejection(Error))]
pub struct Path<T>(pub T);

impl From<JsonRejection> for Error {
    fn from(rejection: JsonRejection) -> Self {
        Error::Invalid(rejection.body_text())
    }
}

impl From<QueryRejection> for Error {
    fn from(rejection: QueryRejection) -> Self {
        Error::Invalid(rejection.body_text())
    }
}

impl From<PathRejection> for Error {
    fn from(_: PathRejection) -> Self {
        Error::NotFound("thing at this address")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request(declared: Option<usize>, body: Body) -> Request {
        let mut request = Request::builder().header(header::CONTENT_TYPE, "application/json");
        if let Some(bytes) = declared {
            request = request.header(header::CONTENT_LENGTH, bytes);
        }
        request.body(body).unwrap()
    }

    #[tokio::test]
    async fn a_body_over_the_limit_is_refused_and_the_error_names_the_limit() {
        let never = || Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let declared = request(Some(TINY_BYTES + 1), never());
        let undeclared = request(None, Body::from(vec![b' '; TINY_BYTES + 1]));

        for request in [declared, undeclared] {
            match Tiny::<serde_json::Value>::from_request(request, &()).await {
                Err(Error::TooLarge(detail)) => assert!(detail.contains("4096"), "{detail}"),
                _ => panic!("a body over the limit was read"),
            }
        }
    }

    /// Time jumps ahead whenever nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_given_up() {
        let never = Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());

        let refused = Json::<serde_json::Value>::from_request(request(Some(10), never), &()).await;

        assert!(matches!(refused, Err(Error::Protocol { code: "body_timeout", .. })));
    }

    #[tokio::test]
    async fn a_request_gives_its_share_of_the_memory_back_when_it_has_been_answered() {
        let before = BUDGET.available_permits();

        HELD.scope(RefCell::default(), async {
            reserve(10 * UNIT).await.unwrap();
            assert!(BUDGET.available_permits() <= before - 10);
        })
        .await;

        tokio::time::timeout(Duration::from_secs(60), async {
            while BUDGET.available_permits() < before {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
    }
}
