mod all;
mod display;

use crate::office::{Bell, Error, Office};
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use anyhow::anyhow;
use display::Display;
use rules::JobId;
use rules::job::State;

/// Follow a job until it ends, a video's newest job, or all jobs
///
/// Exits with 0 when the job completes and 1 when it fails or is cancelled. Ctrl-C stops the watching, not the job.
#[derive(clap::Args)]
pub struct Args {
    /// A job's number, or a video's slug. Default: all jobs
    #[arg(value_name = "JOB|VIDEO")]
    what: Option<String>,
    /// Print a line of JSON whenever something changes
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        match &self.what {
            None => until_interrupted(all::follow(&office, self.json)).await,
            Some(what) => follow(&office, named(&office, what).await?, self.json).await,
        }
    }
}

async fn named(office: &Office, what: &str) -> anyhow::Result<JobId> {
    if what.bytes().all(|byte| byte.is_ascii_digit()) {
        return what.parse::<JobId>().map_err(|bad| Usage(bad.to_string()).into());
    }
    let job = office.video(what).await?.video.job;
    job.ok_or_else(|| anyhow!("nothing is being made of the video {what}"))
}

pub async fn until_interrupted(
    following: impl Future<Output = anyhow::Result<Done>>,
) -> anyhow::Result<Done> {
    tokio::select! {
        ended = following => ended,
        _ = tokio::signal::ctrl_c() => Ok(Done::Interrupted),
    }
}

pub async fn follow(office: &Office, job: JobId, json: bool) -> anyhow::Result<Done> {
    let mut display = Display::new(json);
    let done = until_interrupted(look_until_end(office, job, &mut display)).await?;
    if matches!(done, Done::Interrupted) {
        output::error_line(&format!("job {job} goes on; `vodmill watch {job}` follows it again"));
    }
    Ok(done)
}

async fn look_until_end(office: &Office, id: JobId, display: &mut Display) -> anyhow::Result<Done> {
    let (mut bell, mut has_been_seen) = (Bell::new(office, Some(id)).await, false);
    loop {
        match look(office, id, display).await {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => has_been_seen = true,
            // Who was there, and is away for a moment, comes back.
            Err(error) if error.is_unavailable() && has_been_seen => {}
            Err(error) => return Err(error.into()),
        }
        bell.rings().await;
    }
}

async fn look(office: &Office, id: JobId, display: &mut Display) -> Result<Option<Done>, Error> {
    let detail = office.job(id).await?;
    display.show(&detail);
    Ok(match detail.job.state {
        State::Completed => Some(Done::Yes),
        State::Failed | State::Cancelled => Some(Done::No),
        _ => None,
    })
}
