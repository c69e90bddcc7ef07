//! Players and pages of other sites may ask for anything: a browser lets them read no answer to a request that had the
//! cookie of somebody signed in.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

const HEADERS: [(HeaderName, &str); 2] =
    [(header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"), (header::ACCESS_CONTROL_EXPOSE_HEADERS, "*")];

const PREFLIGHT: [(HeaderName, &str); 3] = [
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
    // A wildcard does not cover Authorization.
    (header::ACCESS_CONTROL_ALLOW_HEADERS, "*, Authorization"),
    (header::ACCESS_CONTROL_MAX_AGE, "86400"),
];

/// A browser's question whether it may ask is answered here; other OPTIONS have meanings of their own, as in tus.
pub async fn open(request: Request, next: Next) -> Response {
    let is_question = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = if is_question {
        StatusCode::NO_CONTENT.into_response()
    } else {
        next.run(request).await
    };
    say(response.headers_mut(), &HEADERS);
    if is_question {
        say(response.headers_mut(), &PREFLIGHT);
    }
    response
}

fn say(headers: &mut HeaderMap, said: &[(HeaderName, &'static str)]) {
    for (name, value) in said {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
