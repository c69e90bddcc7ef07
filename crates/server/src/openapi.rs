//! The API described for programs and for people: generated from the handlers themselves.

use crate::app::App;
use crate::html::{Policy, Static};
use axum::Router;
use axum::http::{HeaderMap, header};
use axum::response::Html;
use axum::routing::get;
use std::sync::LazyLock;
use utoipa::OpenApi;
use utoipa::openapi::OpenApi as Document;
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};

#[derive(OpenApi)]
#[openapi(
    info(title = "Vodmill", description = "Crash-safe video transcoding. Errors are problem+json with a stable `code`."),
    modifiers(&Secrets),
    components(schemas(wire::http::Problem, crate::api::tus::Version)),
    // Those whose paths have slashes in a part, or that have a layer of their own.
    paths(
        crate::api::tus::abilities, crate::api::tus::create, crate::api::tus::look, crate::api::tus::append,
        crate::api::tus::terminate, crate::worker::source::source, crate::worker::outputs::bring,
        crate::worker::outputs::look, crate::worker::archive::unpack, crate::playback::index, crate::playback::file
    )
)]
pub struct Api;

struct Secrets;

impl utoipa::Modify for Secrets {
    fn modify(&self, document: &mut Document) {
        let components = document.components.get_or_insert_default();
        let admin = ApiKey::Header(ApiKeyValue::new("X-Admin-Secret"));
        components.add_security_scheme("admin", SecurityScheme::ApiKey(admin));
        let key = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("worker", SecurityScheme::Http(key));
    }
}

/// A page that reads the document and needs nothing else.
const PAGE: &str = include_str!("openapi/page.html");

static POLICY: LazyLock<String> = LazyLock::new(|| Policy::of(PAGE).header("", "'none'"));

pub fn routes(document: Document) -> Router<App> {
    let document = Static::new("application/json", "no-cache", document.to_json().unwrap_or_default());
    let policy = || [(header::CONTENT_SECURITY_POLICY, POLICY.as_str())];
    Router::new()
        .route("/api/openapi.json", get(move |headers: HeaderMap| async move { document.answer(&headers) }))
        .route("/api/docs", get(move || async move { (policy(), Html(PAGE)) }))
}
