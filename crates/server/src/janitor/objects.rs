//! The same in a bucket.

use super::{SAFE_AGE, parse};
use crate::app::App;
use crate::problem::Error;
use files::Bucket;
use files::bucket::Found;
use rules::VideoId;

/// What an execution made is needed while it runs, and once it has committed, until its job is over.
pub async fn parts(app: &App, bucket: &Bucket) -> Result<(), Error> {
    for name in bucket.folders("parts").await? {
        let Some(execution) = parse(&name) else { continue };
        if !app.store.needs_files(execution).await? {
            bucket.remove_all(&format!("parts/{name}")).await?;
        }
    }
    Ok(())
}

/// What is left by those who were killed, wherever in the bucket.
pub async fn sweep(app: &App, bucket: &Bucket) -> Result<(), Error> {
    bucket.give_up_unfinished(SAFE_AGE).await?;
    for source in bucket.list("sources").await? {
        if is_old(&source) && !app.store.is_source(&source.name).await? {
            bucket.remove(&source.name).await?;
        }
    }
    for name in bucket.folders("videos").await? {
        if let Ok(video) = name.parse() {
            generations(app, bucket, VideoId(video)).await?;
        }
    }
    Ok(())
}

/// More generations than this are not read, and then none is known to be unnamed.
const ALL: usize = 1000;

/// A generation that no commit names, of a video that nobody works on, will never be named.
async fn generations(app: &App, bucket: &Bucket, video: VideoId) -> Result<(), Error> {
    if app.store.has_open_job(video).await? {
        return Ok(());
    }
    let named: Vec<String> = match app.store.generations(video).await {
        Ok(generations) => {
            let name =
                |it: &store::catalogue::Generation| it.manifest["generation"].as_str().map(str::to_owned);
            generations.iter().filter_map(name).collect()
        }
        Err(store::Error::NotFound(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    if named.len() >= ALL {
        return Ok(());
    }
    for generation in bucket.folders(&format!("videos/{video}")).await? {
        let folder = format!("videos/{video}/{generation}");
        let is_left = !named.contains(&generation) && bucket.list(&folder).await?.iter().all(is_old);
        // Somebody may have begun the job anew in the meantime.
        if is_left && !app.store.has_open_job(video).await? {
            tracing::info!(video.id = %video, "removing {folder}, which was never published");
            bucket.remove_all(&folder).await?;
        }
    }
    Ok(())
}

fn is_old(object: &Found) -> bool {
    object.modified.elapsed().is_ok_and(|age| age > SAFE_AGE)
}
