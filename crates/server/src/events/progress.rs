//! How far work is and how busy workers are: told while somebody listens, and only what has changed.

use super::frame::Frame;
use crate::app::App;
use serde::Serialize;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;
use store::running::{Load, Running};

const EVERY: Duration = Duration::from_secs(1);
const MOST: i64 = 2000;

#[derive(Serialize)]
struct Progress<'a> {
    running: &'a [Running],
}

pub async fn run(app: &App) {
    let (mut jobs, mut workers) = (HashMap::new(), HashMap::new());
    loop {
        app.events.somebody().await;
        if let Err(error) = look(app, &mut jobs, &mut workers).await {
            tracing::debug!("cannot tell how far work is: {error}");
        }
        tokio::time::sleep(EVERY).await;
    }
}

async fn look(
    app: &App,
    jobs: &mut HashMap<i64, Vec<Running>>,
    workers: &mut HashMap<String, Load>,
) -> store::Result<()> {
    let running = app.store.running(MOST).await?;
    let now = running.chunk_by(|a, b| a.job == b.job).map(|of_job| (of_job[0].job.0, of_job.to_vec()));
    for (job, running) in changed(jobs, now.collect()) {
        let video = running.first().and_then(|one| one.video).map(|id| id.0);
        app.events.tell(Frame::passing("progress", Some(job), video, &Progress { running: &running }));
    }
    let loads = app.store.loads(MOST).await?.into_iter().map(|load| (load.id.clone(), load));
    for (_, load) in changed(workers, loads.collect()) {
        app.events.tell(Frame::passing("worker", None, None, &load));
    }
    Ok(())
}

/// What is new or other than before.
fn changed<K: Eq + Hash + Clone, V: PartialEq + Clone>(
    before: &mut HashMap<K, V>,
    now: HashMap<K, V>,
) -> Vec<(K, V)> {
    let is_new = |(key, value): &(&K, &V)| before.get(*key) != Some(*value);
    let new = now.iter().filter(is_new).map(|(key, value)| (key.clone(), value.clone())).collect();
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
        assert_eq!(told, [(2, "c"), (3, "d")]);
        assert!(changed(&mut before, HashMap::from([(1, "a")])).is_empty());
    }
}
