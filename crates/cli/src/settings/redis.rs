//! Redis: whether there is one, and what rests on it.

use super::{Settings, Usage};
use dispatch::{Mode, Redis};
use serde::Deserialize;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    Database,
    Redis,
    Hybrid,
}

impl Settings {
    pub fn queue_mode(&self) -> Mode {
        match self.job_queue_mode {
            None | Some(QueueMode::Database) => Mode::Database,
            Some(QueueMode::Redis) => Mode::Redis,
            Some(QueueMode::Hybrid) => Mode::Hybrid,
        }
    }

    /// The Redis that is configured. One that does not answer is an error in mode `redis` alone.
    pub async fn redis(&self) -> anyhow::Result<Option<Redis>> {
        let mode = self.queue_mode();
        let Some(url) = self.redis_url.as_deref().filter(|url| !url.is_empty()) else {
            return match mode {
                Mode::Database => Ok(None),
                Mode::Redis | Mode::Hybrid => Err(Usage(
                    "job_queue_mode wants a Redis: name it with redis_url, or leave hints to the database"
                        .into(),
                )
                .into()),
            };
        };
        let prefix = self.redis_prefix.as_deref().unwrap_or("vodmill:");
        match Redis::open(url, prefix, mode).await {
            Ok(redis) => Ok(Some(redis)),
            Err(error @ dispatch::Error::Url(_)) => Err(Usage(error.to_string()).into()),
            Err(error) => {
                let how = "start it, or set job_queue_mode to hybrid, which goes on without it";
                Err(anyhow::Error::new(error)
                    .context(format!("job_queue_mode is redis, which needs it: {how}")))
            }
        }
    }
}
