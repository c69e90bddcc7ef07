//! How far each quality of a stream is (document 001): derived from the plan and from the tasks that make it.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Path};
use crate::problem::Result;
use axum::extract::State;
use media::encoder::Codec;
use media::plan::Picture;
use rules::JobId;
use serde::{Deserialize, Serialize};
use store::detail::TaskView;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

#[derive(Debug, Serialize, Deserialize, ToSchema, PartialEq, Eq)]
pub struct Quality {
    /// Also the name of its folder: `720p`, or `720p-hevc` where there are several codecs.
    pub name: String,
    /// `pending`, `in_progress`, `completed`, `failed` or `skipped`.
    pub state: String,
    /// Pieces of picture that are done, of so many.
    pub done: usize,
    pub total: usize,
    /// Why it was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Its qualities, and how far each is
#[utoipa::path(get, path = "/api/jobs/{id}/qualities", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<Quality>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Vec<Quality>>> {
    app.store.job(id).await?;
    let plan = app.store.plan_of_job(id).await?;
    // A job that is not about a picture, or not planned yet, has none.
    let planned = plan.and_then(|plan| serde_json::from_str::<Planned>(&plan).ok());
    let Some(Planned { picture: Some(picture), settings }) = planned else { return Ok(Json(Vec::new())) };
    let tasks = app.store.tasks_of_job(id).await?;
    Ok(Json(derive(&picture, &settings.codecs, &tasks)))
}

/// What of a plan is of interest here.
#[derive(Deserialize)]
struct Planned {
    picture: Option<Picture>,
    settings: Chosen,
}

#[derive(Deserialize)]
struct Chosen {
    codecs: Vec<Codec>,
}

/// A task encodes one chunk in all rungs of a codec; those of the first codec come first.
fn derive(picture: &Picture, codecs: &[Codec], tasks: &[TaskView]) -> Vec<Quality> {
    let total = picture.chunks.len();
    let made = picture.rungs.iter().map(|rung| {
        let first = codecs.iter().position(|codec| *codec == rung.codec).unwrap_or(0) * total;
        let pieces: Vec<&TaskView> = tasks
            .iter()
            .filter(|task| task.stage == "encode")
            .filter(|task| usize::try_from(task.segment).is_ok_and(|at| (first..first + total).contains(&at)))
            .collect();
        // One that was begun twice is done once.
        let done = pieces.iter().filter(|task| task.state == "DONE").map(|task| task.segment);
        let done = done.collect::<std::collections::BTreeSet<_>>().len();
        let is_failed = pieces.iter().any(|task| task.state == "ERROR" && task.due_at.is_none());
        let has_begun = done > 0 || pieces.iter().any(|task| task.state == "RUNNING");
        let state = match () {
            () if done == total => "completed",
            () if is_failed => "failed",
            () if has_begun => "in_progress",
            () => "pending",
        };
        Quality { name: rung.name.clone(), state: state.into(), done, total, reason: None }
    });
    let skipped = picture.skipped.iter().map(|skipped| Quality {
        name: skipped.name.clone(),
        state: "skipped".into(),
        done: 0,
        total: 0,
        reason: Some(skipped.reason.clone()),
    });
    made.chain(skipped).collect()
}
