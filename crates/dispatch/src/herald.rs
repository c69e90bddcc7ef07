//! Tells what happens, by Redis's channels: for servers whose pages show it, and for whoever else listens. One process
//! does it for all, so that the database is read once, however many servers there are.
//!
//! | channel | says |
//! | --- | --- |
//! | `worker_status` | a worker's status has changed, or how busy it is |
//! | `transcode_progress:{video_id}` | how far each running execution of a video's job is |
//! | `job_progress:{job_id}` | the same of a job that makes no video |
//! | `transcode_complete:{video_id}` | a video was published, or its job failed |
//!
//! Nothing of it is kept. What must not be missed is in the database, and `/api/events` tells it from there.

use crate::{Error, Redis, lead};
use redis::Pipeline;
use rules::{JobId, VideoId};
use serde::Serialize;
use serde_json::json;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use store::event::{Event, What};
use store::running::{Load, Running};
use store::wake::Topic;
use store::{Cursor, Store};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How often it looks how far work is.
const EVERY: Duration = Duration::from_secs(1);

/// What happens within this time is read at once.
const GATHER: Duration = Duration::from_millis(20);

/// Who takes over later than this tells nothing of what happened before.
const OLD_NEWS: Duration = Duration::from_secs(60);

const PAGE: i64 = 500;
const MOST: i64 = 2000;

/// How far the executions of one job are.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Progress {
    pub job: JobId,
    pub video: Option<VideoId>,
    pub running: Vec<Running>,
}

/// Tells what happens while it is the one to do so, until `shutdown`.
pub async fn run(redis: Redis, store: Store, shutdown: CancellationToken) {
    let (leads, mut is_leader) = watch::channel(false);
    let stand = async {
        while !shutdown.is_cancelled() {
            if redis.is_up() {
                lead::by_redis("herald", &redis, &leads, &shutdown).await;
                leads.send_replace(false);
            }
            tokio::select! {
                () = sleep(2 * EVERY) => {}
                () = shutdown.cancelled() => {}
            }
        }
    };
    let tell = async {
        loop {
            let _ = is_leader.wait_for(|leads| *leads).await;
            let mut resigned = is_leader.clone();
            tokio::select! {
                _ = resigned.wait_for(|leads| !*leads) => {}
                () = async { tokio::join!(events(&redis, &store), progress(&redis, &store)); } => {}
            }
        }
    };
    tokio::select! {
        () = stand => {}
        () = tell => {}
    }
}

/// Begins where the herald before this one ended.
async fn events(redis: &Redis, store: &Store) {
    let mut hints = store.wake().subscribe(Topic::Event);
    let mut at = None;
    loop {
        hints.mark_unchanged();
        match tell_events(redis, store, at).await {
            Ok((next, is_last)) => {
                at = Some(next);
                if !is_last {
                    continue;
                }
            }
            Err(why) => tracing::debug!("cannot tell what happens: {why}"),
        }
        tokio::select! {
            () = sleep(EVERY) => {}
            _ = hints.changed() => sleep(GATHER).await,
        }
    }
}

async fn tell_events(redis: &Redis, store: &Store, at: Option<Cursor>) -> Result<(Cursor, bool), String> {
    let at = match at {
        Some(at) => at,
        None => beginning(redis, store).await?,
    };
    let page = store.events(at, PAGE).await.map_err(|error| error.to_string())?;
    let mut words = redis::pipe();
    page.events.iter().for_each(|event| say(&mut words, redis, event));
    if !words.is_empty() {
        let told = words.cmd("SET").arg(redis.names().herald()).arg(page.next.to_string());
        told.arg("EX").arg(OLD_NEWS.as_secs()).ignore();
        redis.tell::<()>(&words).await.map_err(|error| error.to_string())?;
    }
    Ok((page.next, page.is_last))
}

async fn beginning(redis: &Redis, store: &Store) -> Result<Cursor, String> {
    let end = store.events_end().await.map_err(|error| error.to_string())?;
    let mut get = redis::cmd("GET");
    let told: Result<Option<String>, Error> = redis.ask(get.arg(redis.names().herald())).await;
    let told = told.map_err(|error| error.to_string())?.and_then(|told| told.parse().ok());
    // What lies behind the end is of another database.
    Ok(told.filter(|told| *told <= end).unwrap_or(end))
}

fn say(words: &mut Pipeline, redis: &Redis, event: &Event) {
    let names = redis.names();
    let complete = |video, status, job: Option<JobId>| {
        let said = json!({ "id": event.cursor.to_string(), "at": event.at, "video": video, "job": job, "status": status });
        (names.transcode_complete(video), said)
    };
    let (channel, said) = match (&event.what, event.video) {
        (What::Worker(worker), _) => {
            let said = json!({ "id": event.cursor.to_string(), "at": event.at, "worker": worker.worker,
                "status": worker.status, "from": worker.from });
            (names.worker_status(), said)
        }
        (What::Video(it), Some(video)) if it.what == "published" => complete(video, "ready", event.job),
        (What::Job(job), Some(video)) if job.what == "ended" && job.state == "failed" => {
            complete(video, "failed", event.job)
        }
        _ => return,
    };
    words.cmd("PUBLISH").arg(channel).arg(said.to_string()).ignore();
}

async fn progress(redis: &Redis, store: &Store) {
    let (mut jobs, mut workers) = (HashMap::new(), HashMap::new());
    loop {
        let mut words = redis::pipe();
        match changes(store, &mut jobs, &mut workers).await {
            Ok((progress, loads)) => {
                progress.iter().for_each(|progress| {
                    let channel = match progress.video {
                        Some(video) => redis.names().transcode_progress(video),
                        None => redis.names().job_progress(progress.job),
                    };
                    publish(&mut words, channel, progress);
                });
                loads.iter().for_each(|load| publish(&mut words, redis.names().worker_status(), load));
            }
            Err(error) => tracing::debug!("cannot tell how far work is: {error}"),
        }
        if !words.is_empty()
            && let Err(error) = redis.tell::<()>(&words).await
        {
            tracing::debug!("nobody is told how far work is: {error}");
        }
        sleep(EVERY).await;
    }
}

fn publish(words: &mut Pipeline, channel: String, said: &impl Serialize) {
    let said = serde_json::to_string(said).unwrap_or_default();
    words.cmd("PUBLISH").arg(channel).arg(said).ignore();
}

/// What was seen at the last look, by job and by worker.
pub type Jobs = HashMap<JobId, Progress>;
pub type Workers = HashMap<String, Load>;

/// Jobs that are elsewhere than at the last look, and workers that are as busy as they were not.
pub async fn changes(
    store: &Store,
    jobs: &mut Jobs,
    workers: &mut Workers,
) -> store::Result<(Vec<Progress>, Vec<Load>)> {
    let running = store.running(MOST).await?;
    let of_job = |running: &[Running]| Progress {
        job: running[0].job,
        video: running.iter().find_map(|one| one.video),
        running: running.to_vec(),
    };
    let now = running.chunk_by(|a, b| a.job == b.job).map(of_job);
    let progress = changed(jobs, now.map(|progress| (progress.job, progress)).collect());
    let loads = store.loads(MOST).await?.into_iter().map(|load| (load.id.clone(), load));
    Ok((progress, changed(workers, loads.collect())))
}

/// What is new or other than before.
fn changed<K: Eq + Hash, V: PartialEq + Clone>(before: &mut HashMap<K, V>, now: HashMap<K, V>) -> Vec<V> {
    let is_new = |(key, value): &(&K, &V)| before.get(*key) != Some(*value);
    let new = now.iter().filter(is_new).map(|(_, value)| value.clone()).collect();
    *before = now;
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_told() {
        let mut before = HashMap::from([(1, "a"), (2, "b")]);

        let mut told = changed(&mut before, HashMap::from([(1, "a"), (2, "c"), (3, "d")]));

        told.sort();
        assert_eq!(told, ["c", "d"]);
        assert!(changed(&mut before, HashMap::from([(1, "a")])).is_empty());
    }
}
