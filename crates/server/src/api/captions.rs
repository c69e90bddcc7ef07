//! Captions a person attaches: they belong to the video and outlive its generations.

use super::videos::find;
use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Path, Query, Text};
use crate::problem::{Error, Result};
use axum::extract::State;
use axum::http::StatusCode;
use serde::Deserialize;
use store::caption::Caption;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

/// Hours of talk.
const MAX_BYTES: usize = 2 << 20;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(attach, remove))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct CaptionQuery {
    /// For people. Default: the language.
    #[param(max_length = 100)]
    label: Option<String>,
}

/// Attach captions in WebVTT, or replace those of the same language
#[utoipa::path(put, path = "/api/videos/{id}/captions/{language}", tag = "videos", security(("admin" = [])),
    params(("id" = String, Path), ("language" = String, Path, description = "a BCP 47 tag, such as `en`"), CaptionQuery),
    request_body(content = String, content_type = "text/vtt"), responses((status = 200, body = Vec<Caption>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn attach(
    _: Admin,
    State(app): State<App>,
    Path((id, language)): Path<(String, String)>,
    Query(query): Query<CaptionQuery>,
    Text(text): Text,
) -> Result<Json<Vec<Caption>>> {
    if !is_language(&language) {
        return Err(Error::unprocessable(
            "bad_language",
            format!("`{language}` is no BCP 47 tag, such as `en` or `pt-BR`"),
        ));
    }
    if text.len() > MAX_BYTES {
        return Err(Error::TooLarge(format!("captions may be {MAX_BYTES} bytes long")));
    }
    if !text.trim_start_matches('\u{feff}').starts_with("WEBVTT") {
        return Err(Error::unprocessable(
            "not_webvtt",
            "captions must be WebVTT: the first line begins with WEBVTT",
        ));
    }
    let video = find(&app, &id).await?;
    let label: String = query
        .label
        .unwrap_or_else(|| language.clone())
        .chars()
        .filter(|c| !c.is_control() && *c != '"')
        .take(100)
        .collect();
    app.store.set_caption(video.id, &language, &label, &text).await?;
    Ok(Json(app.store.captions(video.id).await?))
}

/// Remove captions
#[utoipa::path(delete, path = "/api/videos/{id}/captions/{language}", tag = "videos", security(("admin" = [])),
    params(("id" = String, Path), ("language" = String, Path)), responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn remove(
    _: Admin,
    State(app): State<App>,
    Path((id, language)): Path<(String, String)>,
) -> Result<StatusCode> {
    app.store.delete_caption(find(&app, &id).await?.id, &language).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn is_language(tag: &str) -> bool {
    let part =
        |part: &str| (1..=8).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_alphanumeric());
    tag.len() <= 35
        && tag.split('-').all(part)
        && tag.split('-').next().is_some_and(|first| (2..=3).contains(&first.len()))
}
