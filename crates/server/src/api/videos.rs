//! Videos: listed, looked at, deleted and restored, made again, rolled back.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Path, Query};
use crate::ingest::Ingest;
use crate::page::{self, Page};
use crate::problem::{Error, Result};
use axum::extract::State;
use axum::http::StatusCode;
use media::settings::Settings;
use rules::{GenerationId, JobId, VideoId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use store::Store;
use store::caption::Caption;
use store::catalogue::{Entry, Filter, Generation};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::Rendition;
use wire::http::Problem;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show, delete))
        .routes(routes!(restore))
        .routes(routes!(retranscode))
        .routes(routes!(rollback))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Part of a title or slug.
    #[param(max_length = 200)]
    search: Option<String>,
    /// Only those in this state: `pending`, `processing`, `ready` or `failed`.
    state: Option<String>,
    /// Only those that are deleted and can still be restored.
    deleted: Option<bool>,
    /// How many. Default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only those older than this one: `next_before` of the page before.
    #[param(minimum = 1)]
    before: Option<i64>,
}

/// List videos, newest first
#[utoipa::path(get, path = "/api/videos", tag = "videos", params(ListQuery), security(("admin" = [])),
    responses((status = 200, body = Page<Entry>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(_: Admin, State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Json<Page<Entry>>> {
    let limit = page::limit(query.limit)?;
    let state = query.state.map(|state| state.parse()).transpose();
    let filter = Filter {
        search: query.search.map(|text| text.chars().take(200).collect()),
        state: state.map_err(|unknown: rules::Unknown| Error::Invalid(unknown.to_string()))?,
        deleted: query.deleted.unwrap_or(false),
        before: query.before.map(VideoId),
        limit: Some(limit),
    };
    let videos = app.store.videos(&filter).await?;
    Ok(Json(Page::new(videos, limit, |video| video.id.0)))
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct VideoDetail {
    #[serde(flatten)]
    pub video: Entry,
    /// Where it is played, once it can be.
    pub playlist: String,
    pub renditions: Vec<Rendition>,
    pub generations: Vec<Generation>,
    pub captions: Vec<Caption>,
}

impl VideoDetail {
    pub async fn of(store: &Store, video: Entry) -> store::Result<Self> {
        let renditions = match video.generation {
            Some(generation) => store.renditions(generation).await?,
            None => Vec::new(),
        };
        Ok(VideoDetail {
            playlist: format!("/videos/{}/master.m3u8", video.slug),
            renditions,
            generations: store.generations(video.id).await?,
            captions: store.captions(video.id).await?,
            video,
        })
    }
}

/// One video, its renditions and generations
#[utoipa::path(get, path = "/api/videos/{id}", tag = "videos", params(("id" = String, Path, description = "its number or its slug")),
    security(("admin" = [])), responses((status = 200, body = VideoDetail), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn show(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<VideoDetail>> {
    Ok(Json(VideoDetail::of(&app.store, find(&app, &id).await?).await?))
}

pub(crate) async fn find(app: &App, id: &str) -> Result<Entry> {
    Ok(called(&app.store, id).await?)
}

/// A video by its number or its slug.
pub async fn called(store: &Store, id: &str) -> store::Result<Entry> {
    match id.parse::<i64>() {
        Ok(number) if number > 0 => store.entry(VideoId(number)).await,
        _ => store.entry_called(id).await,
    }
}

/// Delete a video: it is hidden at once, its jobs are cancelled, and after a while it is removed for good
#[utoipa::path(delete, path = "/api/videos/{id}", tag = "videos", params(("id" = String, Path)), security(("admin" = [])),
    responses((status = 204), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn delete(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<StatusCode> {
    app.store.delete_video(find(&app, &id).await?.id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Take a deletion back
#[utoipa::path(post, path = "/api/videos/{id}/restore", tag = "videos", params(("id" = String, Path)), security(("admin" = [])),
    responses((status = 200, body = Entry), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn restore(_: Admin, State(app): State<App>, Path(id): Path<String>) -> Result<Json<Entry>> {
    let video = find(&app, &id).await?;
    app.store.restore_video(video.id).await?;
    Ok(Json(app.store.entry(video.id).await?))
}

#[derive(Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retranscode {
    /// Only these rungs are made again, `["720p", "480p"]`; the others are shown on as they are. Default: all.
    pub qualities: Option<Vec<String>>,
    /// Instead of what was asked for last.
    #[schema(value_type = Option<Object>)]
    pub settings: Option<Settings>,
    #[schema(minimum = 0, maximum = 10)]
    pub priority: Option<i64>,
    /// Also remove the captions that somebody attached.
    pub delete_transcription: bool,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Begun {
    pub job: i64,
}

/// Make it again; what is there plays until the new generation is complete
#[utoipa::path(post, path = "/api/videos/{id}/retranscode", tag = "videos", params(("id" = String, Path)), security(("admin" = [])),
    request_body = Retranscode, responses((status = 202, body = Begun), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn retranscode(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    Json(asked): Json<Retranscode>,
) -> Result<(StatusCode, Json<Begun>)> {
    let job = again(&app.store, &app.ingest, &find(&app, &id).await?, asked).await?;
    Ok((StatusCode::ACCEPTED, Json(Begun { job: job.0 })))
}

/// A new generation, with what was asked for last unless something else is asked for now.
pub async fn again(store: &Store, ingest: &Ingest, video: &Entry, asked: Retranscode) -> Result<JobId> {
    let last = video.settings.as_deref().map(serde_json::from_str).transpose();
    let last =
        last.map_err(|error| Error::Internal(format!("the settings of video {}: {error}", video.id)))?;
    let new = asked.settings.as_ref().map(serde_json::to_string).transpose();
    let new = new.map_err(|error| Error::Internal(format!("the settings of video {}: {error}", video.id)))?;
    let mut settings: Settings = asked.settings.or(last).unwrap_or_default();
    let mut carry = None;
    if let Some(qualities) = &asked.qualities {
        choose(&mut settings, qualities)?;
        carry = shown(store, ingest, video).await?;
    }
    let job = ingest.again(video, settings, asked.priority, carry).await?;
    // Some rungs are a wish for once; what is asked for from now on has all of them.
    if let Some(settings) = new {
        store.set_video_settings(video.id, &settings).await?;
    }
    if asked.delete_transcription {
        for caption in store.captions(video.id).await? {
            store.delete_caption(video.id, &caption.language).await?;
        }
    }
    Ok(job)
}

/// The folder of what is shown now, from which the other rungs are taken over.
async fn shown(store: &Store, ingest: &Ingest, video: &Entry) -> Result<Option<PathBuf>> {
    let Some(id) = video.generation else { return Ok(None) };
    let generation = store.generation(id).await?;
    let name = generation.manifest["generation"].as_str().unwrap_or_default();
    ingest.carried(video.id, name).await.map(Some)
}

fn choose(settings: &mut Settings, qualities: &[String]) -> Result<()> {
    let known: Vec<String> = settings.rungs.iter().map(|rung| rung.name.clone()).collect();
    if let Some(unknown) = qualities.iter().find(|name| !known.contains(name)) {
        let what = format!("there is no quality `{unknown}`; there are {}", known.join(", "));
        return Err(Error::unprocessable("unknown_quality", what));
    }
    settings.rungs.retain(|rung| qualities.contains(&rung.name));
    Ok(())
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Rollback {
    /// One of its `generations`.
    generation: i64,
}

/// Show an older generation again
#[utoipa::path(post, path = "/api/videos/{id}/rollback", tag = "videos", params(("id" = String, Path)), security(("admin" = [])),
    request_body = Rollback, responses((status = 200, body = Entry), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn rollback(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<String>,
    Json(asked): Json<Rollback>,
) -> Result<Json<Entry>> {
    let video = find(&app, &id).await?;
    app.store.rollback_video(video.id, GenerationId(asked.generation)).await?;
    Ok(Json(app.store.entry(video.id).await?))
}
