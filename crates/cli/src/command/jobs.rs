use crate::office::Office;
use crate::settings::Settings;
use crate::{Done, output};
use rules::JobId;
use rules::job::State;
use store::job::Filter;

/// List jobs, newest first
#[derive(clap::Args)]
pub struct Args {
    /// Only those in this state: pending, processing, completed, failed …
    #[arg(long)]
    state: Option<State>,
    /// Only those of this user
    #[arg(long)]
    user: Option<String>,
    /// Only those older than this job
    #[arg(long, value_name = "JOB")]
    before: Option<JobId>,
    /// How many, at most 1000
    #[arg(long, default_value_t = 50)]
    limit: i64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        let filter =
            Filter { user: self.user, state: self.state, before: self.before, limit: Some(self.limit) };
        let jobs = office.jobs(&filter).await?;
        let now = office.now().await?;
        let head = ["id", "name", "state", "priority", "tasks", "user", "age", "error"];
        output::listing(self.json, &jobs, head, |job| {
            [
                job.id.to_string(),
                output::short(&job.name, 32),
                job.state.to_string(),
                job.priority.to_string(),
                format!("{}/{}", job.done, job.tasks),
                job.user.clone(),
                output::ago(job.created_at, now),
                output::short(job.error.as_deref().unwrap_or_default(), 60),
            ]
        })?;
        Ok(Done::Yes)
    }
}
