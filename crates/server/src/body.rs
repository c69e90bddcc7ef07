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
use futures_util::StreamExt;
use rules::WorkerId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
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

/// The bodies of one worker take at most this much of the budget, or one body of its full size; its further ones wait.
const SHARE_BYTES: usize = BUDGET_BYTES / 8;

type Shares = Mutex<HashMap<WorkerId, Weak<Semaphore>>>;

static SHARES: LazyLock<Shares> = LazyLock::new(Shares::default);

/// The worker whose body this is, as an extension of its request.
#[derive(Debug, Clone, Copy)]
pub struct Sender(pub WorkerId);

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
    let account = limit.is_accounted.then(|| Account::of(&request, limit));
    let reading = collect(request.into_body(), limit, account);
    tokio::time::timeout(limit.time, reading).await.unwrap_or_else(|_| {
        Err(Error::Protocol {
            status: StatusCode::REQUEST_TIMEOUT,
            code: "body_timeout",
            detail: format!("the request body did not arrive within {} seconds", limit.time.as_secs()),
        })
    })
}

/// Memory is reserved for what has come, so that a body that does not come holds none.
async fn collect(body: Body, limit: &Limit, account: Option<Account>) -> Result<Bytes, Error> {
    let (mut collected, mut blocks) = (Vec::new(), body.into_data_stream());
    while let Some(block) = blocks.next().await {
        let block = block.map_err(|error| Error::Invalid(format!("the request body broke off: {error}")))?;
        if collected.len() + block.len() > limit.bytes {
            return Err(limit.exceeded());
        }
        let units = |bytes: usize| bytes.div_ceil(UNIT);
        let before = units(collected.len());
        collected.extend_from_slice(&block);
        if let Some(account) = &account {
            account.reserve(units(collected.len()) - before).await?;
        }
    }
    Ok(collected.into())
}

/// Where the memory for a body is taken from.
struct Account {
    /// Of a worker's bodies.
    share: Option<Arc<Semaphore>>,
}

impl Account {
    fn of(request: &Request, limit: &Limit) -> Self {
        let sender = request.extensions().get::<Sender>();
        Account { share: sender.map(|Sender(worker)| share_of(*worker, limit)) }
    }

    /// A worker's own share first, so that it holds nothing that others wait for while it waits for itself.
    async fn reserve(&self, units: usize) -> Result<(), Error> {
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        for semaphore in self.share.iter().chain([&*BUDGET]) {
            let permit = semaphore.clone().acquire_many_owned(units).await;
            let permit = permit.map_err(|error| Error::Internal(error.to_string()))?;
            // A body that is read outside of a request, as in a test, holds nothing.
            let _ = HELD.try_with(|held| hold(&mut held.borrow_mut(), permit));
        }
        Ok(())
    }
}

/// As one permit for each semaphore, however many blocks a body has.
fn hold(held: &mut Vec<OwnedSemaphorePermit>, permit: OwnedSemaphorePermit) {
    match held.iter_mut().find(|one| Arc::ptr_eq(one.semaphore(), permit.semaphore())) {
        Some(one) => one.merge(permit),
        None => held.push(permit),
    }
}

fn share_of(worker: WorkerId, limit: &Limit) -> Arc<Semaphore> {
    let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(share) = shares.get(&worker).and_then(Weak::upgrade) {
        return share;
    }
    shares.retain(|_, share| share.strong_count() > 0);
    let units = SHARE_BYTES.max(limit.bytes).min(BUDGET_BYTES).div_ceil(UNIT);
    let share = Arc::new(Semaphore::new(units));
    shares.insert(worker, Arc::downgrade(&share));
    share
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
            Account { share: None }.reserve(10).await.unwrap();
            let held: usize =
                HELD.with(|held| held.borrow().iter().map(OwnedSemaphorePermit::num_permits).sum());
            assert_eq!(held, 10);
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

    #[tokio::test]
    async fn a_body_that_does_not_come_holds_no_memory() {
        let never = || Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>());
        let before = BUDGET.available_permits();
        let limit = Limit::fixed(BUDGET_BYTES);

        let reading = (0..64).map(|_| {
            let request = request(None, never());
            let limit = &limit;
            Box::pin(HELD.scope(RefCell::default(), async move { read(request, limit).await }))
        });
        let mut reading: Vec<_> = reading.collect();
        for one in &mut reading {
            assert!(futures_util::poll!(one).is_pending());
        }

        // Other tests reserve a few units.
        assert!(BUDGET.available_permits() + BUDGET_BYTES / UNIT / 2 > before);
    }

    #[tokio::test]
    async fn the_bodies_of_one_worker_wait_for_each_other_and_not_for_those_of_others() {
        let (greedy, other) = (WorkerId(uuid::Uuid::new_v4()), WorkerId(uuid::Uuid::new_v4()));
        let limit = Limit::fixed(4 << 20);
        let account = |worker| Account { share: Some(share_of(worker, &limit)) };
        let shares = [account(greedy), account(greedy), account(other)];

        // What other tests wait for is left alone.
        let all = u32::try_from(SHARE_BYTES / UNIT).unwrap();
        let held = shares[0].share.clone().unwrap().acquire_many_owned(all).await.unwrap();
        assert!(futures_util::poll!(Box::pin(shares[1].reserve(1))).is_pending());
        shares[2].reserve(1).await.unwrap();

        drop(held);
        shares[1].reserve(1).await.unwrap();
        drop(shares);
        assert_eq!(share_of(greedy, &limit).available_permits(), SHARE_BYTES / UNIT);
    }
}
