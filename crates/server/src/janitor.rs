//! Removes what nobody needs, and nothing else: files of executions that lost, of ended jobs, of purged videos and of
//! uploads that were given up, and what was never published.

mod objects;

use crate::app::App;
use crate::identity;
use crate::pieces;
use crate::problem::Error;
use crate::rewind;
use files::Step;
use rules::{ExecutionName, Millis, VideoId};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What is younger may be on its way to a transaction that names it.
const SAFE_AGE: Duration = Duration::from_secs(3600);

/// The clocks of the database and of the disks may differ by this much.
const CLOCKS: Duration = Duration::from_secs(300);

/// Every so many rounds all videos are looked through; in a bucket that takes a request for each thousand files.
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
    // Before anything is removed that the database does not name: it may have been restored a moment ago.
    rewind::look(app).await?;
    identity::make_sure(&app.store, &app.data)
        .await
        .map_err(|mismatch| Error::Internal(mismatch.to_string()))?;
    let restored = restored(app).await?;
    uploads(app).await?;
    videos(app).await?;
    executions(app, &app.data.all_incoming()).await?;
    let Some(bucket) = app.data.bucket() else {
        executions(app, &app.data.root().join("parts")).await?;
        sources(app, restored).await?;
        if round.is_multiple_of(SWEEP) {
            generations(app, restored).await?;
        }
        return Ok(());
    };
    objects::parts(app, bucket).await?;
    if round.is_multiple_of(SWEEP) {
        objects::sweep(app, bucket, restored).await?;
    }
    Ok(())
}

/// A restored database has forgotten what was made before: such files may be the only copies, so people decide.
async fn restored(app: &App) -> Result<Option<SystemTime>, Error> {
    let restored = app.store.last_restore().await?;
    let at = restored.map(|at| Duration::from_millis(at.0.max(0).unsigned_abs()) + clocks());
    Ok(at.map(|at| SystemTime::UNIX_EPOCH + at))
}

fn is_forgotten(written: SystemTime, restored: Option<SystemTime>) -> bool {
    restored.is_some_and(|restored| written <= restored)
}

async fn uploads(app: &App) -> Result<(), Error> {
    for upload in app.store.expired_uploads(100).await? {
        remove(Step::ClearUpload, &app.data.uploads().join(&upload.id))?;
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
        remove(Step::ClearVideo, &app.data.video(video.id))?;
        if let Some(bucket) = app.data.bucket() {
            let folder = format!("videos/{}", video.id);
            Step::ClearVideoObjects.across(bucket.remove_all(&folder)).await?;
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

/// A folder is needed while its execution runs, and once it has committed, until its job is over and cannot be retried.
async fn executions(app: &App, folder: &Path) -> Result<(), Error> {
    for (name, path) in entries(folder)? {
        let Ok(execution) = name.parse::<ExecutionName>() else { continue };
        if !app.store.needs_files(execution).await? {
            remove(Step::ClearExecution, &path)?;
        }
    }
    Ok(())
}

/// Left by a server that was killed between receiving a file and naming it.
async fn sources(app: &App, restored: Option<SystemTime>) -> Result<(), Error> {
    for (_, path) in entries(&app.data.sources())? {
        let Ok(came) = std::fs::metadata(&path).map(|found| came(&found)) else { continue };
        if is_past(came)
            && !is_forgotten(came, restored)
            && !app.store.is_source(&path.to_string_lossy()).await?
        {
            remove(Step::ClearSource, &path)?;
        }
    }
    Ok(())
}

/// Its last change of any kind, of its names as well: when it was written does not tell when it came here.
fn came(found: &std::fs::Metadata) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(found.ctime().max(0).unsigned_abs())
}

fn is_past(at: SystemTime) -> bool {
    at.elapsed().is_ok_and(|age| age > safe_age())
}

fn clocks() -> Duration {
    failpoint::shortened("VODMILL_SAFE_AGE_SECONDS", CLOCKS)
}

fn safe_age() -> Duration {
    failpoint::shortened("VODMILL_SAFE_AGE_SECONDS", SAFE_AGE)
}

/// Left by a publication that was stopped before its commit, and never gone on with.
async fn generations(app: &App, restored: Option<SystemTime>) -> Result<(), Error> {
    for (name, folder) in entries(&app.data.videos())? {
        let Some(video) = name.parse().ok().map(VideoId).filter(|_| folder.is_dir()) else { continue };
        let Some(named) = named(app, video).await? else { continue };
        for (generation, path) in entries(&folder)? {
            let written = std::fs::metadata(&path).and_then(|found| found.modified());
            let may_go = |written| is_past(written) && !is_forgotten(written, restored);
            let is_left = !named.contains(&generation) && written.is_ok_and(may_go);
            // Somebody may have begun the job anew in the meantime.
            if is_left && !app.store.may_be_published(video).await? {
                tracing::info!(video.id = %video, "removing {}, which was never published", path.display());
                remove(Step::ClearGeneration, &path)?;
            }
        }
    }
    Ok(())
}

/// The generations that commits name, of a video that nobody works on: any other will never be named. None if that cannot
/// be said.
async fn named(app: &App, video: VideoId) -> Result<Option<Vec<String>>, Error> {
    /// More generations than this are not read, and then none is known to be unnamed.
    const ALL: usize = 1000;
    if app.store.may_be_published(video).await? {
        return Ok(None);
    }
    let name = |it: store::catalogue::Generation| it.manifest["generation"].as_str().map(str::to_owned);
    let named: Vec<String> = match app.store.generations(video).await {
        Ok(generations) => generations.into_iter().filter_map(name).collect(),
        Err(store::Error::NotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    Ok((named.len() < ALL).then_some(named))
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

fn remove(step: Step, path: &Path) -> Result<(), Error> {
    step.around(|| files::remove(path)).map_err(|error| Error::disk("removing a file", &error))
}
