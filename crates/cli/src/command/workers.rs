use crate::settings::Settings;
use crate::{Done, output};
use rules::WorkerId;
use rules::worker::Command as Told;

/// List workers, or tell one what to do
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Also those that are offline
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Finish what it has and take nothing new
    Drain { worker: WorkerId },
    /// Take nothing new, until enabled again
    Disable { worker: WorkerId },
    /// Take work again
    Enable { worker: WorkerId },
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let store = settings.open_existing().await?;
        let told = match self.command {
            Some(Command::Drain { worker }) => Some((worker, Told::Drain)),
            Some(Command::Disable { worker }) => Some((worker, Told::Disable)),
            Some(Command::Enable { worker }) => Some((worker, Told::Enable)),
            None => None,
        };
        if let Some((worker, command)) = told {
            let status = store.manage_worker(worker, command).await?;
            if self.json {
                output::json(&serde_json::json!({ "worker": worker, "status": status }))?;
            } else {
                output::line(&format!("worker {worker} is {status}"));
            }
            return Ok(Done::Yes);
        }
        let workers = store.workers(self.all).await?;
        if self.json {
            output::json(&workers)?;
            return Ok(Done::Yes);
        }
        let now = store.now().await?.0;
        let rows: Vec<_> = workers
            .into_iter()
            .map(|worker| {
                [
                    worker.id,
                    worker.name,
                    worker.status,
                    worker.phase,
                    format!("{}/{}", worker.running, worker.slots),
                    worker.done.to_string(),
                    worker.failed.to_string(),
                    worker.last_heartbeat.map_or_else(|| "never".into(), |at| output::ago(at, now)),
                    worker.capabilities,
                ]
            })
            .collect();
        let head = ["id", "name", "status", "phase", "load", "done", "failed", "heartbeat", "capabilities"];
        output::table(head, &rows);
        Ok(Done::Yes)
    }
}
