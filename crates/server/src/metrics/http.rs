//! How long requests take, by the route that answers them.

use axum::extract::{MatchedPath, Request};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use std::time::Instant;
use telemetry::metrics::HTTP_DURATION;

pub async fn measure(route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let (begun, method) = (Instant::now(), known(request.method()));
    let response = next.run(request).await;
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let status = response.status();
    HTTP_DURATION.observe([method, route, status.as_str()], begun.elapsed().as_secs_f64());
    response
}

/// A client may make up methods.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
