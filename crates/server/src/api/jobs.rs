//! Jobs: submitted, listed, looked at from all sides, cancelled, tried again.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Large, Path, Query};
use crate::inventory;
use crate::page::{self, Page};
use crate::problem::{Error, Result};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use rules::JobId;
use rules::spec::Spec;
use serde::{Deserialize, Serialize};
use store::Store;
use store::detail::{AuditView, ExecutionView, LogView, StageView, StepView, TaskView};
use store::job::{Filter, Job};
use store::log::{self, Level};
use store::submit::{NewJob, Submitted};
use store::why::Why;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::Problem;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, submit))
        .routes(routes!(show))
        .routes(routes!(tasks))
        .routes(routes!(executions))
        .routes(routes!(steps))
        .routes(routes!(logs))
        .routes(routes!(audit))
        .routes(routes!(why))
        .routes(routes!(cancel))
        .routes(routes!(retry))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only those of this user.
    user: Option<String>,
    /// Only those in this state: `pending`, `processing`, `failed` …
    state: Option<String>,
    /// How many. Default 50.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<i64>,
    /// Only those older than this one: `next_before` of the page before.
    #[param(minimum = 1)]
    before: Option<i64>,
}

/// List jobs, newest first
#[utoipa::path(get, path = "/api/jobs", tag = "jobs", params(ListQuery), security(("admin" = [])),
    responses((status = 200, body = Page<Job>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(_: Admin, State(app): State<App>, Query(query): Query<ListQuery>) -> Result<Json<Page<Job>>> {
    let limit = page::limit(query.limit)?;
    let state = query.state.map(|state| state.parse()).transpose();
    let filter = Filter {
        user: query.user,
        state: state.map_err(|unknown: rules::Unknown| Error::Invalid(unknown.to_string()))?,
        before: query.before.map(JobId),
        limit: Some(limit),
    };
    let jobs = app.store.jobs(&filter).await?;
    Ok(Json(Page::new(jobs, limit, |job| job.id.0)))
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct SubmittedJob {
    pub id: i64,
    /// The `Idempotency-Key` was known: nothing was added.
    pub is_existing: bool,
}

/// Submit a job of one's own stages
///
/// With the header `Idempotency-Key`, the same job sent again is the same job. Stages may be of the kinds that the server's
/// `api_job_kinds` lists, and effects append to plain file names in its `api_effects_folder`; without that, they are
/// refused.
#[utoipa::path(post, path = "/api/jobs", tag = "jobs", request_body(content = Object, description = "A job: see examples/ in the repository"),
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters")), security(("admin" = [])),
    responses((status = 201, body = SubmittedJob), (status = 200, body = SubmittedJob), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn submit(
    _: Admin,
    State(app): State<App>,
    headers: HeaderMap,
    Large(spec): Large<Spec>,
) -> Result<(StatusCode, Json<SubmittedJob>)> {
    let most = app.options.max_job_tasks;
    let tasks = spec.stages.iter().filter_map(rules::spec::Stage::known_tasks).map(u64::from).sum::<u64>();
    if tasks > most.into() {
        return Err(Error::unprocessable(
            "too_many_tasks",
            format!(
                "the job has {tasks} tasks, and one that is submitted over HTTP may have {most} (max_job_tasks)"
            ),
        ));
    }
    let key = headers.get("idempotency-key").map(|key| key.to_str().map(str::to_owned));
    let key = key.transpose().map_err(|_| Error::Invalid("the Idempotency-Key must be ASCII".into()))?;
    let spec = app.options.jobs.admit(spec)?;
    let spec = Spec { max_tasks: Some(spec.max_tasks.map_or(most, |own| own.min(most))), ..spec };
    let job = NewJob { spec, video: None, idempotency_key: key };
    Ok(match app.store.submit(&job).await? {
        Submitted::New(id) => (StatusCode::CREATED, Json(SubmittedJob { id: id.0, is_existing: false })),
        Submitted::Existing(id) => (StatusCode::OK, Json(SubmittedJob { id: id.0, is_existing: true })),
    })
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct JobDetail {
    #[serde(flatten)]
    pub job: Job,
    pub stages: Vec<StageView>,
}

impl JobDetail {
    pub async fn of(store: &Store, id: JobId) -> store::Result<Self> {
        let job = store.job(id).await?;
        // An archived job has no stages any more.
        let stages = store.stages_of_job(id).await.unwrap_or_default();
        Ok(JobDetail { job, stages })
    }
}

/// One job, and how far its stages are
#[utoipa::path(get, path = "/api/jobs/{id}", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = JobDetail), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn show(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<JobDetail>> {
    Ok(Json(JobDetail::of(&app.store, id).await?))
}

/// Its tasks
#[utoipa::path(get, path = "/api/jobs/{id}/tasks", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<TaskView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn tasks(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Vec<TaskView>>> {
    app.store.job(id).await?;
    Ok(Json(app.store.tasks_of_job(id).await?))
}

/// Its executions: every attempt, with worker, outcome and cost
#[utoipa::path(get, path = "/api/jobs/{id}/executions", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<ExecutionView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn executions(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<JobId>,
) -> Result<Json<Vec<ExecutionView>>> {
    app.store.job(id).await?;
    Ok(Json(app.store.executions_of_job(id).await?))
}

/// The commands its executions ran
#[utoipa::path(get, path = "/api/jobs/{id}/steps", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<StepView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn steps(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Vec<StepView>>> {
    app.store.job(id).await?;
    Ok(Json(app.store.steps_of_job(id).await?))
}

/// Every move of its tasks, and who made it
#[utoipa::path(get, path = "/api/jobs/{id}/audit", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<AuditView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn audit(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Vec<AuditView>>> {
    app.store.job(id).await?;
    Ok(Json(app.store.audit_of_job(id).await?))
}

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LogsQuery {
    /// Only lines after this one: the last `id` seen.
    #[param(minimum = 0)]
    after: Option<i64>,
    /// Only lines before which none can appear any more: so a log is followed without missing one. Some may be held back for
    /// a moment.
    settled: Option<bool>,
    /// Only lines that are at least so grave: `debug`, `info`, `warn`, `error`.
    #[param(inline)]
    level: Option<Level>,
    /// Only lines of this stage: `encode`, `publish` …
    stage: Option<String>,
}

/// Its log, oldest first; to follow it, ask for what is `settled`, and again with the last `id` seen
#[utoipa::path(get, path = "/api/jobs/{id}/logs", tag = "jobs", params(("id" = i64, Path), LogsQuery), security(("admin" = [])),
    responses((status = 200, body = Vec<LogView>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn logs(
    _: Admin,
    State(app): State<App>,
    Path(id): Path<JobId>,
    Query(query): Query<LogsQuery>,
) -> Result<Json<Vec<LogView>>> {
    app.store.job(id).await?;
    let LogsQuery { after, settled, level, stage } = query;
    let (after, is_settled) = (after.unwrap_or(0), settled.unwrap_or(false));
    let filter = log::Filter { after, is_settled, level: level.unwrap_or_default(), stage };
    Ok(Json(app.store.logs_of_job(id, &filter).await?))
}

/// Why it waits, or why it failed, in sentences
#[utoipa::path(get, path = "/api/jobs/{id}/why", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Why), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn why(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Why>> {
    Ok(Json(app.store.why(id).await?))
}

/// Stop it; what runs is stopped too
#[utoipa::path(post, path = "/api/jobs/{id}/cancel", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Job), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn cancel(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Job>> {
    app.store.cancel(id, None).await?;
    Ok(Json(app.store.job(id).await?))
}

/// Try a failed job again; what was done stays done. If files of it are gone, another job makes all of it, and is returned
#[utoipa::path(post, path = "/api/jobs/{id}/retry", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Job), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn retry(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Job>> {
    let goes_on = inventory::retry(&app.store, &app.data, id, Some(&app.options.jobs)).await?;
    Ok(Json(app.store.job(goes_on).await?))
}
