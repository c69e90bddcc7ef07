//! How far each quality of a stream is (document 001): derived from the plan and from the tasks that make it.

use crate::app::App;
use crate::auth::Admin;
use crate::body::{Json, Path};
use crate::problem::Result;
use axum::extract::State;
use media::encoder::Codec;
use media::ladder::Rung;
use media::plan::{Group, Picture};
use rules::JobId;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use store::Store;
use store::detail::Run;
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
    pub done: i64,
    pub total: i64,
    /// With what is running now; 100 only when all is done.
    #[serde(default)]
    pub percent: i64,
    /// The stream is shown without it where it fails.
    #[serde(default)]
    pub is_optional: bool,
    /// Why it was skipped, or has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Its qualities, and how far each is
#[utoipa::path(get, path = "/api/jobs/{id}/qualities", tag = "jobs", params(("id" = i64, Path)), security(("admin" = [])),
    responses((status = 200, body = Vec<Quality>), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn list(_: Admin, State(app): State<App>, Path(id): Path<JobId>) -> Result<Json<Vec<Quality>>> {
    Ok(Json(of_job(&app.store, id).await?))
}

/// None of a job that is not about a picture, or not planned yet.
pub async fn of_job(store: &Store, id: JobId) -> store::Result<Vec<Quality>> {
    store.job(id).await?;
    Ok(of_jobs(store, &[id]).await?.remove(&id).unwrap_or_default())
}

/// A job that is not about a picture, or not planned yet, is left out.
pub(crate) async fn of_jobs(store: &Store, jobs: &[JobId]) -> store::Result<HashMap<JobId, Vec<Quality>>> {
    let plans: Vec<(JobId, Planned)> = store.plans_of(jobs).await?.into_iter().filter_map(planned).collect();
    let chunks = |(job, plan): &(JobId, Planned)| (*job, plan.picture.chunks.len() as i64);
    let runs = Runs {
        all: store.runs_of(PICTURES[0], &plans.iter().map(chunks).collect::<Vec<_>>()).await?,
        optional: match plans.iter().filter(|(_, plan)| plan.has_optional()).map(chunks).collect::<Vec<_>>() {
            none if none.is_empty() => Vec::new(),
            some => store.runs_of(PICTURES[1], &some).await?,
        },
    };
    Ok(plans.into_iter().map(|(job, plan)| (job, derive(&plan, job, &runs))).collect())
}

/// The stages that make pieces of picture: of what must be made, and of what is optional.
pub(crate) const PICTURES: [&str; 2] = ["encode", "encode_optional"];

/// How far those stages are.
struct Runs {
    /// A task encodes one chunk in the rungs of a group; those of the first group are the first run.
    all: Vec<Run>,
    /// A task encodes one chunk in one rung; those of the first such rung are the first run.
    optional: Vec<Run>,
}

/// What of a plan is of interest here.
#[derive(Deserialize)]
struct Planned {
    picture: Picture,
    settings: Chosen,
}

#[derive(Deserialize)]
struct Chosen {
    codecs: Vec<Codec>,
}

impl Planned {
    fn has_optional(&self) -> bool {
        self.picture.optional_rungs().next().is_some()
    }

    fn run_of<'a>(&self, rung: &Rung, job: JobId, runs: &'a Runs) -> Option<&'a Run> {
        let (runs, number) = if rung.optional {
            let at = self.picture.optional_rungs().position(|other| other.name == rung.name);
            (&runs.optional, at)
        } else {
            let makes = |group: &Group| self.picture.rungs_of_group(group).any(|made| made.name == rung.name);
            (&runs.all, self.picture.groups(&self.settings.codecs).iter().position(makes))
        };
        let number = number.unwrap_or(0) as i64;
        runs.iter().find(|run| run.job == job && run.number == number)
    }
}

fn planned((job, plan): (JobId, String)) -> Option<(JobId, Planned)> {
    Some((job, serde_json::from_str(&plan).ok()?))
}

fn derive(plan: &Planned, job: JobId, runs: &Runs) -> Vec<Quality> {
    let total = plan.picture.chunks.len() as i64;
    let made = plan.picture.rungs.iter().map(|rung| {
        let run = plan.run_of(rung, job, runs);
        let done = run.map_or(0, |run| run.done);
        let state = match run {
            Some(_) if done == total => "completed",
            Some(run) if run.has_failed => "failed",
            Some(run) if run.is_running || done > 0 => "in_progress",
            _ => "pending",
        };
        Quality {
            name: rung.name.to_string(),
            state: state.into(),
            done,
            total,
            percent: percent(run, total),
            is_optional: rung.optional,
            reason: run.filter(|_| state == "failed").and_then(|run| run.error.clone()),
        }
    });
    let skipped = plan.picture.skipped.iter().map(|skipped| Quality {
        name: skipped.name.clone(),
        state: "skipped".into(),
        done: 0,
        total: 0,
        percent: 0,
        is_optional: false,
        reason: Some(skipped.reason.clone()),
    });
    made.chain(skipped).collect()
}

/// A piece that two workers make at once counts twice while it runs: what is not done is never shown as done.
fn percent(run: Option<&Run>, total: i64) -> i64 {
    match run {
        Some(run) if run.done >= total => 100,
        Some(run) => ((run.done * 1000 + run.running_permille) / (total.max(1) * 10)).min(99),
        None => 0,
    }
}
