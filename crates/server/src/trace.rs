//! Requests as spans of a trace: those that come with one, such as a worker's about its work, and those that change
//! something, which may begin one.

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use telemetry::trace::{HEADER, TARGET, adopt, is_on};
use tracing::{Instrument, Span, field, info_span};

pub async fn follow(route: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let route = route.as_ref().map_or("none", MatchedPath::as_str);
    let context = request.headers().get(HEADER).and_then(|context| context.to_str().ok());
    if !is_on() || (context.is_none() && !begins_a_trace(&request, route)) {
        return next.run(request).await;
    }
    let span = span(&request, route);
    adopt(&span, context);
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    if response.status().is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    response
}

/// Workers ask for work all day long; what they say of their work comes with its trace.
fn begins_a_trace(request: &Request, route: &str) -> bool {
    !request.method().is_safe() && !route.starts_with("/api/worker/")
}

fn span(request: &Request, route: &str) -> Span {
    info_span!(
        target: TARGET,
        "request",
        otel.name = format!("{} {route}", request.method()),
        otel.kind = "server",
        otel.status_code = field::Empty,
        http.request.method = %request.method(),
        http.route = route,
        http.response.status_code = field::Empty,
        request.id = crate::request_id::current(),
    )
}
