//! Removes what nobody needs, and nothing else: files of executions that lost, of ended jobs, of purged videos and of
//! uploads that were given up.

mod objects;

use crate::app::App;
use crate::pieces;
use crate::problem::Error;
use rules::{ExecutionId, Fence, Millis, TaskId};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is younger may be on its way to a transaction that names it.
const SAFE_AGE: Duration = Duration::from_secs(3600);

/// Every so many rounds the whole bucket is looked through; that takes a request for each thousand files.
const SWEEP: u64 = 60;

pub async fn run(app: App) {
    for round in 0.. {
        if let Err(error) = tidy(&app, round).await {
            tracing::warn!("cannot tidy up, trying again later: {error}");
        }
        tokio::time::sleep(app.options.janitor_interval).await;
    }
}

async fn tidy(app: &App, round: u64) -> Result<(), Error> {
    uploads(app).await?;
    videos(app).await?;
    executions(app, &app.data.all_incoming()).await?;
    let Some(bucket) = app.data.bucket() else {
        executions(app, &app.data.root().join("parts")).await?;
        return sources(app).await;
    };
    objects::parts(app, bucket).await?;
    if round.is_multiple_of(SWEEP) {
        objects::sweep(app, bucket).await?;
    }
    Ok(())
}

async fn uploads(app: &App) -> Result<(), Error> {
    for upload in app.store.expired_uploads(100).await? {
        remove(&app.data.uploads().join(&upload.id))?;
        if let Some(bucket) = app.data.bucket() {
            pieces::remove(bucket, &upload.id).await?;
        }
        app.store.forget_upload(&upload.id).await?;
    }
    Ok(())
}

/// Files first: a row without files is found again, files without a row would never be.
async fn videos(app: &App) -> Result<(), Error> {
    let retention = Millis(i64::try_from(app.options.retention.as_millis()).unwrap_or(i64::MAX));
    let before = app.store.now().await? - retention;
    for video in app.store.videos_deleted_before(before, 100).await? {
        remove(&app.data.video(video.id))?;
        if let Some(bucket) = app.data.bucket() {
            bucket.remove_all(&format!("videos/{}", video.id)).await?;
        }
        let ours = |source: &PathBuf| {
            source.starts_with(app.data.sources())
                || app.data.bucket().is_some() && source.starts_with("sources")
        };
        if let Some(source) = video.source.map(PathBuf::from).filter(ours) {
            app.data.remove_source(&source).await?;
        }
        app.store.purge_video(video.id).await?;
        tracing::info!(video.id = %video.id, "purged video {}, deleted long ago", video.id);
    }
    Ok(())
}

/// A folder is needed while its execution runs, and once it has committed, until its job is over.
async fn executions(app: &App, folder: &Path) -> Result<(), Error> {
    for (name, path) in entries(folder)? {
        let Some(execution) = parse(&name) else { continue };
        if !app.store.needs_files(execution).await? {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Left by a server that was killed between receiving a file and naming it.
async fn sources(app: &App) -> Result<(), Error> {
    for (_, path) in entries(&app.data.sources())? {
        let modified =
            std::fs::metadata(&path).and_then(|found| found.modified()).unwrap_or(SystemTime::now());
        let is_old = modified.elapsed().is_ok_and(|age| age > SAFE_AGE);
        if is_old && !app.store.is_source(&path.to_string_lossy()).await? {
            remove(&path)?;
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::disk("listing a folder", &error))?,
    };
    Ok(entries
        .flatten()
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect())
}

fn remove(path: &Path) -> Result<(), Error> {
    files::remove(path).map_err(|error| Error::disk("removing a file", &error))
}

/// `42-7.1`
fn parse(name: &str) -> Option<ExecutionId> {
    let (task, fence) = name.rsplit_once('.')?;
    Some(ExecutionId { task: task.parse::<TaskId>().ok()?, fence: Fence(fence.parse().ok()?) })
}
