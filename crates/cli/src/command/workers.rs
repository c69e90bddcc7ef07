use crate::office::Office;
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use rules::WorkerId;
use rules::worker::Command as Told;
use serde_json::json;
use store::worker::View;
use wire::http::{Registered, Registration};

/// List workers, let one in, or tell one what to do
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Also those that are offline
    #[arg(long, global = true)]
    all: bool,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Those that are there
    List,
    /// Let a worker in: shows its key, once
    Register {
        /// How people tell workers apart
        name: String,
    },
    /// Finish what it has and take nothing new
    Drain {
        /// Its id or its name
        worker: String,
    },
    /// Take nothing new, until enabled again
    Disable {
        /// Its id or its name
        worker: String,
    },
    /// Take work again
    Enable {
        /// Its id or its name
        worker: String,
    },
    /// Shut it out: its key is worth nothing any more, and what it had is free at once
    Revoke {
        /// Its id or its name
        worker: String,
    },
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        match &self.command {
            None | Some(Command::List) => self.list(&office).await?,
            Some(Command::Register { name }) => self.register(&office, name).await?,
            Some(Command::Drain { worker }) => self.tell(&office, worker, Told::Drain).await?,
            Some(Command::Disable { worker }) => self.tell(&office, worker, Told::Disable).await?,
            Some(Command::Enable { worker }) => self.tell(&office, worker, Told::Enable).await?,
            Some(Command::Revoke { worker }) => self.revoke(&office, worker).await?,
        }
        Ok(Done::Yes)
    }

    async fn list(&self, office: &Office) -> anyhow::Result<()> {
        let workers = office.workers(self.all).await?;
        let now = office.now().await?;
        let head = ["id", "name", "status", "phase", "load", "done", "failed", "heartbeat", "capabilities"];
        output::listing(self.json, &workers, head, |worker| {
            [
                worker.id.clone(),
                worker.name.clone(),
                worker.status.clone(),
                worker.phase.clone(),
                format!("{}/{}", worker.running, worker.slots),
                worker.done.to_string(),
                worker.failed.to_string(),
                worker.last_heartbeat.map_or_else(|| "never".into(), |at| output::ago(at, now)),
                worker.capabilities.clone(),
            ]
        })
    }

    async fn register(&self, office: &Office, name: &str) -> anyhow::Result<()> {
        let asked = Registration { name: name.into(), capabilities: Vec::new(), metadata: json!({}) };
        let Registered { worker_id, api_key } = office.register(asked).await?;
        if self.json {
            return output::json(&json!({ "worker": worker_id, "key": api_key }));
        }
        let server = office.address().unwrap_or_else(|| "URL".into());
        output::line(&format!("worker {name} is let in: {worker_id}"));
        output::line(&format!("its key, shown this once: {api_key}"));
        output::line("on its machine, with the key in a file that only it can read:");
        output::line(&format!("  vodmill worker --server {server} --key-file FILE"));
        Ok(())
    }

    async fn tell(&self, office: &Office, worker: &str, command: Told) -> anyhow::Result<()> {
        let worker = find(office, worker).await?;
        let status = office.tell_worker(worker, command).await?;
        self.say(worker, &status, &format!("is {status}"))
    }

    async fn revoke(&self, office: &Office, worker: &str) -> anyhow::Result<()> {
        let worker = find(office, worker).await?;
        office.revoke(worker).await?;
        self.say(worker, "revoked", "is shut out: its key is worth nothing any more")
    }

    fn say(&self, worker: WorkerId, status: &str, what: &str) -> anyhow::Result<()> {
        if self.json {
            return output::json(&json!({ "worker": worker, "status": status }));
        }
        output::line(&format!("worker {worker} {what}"));
        Ok(())
    }
}

/// A worker by its id or its name. Of several of a name, the one that is not offline is meant.
async fn find(office: &Office, word: &str) -> anyhow::Result<WorkerId> {
    if let Ok(id) = word.parse() {
        return Ok(id);
    }
    let called: Vec<View> =
        office.workers(true).await?.into_iter().filter(|worker| worker.name == word).collect();
    let here: Vec<&View> = called.iter().filter(|worker| worker.status != "offline").collect();
    let meant = match (here.as_slice(), called.as_slice()) {
        ([one], _) => one,
        ([], [one]) => one,
        (_, []) => anyhow::bail!("no worker is called `{word}`; `vodmill workers --all` lists them"),
        _ => {
            let count = called.len();
            let what = format!("{count} workers are called `{word}`; name one by its id");
            return Err(Usage(format!("{what}: `vodmill workers --all` lists them")).into());
        }
    };
    Ok(meant.id.parse()?)
}
