//! Where an execution's input comes from, and where what it made goes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use files::bucket::{self, Told};
use files::{Bucket, Files, Step};
use futures_util::{StreamExt, TryStreamExt, stream};
use media::manifest::Artifact;
use pipeline::FilePath;
use rules::ExecutionId;
use wire::Assignment;

use crate::handler::Failed;
use crate::limits::still_for;
use crate::remote::{self, Client, Relay, Source};
use crate::transcode::{disk, is_full};
use crate::{Context, shared};

/// How many files are under way at a time.
const SIDE_BY_SIDE: usize = 4;

/// Cheap to clone.
#[derive(Debug, Clone)]
pub enum Depot {
    /// The source is a path or a URL; what was made is moved to the execution's own place by a rename.
    Disk(Files),
    /// The source is a name in the bucket, and so is what was made, under the execution's own; whoever reads it brings
    /// it to this disk first. Sources from before there was a bucket are paths.
    Bucket(Bucket),
    /// The source is read over HTTP; what was made is uploaded, and listed in the commit.
    Server(Client),
}

impl From<Files> for Depot {
    fn from(files: Files) -> Self {
        Depot::Disk(files)
    }
}

impl From<Bucket> for Depot {
    fn from(bucket: Bucket) -> Self {
        Depot::Bucket(bucket)
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
        let opening = async {
            match self {
                Depot::Disk(_) => Ok(None),
                Depot::Bucket(_) if Path::new(name).is_absolute() || name.contains("://") => Ok(None),
                Depot::Bucket(bucket) => Source::open_in(bucket, name, context).await.map(Some),
                Depot::Server(client) => Source::open(client, job.proof, name, context).await.map(Some),
            }
        };
        let source = tokio::select! {
            source = opening => source?,
            () = context.stop.cancelled() => return Err(stopped()),
        };
        let Some(source) = source else { return Ok(None) };
        let relay = Relay::start(source).await;
        let relay =
            relay.map_err(|error| Failed::transient(format!("cannot listen on this machine: {error}")))?;
        context.conceal(relay.url(), name);
        context.conceal(format!("tcp://{}", relay.authority()), name);
        context.conceal(relay.authority(), "the worker");
        Ok(Some(relay))
    }

    /// Hands what is in `made` to those who will read it; returns the name of its place.
    pub async fn keep(&self, job: &Assignment, context: &Context, made: PathBuf) -> Result<FilePath, Failed> {
        let execution = job.proof.execution();
        match self {
            Depot::Disk(files) => move_to(files.clone(), execution, made).await?,
            Depot::Bucket(bucket) => {
                let folder = format!("parts/{execution}");
                tokio::select! {
                    sent = send(bucket, context, &made, &folder) => sent?,
                    () = context.stop.cancelled() => return Err(stopped()),
                }
            }
            Depot::Server(client) => tokio::select! {
                kept = remote::keep(client, job.proof, context, made) => kept?,
                () = context.stop.cancelled() => return Err(stopped()),
            },
        }
        own_folder(job)
    }

    /// Brings what others made to this disk, where it is not there already: files, and the executions that made them.
    /// What is not what they committed is not used.
    pub(crate) async fn bring(
        &self,
        context: &Context,
        wanted: &[(FilePath, Artifact)],
    ) -> Result<Files, Failed> {
        match self {
            Depot::Disk(files) => Ok(files.clone()),
            Depot::Bucket(bucket) => {
                let files = Files::at(context.folder().await?.join("parts"));
                let from = |(execution, file): &(FilePath, Artifact)| Fetch {
                    name: format!("parts/{execution}/{}", file.path),
                    to: files.folder(execution).join(&file.path),
                    file: file.clone(),
                };
                let fetches = wanted.iter().map(from).collect();
                tokio::select! {
                    brought = fetch(bucket, context, fetches) => brought?,
                    () = context.stop.cancelled() => return Err(stopped()),
                }
                Ok(files)
            }
            Depot::Server(_) => {
                Err(Failed::transient("this is work for a worker on the machine that holds the files"))
            }
        }
    }

    /// Whether a stream can be put together here: that takes reaching what others made.
    pub(crate) fn can_gather(&self) -> bool {
        !matches!(self, Depot::Server(_))
    }
}

/// The folder of what an execution makes, below that of all parts.
pub(crate) fn own_folder(task: &Assignment) -> Result<FilePath, Failed> {
    task.proof
        .execution()
        .to_string()
        .parse()
        .map_err(|bad: pipeline::BadName| Failed::permanent(bad.to_string()))
}

/// A file to be brought, and what it must be.
pub(crate) struct Fetch {
    pub name: String,
    pub to: PathBuf,
    pub file: Artifact,
}

/// Several at a time.
pub(crate) async fn fetch(bucket: &Bucket, context: &Context, wanted: Vec<Fetch>) -> Result<(), Failed> {
    context.set_step("fetch");
    let one = |wanted: Fetch| async move {
        let moved = || context.progress.beat();
        let fetched = ask(context, bucket.fetch(&wanted.name, &wanted.to, &moved)).await?;
        context.count_bytes(fetched.bytes, 0);
        let Artifact { path, sha256, .. } = &wanted.file;
        if fetched.sha256.eq_ignore_ascii_case(sha256) {
            Ok(())
        } else {
            Err(Failed::transient(format!("{path} in the storage is not what was committed")))
        }
    };
    stream::iter(wanted).map(one).buffer_unordered(SIDE_BY_SIDE).try_collect().await
}

/// Puts everything below `made` into a folder of the bucket.
async fn send(bucket: &Bucket, context: &Context, made: &Path, folder: &str) -> Result<(), Failed> {
    context.set_step("upload");
    let listed = shared::blocking({
        let made = made.to_owned();
        move || below(&made)
    });
    let listed = listed.await.map_err(|error| disk("reading", made, &error))?;
    let one = |path: String| async move {
        let (from, name, moved) = (made.join(&path), format!("{folder}/{path}"), || context.progress.beat());
        let sending = bucket.send(&from, &name, Told::default(), &moved);
        ask(context, Step::HandOverObject.across(sending)).await.map(drop)
    };
    stream::iter(listed).map(one).buffer_unordered(SIDE_BY_SIDE).try_collect().await
}

fn below(folder: &Path) -> std::io::Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![String::new()]);
    while let Some(prefix) = folders.pop() {
        for entry in std::fs::read_dir(folder.join(&prefix))? {
            let entry = entry?;
            let name = entry.file_name().into_string().map_err(|_| std::io::ErrorKind::InvalidFilename)?;
            let path = format!("{prefix}{name}");
            match entry.file_type()?.is_dir() {
                true => folders.push(format!("{path}/")),
                false => found.push(path),
            }
        }
    }
    Ok(found)
}

/// Waits for the storage, but not for so long that the work would seem to stand still: it is given back before.
pub(crate) async fn ask<T>(
    context: &Context,
    asking: impl Future<Output = bucket::Result<T>>,
) -> Result<T, Failed> {
    let answer = match context.stall() {
        None => asking.await,
        Some(stall) => tokio::select! {
            answer = asking => answer,
            () = still_for(&context.progress, stall * 3 / 4) => return Err(silent(stall * 3 / 4)),
        },
    };
    context.progress.beat();
    answer.map_err(|error| match &error {
        bucket::Error::Disk(cause) if is_full(cause) => Failed::disk_full(format!("{error}: {cause}")),
        _ if error.is_absence() => Failed::storage_away(error.to_string()),
        _ => Failed::transient(error.to_string()),
    })
}

fn silent(patience: Duration) -> Failed {
    Failed::storage_away(format!("the storage does not answer: nothing moved for {patience:?}"))
}

async fn move_to(files: Files, execution: ExecutionId, made: PathBuf) -> Result<(), Failed> {
    let kept = shared::blocking({
        let made = made.clone();
        move || Step::HandOver.around(|| files.keep(execution, &made))
    });
    kept.await.map_err(|error| disk("keeping", &made, &error))
}

fn stopped() -> Failed {
    Failed::transient("stopped on request")
}
