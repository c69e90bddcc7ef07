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
        /// A capability that the worker may have, also several with commas between: the upper bound of what it declares.
        /// Default: all that it declares, except the server's own kinds of work. Videos with the encoder `auto` use its
        /// hardware only where it is listed here, such as h264_nvenc
        #[arg(long = "allow", value_name = "NAME", value_delimiter = ',')]
        capabilities: Vec<String>,
        /// The pool it belongs to: it takes only jobs that name this pool
        #[arg(long, value_name = "NAME")]
        pool: Option<String>,
        /// A user whose jobs it takes, also several with commas between. Default: all users
        #[arg(long = "user", value_name = "NAME", value_delimiter = ',')]
        users: Vec<String>,
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
            Some(Command::Register { name, capabilities, pool, users }) => {
                let asked = Registration {
                    name: name.clone(),
                    capabilities: capabilities.clone(),
                    pool: pool.clone(),
                    users: users.clone(),
                    metadata: json!({}),
                };
                self.register(&office, asked).await?;
            }
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
        let head = [
            "id",
            "name",
            "status",
            "phase",
            "load",
            "done",
            "failed",
            "heartbeat",
            "capabilities",
            "restricted to",
        ];
        if !self.json {
            for worker in workers.iter().filter(|worker| worker.status != "offline") {
                if let Some(refusal) = &worker.refusal {
                    output::line(&format!("worker {} takes nothing new for now: {refusal}", worker.name));
                }
            }
        }
        output::listing(self.json, &workers, head, |worker| {
            [
                worker.id.clone(),
                worker.name.clone(),
                status(worker),
                worker.phase.clone(),
                format!("{}/{}", worker.running, worker.slots),
                worker.done.to_string(),
                worker.failed.to_string(),
                worker.last_heartbeat.map_or_else(|| "never".into(), |at| output::ago(at, now)),
                worker.capabilities.clone(),
                restriction(worker),
            ]
        })
    }

    async fn register(&self, office: &Office, asked: Registration) -> anyhow::Result<()> {
        let name = asked.name.clone();
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

fn status(worker: &View) -> String {
    match &worker.suspended {
        Some(why) => format!("suspended: {why}"),
        None => worker.status.clone(),
    }
}

fn restriction(worker: &View) -> String {
    let pool = worker.pool.as_ref().map(|pool| format!("pool {pool}"));
    let users: Option<Vec<String>> = worker.users.as_deref().and_then(|text| serde_json::from_str(text).ok());
    let users = users.map(|users| format!("users {}", users.join(", ")));
    let both: Vec<String> = pool.into_iter().chain(users).collect();
    if both.is_empty() { "-".into() } else { both.join("; ") }
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
