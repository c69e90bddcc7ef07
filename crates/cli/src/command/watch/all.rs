//! All jobs at once: a line for each change.

use crate::office::{Bell, Office};
use crate::{Done, output};
use rules::JobId;
use std::collections::HashMap;
use store::job::{Filter, Job};

/// Those that change are among the newest.
const NEWEST: i64 = 200;

pub async fn follow(office: &Office, json: bool) -> anyhow::Result<Done> {
    let mut bell = Bell::new(office, None).await;
    let mut known: Option<HashMap<JobId, String>> = None;
    loop {
        match office.jobs(&Filter { limit: Some(NEWEST), ..Filter::default() }).await {
            Ok(jobs) => known = Some(show(known, jobs, json)),
            Err(error) if error.is_unavailable() && known.is_some() => {}
            Err(error) => return Err(error.into()),
        }
        bell.rings().await;
    }
}

/// Prints what is new, oldest first. What had ended before anybody looked is no news.
fn show(known: Option<HashMap<JobId, String>>, jobs: Vec<Job>, json: bool) -> HashMap<JobId, String> {
    let mut seen = HashMap::new();
    for job in jobs.into_iter().rev() {
        let line = if json { as_json(&job) } else { as_text(&job) };
        let is_news = match &known {
            None => !job.state.is_final(),
            Some(known) => known.get(&job.id) != Some(&line),
        };
        if is_news {
            output::line(&line);
        }
        seen.insert(job.id, line);
    }
    seen
}

fn as_text(job: &Job) -> String {
    let error = job.error.as_ref().map(|error| format!(": {}", output::short(error, 100)));
    let (done, error) = (format!("{}/{}", job.done, job.tasks), error.unwrap_or_default());
    format!("job {} ({}) is {}, {done} tasks done{error}", job.id, output::text(&job.name), job.state)
}

fn as_json(job: &Job) -> String {
    serde_json::json!({
        "job": job.id, "name": job.name, "state": job.state, "video": job.video,
        "tasks": job.tasks, "done": job.done, "error": job.error,
    })
    .to_string()
}
