//! Jobs, asked for in one way.

use super::server::with_json;
use super::{Office, Result};
use ::server::Page;
use ::server::api::jobs::{JobDetail, SubmittedJob};
use ::server::api::qualities::{self, Quality};
use reqwest::Method;
use rules::JobId;
use serde::de::DeserializeOwned;
use serde_json::json;
use store::detail::{AuditView, ExecutionView, LogView, StepView, TaskView};
use store::job::{Filter, Job};
use store::log;
use store::submit::{NewJob, Submitted};
use store::why::Why;

/// A listing below one job: by the store's method, or from the place of that name. Of an unknown job, both say so.
macro_rules! listing {
    ($name:ident, $method:ident, $view:ty) => {
        pub async fn $name(&self, job: JobId) -> Result<Vec<$view>> {
            match self {
                Office::Database(here) => {
                    here.store.job(job).await?;
                    Ok(here.store.$method(job).await?)
                }
                Office::Server(_) => self.below(job, stringify!($name)).await,
            }
        }
    };
}

impl Office {
    pub async fn jobs(&self, filter: &Filter) -> Result<Vec<Job>> {
        let there = match self {
            Office::Database(here) => return Ok(here.store.jobs(filter).await?),
            Office::Server(there) => there,
        };
        let query = [
            ("user", filter.user.clone()),
            ("state", filter.state.map(|state| state.to_string())),
            ("before", filter.before.map(|job| job.to_string())),
            ("limit", filter.limit.map(|limit| limit.clamp(1, 1000).to_string())),
        ];
        Ok(there.get::<Page<Job>>(["jobs"], &query).await?.items)
    }

    /// One job, and how far its stages are.
    pub async fn job(&self, job: JobId) -> Result<JobDetail> {
        match self {
            Office::Database(here) => Ok(JobDetail::of(&here.store, job).await?),
            Office::Server(there) => Ok(there.get(["jobs", &job.to_string()], &[]).await?),
        }
    }

    listing!(tasks, tasks_of_job, TaskView);
    listing!(executions, executions_of_job, ExecutionView);
    listing!(steps, steps_of_job, StepView);
    listing!(audit, audit_of_job, AuditView);

    /// How far each quality of its stream is.
    pub async fn qualities(&self, job: JobId) -> Result<Vec<Quality>> {
        match self {
            Office::Database(here) => Ok(qualities::of_job(&here.store, job).await?),
            Office::Server(_) => self.below(job, "qualities").await,
        }
    }

    /// Lines of its log, oldest first.
    pub async fn logs(&self, job: JobId, filter: &log::Filter) -> Result<Vec<LogView>> {
        match self {
            Office::Database(here) => {
                here.store.job(job).await?;
                Ok(here.store.logs_of_job(job, filter).await?)
            }
            Office::Server(there) => {
                let query = [
                    ("after", Some(filter.after.to_string())),
                    ("settled", Some(filter.is_settled.to_string())),
                    ("level", Some(filter.level.as_str().into())),
                    ("stage", filter.stage.clone()),
                ];
                Ok(there.get(["jobs", &job.to_string(), "logs"], &query).await?)
            }
        }
    }

    pub async fn why(&self, job: JobId) -> Result<Why> {
        match self {
            Office::Database(here) => Ok(here.store.why(job).await?),
            Office::Server(_) => self.below(job, "why").await,
        }
    }

    pub async fn cancel(&self, job: JobId) -> Result<Job> {
        match self {
            Office::Database(here) => {
                here.store.cancel(job, None).await?;
                here.tell().await;
                Ok(here.store.job(job).await?)
            }
            Office::Server(there) => Ok(there.post(["jobs", &job.to_string(), "cancel"], &json!({})).await?),
        }
    }

    pub async fn retry(&self, job: JobId) -> Result<Job> {
        match self {
            Office::Database(here) => {
                let goes_on = here.retry(job).await?;
                here.tell().await;
                Ok(here.store.job(goes_on).await?)
            }
            Office::Server(there) => Ok(there.post(["jobs", &job.to_string(), "retry"], &json!({})).await?),
        }
    }

    pub async fn submit(&self, new: &NewJob) -> Result<Submitted> {
        let there = match self {
            Office::Database(here) => {
                let submitted = here.store.submit(new).await?;
                here.tell().await;
                return Ok(submitted);
            }
            Office::Server(there) => there,
        };
        let mut request = with_json(there.request(Method::POST, ["jobs"]), &new.spec)?;
        if let Some(key) = &new.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let submitted: SubmittedJob = there.ask(request).await?;
        let id = JobId(submitted.id);
        Ok(if submitted.is_existing { Submitted::Existing(id) } else { Submitted::New(id) })
    }

    async fn below<T: DeserializeOwned>(&self, job: JobId, what: &str) -> Result<T> {
        let Office::Server(there) = self else { unreachable!("asked only of a server") };
        Ok(there.get(["jobs", &job.to_string(), what], &[]).await?)
    }
}
