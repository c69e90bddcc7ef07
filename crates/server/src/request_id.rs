//! Every request has an id: the client's own, or a new one. It is in the answer, in errors and in the log.

use crate::html;
use crate::problem::Error;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use uuid::Uuid;

pub const HEADER: &str = "x-request-id";

tokio::task_local! {
    static CURRENT: String;
}

/// That of the request this task answers.
pub fn current() -> Option<String> {
    CURRENT.try_with(Clone::clone).ok()
}

pub async fn give(request: Request, next: Next) -> Response {
    let given = request.headers().get(HEADER).and_then(|id| id.to_str().ok()).filter(|id| is_plain(id));
    let id = given.map_or_else(|| Uuid::now_v7().to_string(), str::to_owned);
    let mut response = CURRENT.scope(id.clone(), next.run(request)).await;
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, id);
    }
    response
}

/// An answer to a request that no handler sees.
pub fn refusal(error: Error) -> Response {
    let id = Uuid::now_v7().to_string();
    let mut response = CURRENT.sync_scope(id.clone(), || error.into_response());
    html::protect(response.headers_mut());
    if let Ok(id) = HeaderValue::from_str(&id) {
        response.headers_mut().insert(HEADER, id);
    }
    response
}

/// Nothing that could be mistaken for something else in a log.
fn is_plain(id: &str) -> bool {
    (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}
