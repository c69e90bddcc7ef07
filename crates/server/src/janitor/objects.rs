//! The same in a bucket.

use super::{is_forgotten, is_past, named, safe_age};
use crate::app::App;
use crate::problem::Error;
use files::bucket::Found;
use files::{Bucket, Step};
use rules::{ExecutionName, VideoId};
use std::time::SystemTime;

/// What an execution made is needed while it runs, and once it has committed, until its job is over and cannot be retried.
pub async fn parts(app: &App, bucket: &Bucket) -> Result<(), Error> {
    for folder in ["incoming", "parts"] {
        for name in bucket.folders(folder).await? {
            let Ok(execution) = name.parse::<ExecutionName>() else { continue };
            if !app.store.needs_files(execution).await? {
                let made = format!("{folder}/{name}");
                Step::ClearExecutionObjects.across(bucket.remove_all(&made)).await?;
            }
        }
    }
    Ok(())
}

/// What is left by those who were killed, wherever in the bucket.
pub async fn sweep(app: &App, bucket: &Bucket, restored: Option<SystemTime>) -> Result<(), Error> {
    Step::GiveUp.across(bucket.give_up_unfinished(safe_age())).await?;
    for source in bucket.list("sources").await? {
        if may_go(&source, restored) && !app.store.is_source(&source.name).await? {
            Step::ClearObject.across(bucket.remove(&source.name)).await?;
        }
    }
    for name in bucket.folders("videos").await? {
        if let Ok(video) = name.parse() {
            generations(app, bucket, VideoId(video), restored).await?;
        }
    }
    Ok(())
}

async fn generations(
    app: &App,
    bucket: &Bucket,
    video: VideoId,
    restored: Option<SystemTime>,
) -> Result<(), Error> {
    let Some(named) = named(app, video).await? else { return Ok(()) };
    for generation in bucket.folders(&format!("videos/{video}")).await? {
        let folder = format!("videos/{video}/{generation}");
        let is_left = !named.contains(&generation)
            && bucket.list(&folder).await?.iter().all(|object| may_go(object, restored));
        // Somebody may have begun the job anew in the meantime.
        if is_left && !app.store.may_be_published(video).await? {
            tracing::info!(video.id = %video, "removing {folder}, which was never published");
            Step::ClearGenerationObjects.across(bucket.remove_all(&folder)).await?;
        }
    }
    Ok(())
}

fn may_go(object: &Found, restored: Option<SystemTime>) -> bool {
    is_past(object.modified) && !is_forgotten(object.modified, restored)
}
