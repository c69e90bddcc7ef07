//! Where an execution's input comes from, and where what it made goes.

use std::path::PathBuf;

use files::Files;
use rules::ExecutionId;
use wire::Assignment;

use crate::handler::Failed;
use crate::remote::{self, Client, Relay, Source};
use crate::transcode::disk;
use crate::{Context, shared};

/// Cheap to clone.
#[derive(Debug, Clone)]
pub enum Depot {
    /// The source is a path or a URL; what was made is moved to the execution's own place by a rename.
    Disk(Files),
    /// The source is read over HTTP; what was made is uploaded, and listed in the commit.
    Server(Client),
}

impl From<Files> for Depot {
    fn from(files: Files) -> Self {
        Depot::Disk(files)
    }
}

impl From<Client> for Depot {
    fn from(client: Client) -> Self {
        Depot::Server(client)
    }
}

impl Depot {
    /// Makes what the job calls `name` readable for programs on this machine; where that takes something of ours, for
    /// as long as the relay lives.
    pub(crate) async fn relay(
        &self,
        job: &Assignment,
        context: &Context,
        name: &str,
    ) -> Result<Option<Relay>, Failed> {
        let Depot::Server(client) = self else { return Ok(None) };
        let source = tokio::select! {
            source = Source::open(client, job.proof, name, context) => source?,
            () = context.stop.cancelled() => return Err(stopped()),
        };
        let relay = Relay::start(source).await;
        let relay =
            relay.map_err(|error| Failed::transient(format!("cannot listen on this machine: {error}")))?;
        context.conceal(relay.url(), name);
        context.conceal(format!("tcp://{}", relay.authority()), name);
        context.conceal(relay.authority(), "the worker");
        Ok(Some(relay))
    }

    /// Hands what is in `made` to those who will read it; returns the name of its place.
    pub async fn keep(&self, job: &Assignment, context: &Context, made: PathBuf) -> Result<String, Failed> {
        let execution = job.proof.execution();
        match self {
            Depot::Disk(files) => move_to(files.clone(), execution, made).await?,
            Depot::Server(client) => tokio::select! {
                kept = remote::keep(client, job.proof, context, made) => kept?,
                () = context.stop.cancelled() => return Err(stopped()),
            },
        }
        Ok(execution.to_string())
    }

    /// Where what others made lies, for stages that read it.
    pub(crate) fn files(&self) -> Result<&Files, Failed> {
        match self {
            Depot::Disk(files) => Ok(files),
            Depot::Server(_) => {
                Err(Failed::transient("this is work for a worker on the machine that holds the files"))
            }
        }
    }

    pub(crate) fn is_on_this_disk(&self) -> bool {
        matches!(self, Depot::Disk(_))
    }
}

async fn move_to(files: Files, execution: ExecutionId, made: PathBuf) -> Result<(), Failed> {
    let kept = shared::blocking({
        let made = made.clone();
        move || files.keep(execution, &made)
    });
    kept.await.map_err(|error| disk("keeping", &made, &error))
}

fn stopped() -> Failed {
    Failed::transient("stopped on request")
}
