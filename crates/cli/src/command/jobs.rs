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
        let store = settings.open_existing().await?;
        let filter =
            Filter { user: self.user, state: self.state, before: self.before, limit: Some(self.limit) };
        let jobs = store.jobs(&filter).await?;
        if self.json {
            output::json(&jobs)?;
            return Ok(Done::Yes);
        }
        let now = store.now().await?.0;
        let rows: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                [
                    job.id.to_string(),
                    output::short(&job.name, 32),
                    job.state.to_string(),
                    job.priority.to_string(),
                    format!("{}/{}", job.done, job.tasks),
                    job.user,
                    output::ago(job.created_at, now),
                    job.error.map(|error| output::short(&error, 60)).unwrap_or_default(),
                ]
            })
            .collect();
        output::table(["id", "name", "state", "priority", "tasks", "user", "age", "error"], &rows);
        Ok(Done::Yes)
    }
}
