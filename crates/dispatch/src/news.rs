//! Hears from the [`crate::herald`] what is true for a moment: how far work is, how busy workers are.

use crate::ear::Ear;
use crate::{Error, Pace, Redis};
use rules::{JobId, VideoId};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub enum News {
    Progress(Progress),
    /// How busy a worker is.
    Load(Value),
}

/// How far the executions of one job are.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Progress {
    pub job: JobId,
    pub video: Option<VideoId>,
    pub running: Value,
}

/// Gives `hear` what is told, until dropped.
pub async fn listen(redis: &Redis, mut hear: impl FnMut(News)) {
    let mut pace = Pace::new();
    loop {
        match listen_once(redis, &mut hear).await {
            Ok(()) => pace = Pace::new(),
            Err(error) => tracing::debug!("hearing no news, looking instead: {error}"),
        }
        pace.wait().await;
    }
}

/// Returns when the connection is gone.
async fn listen_once(redis: &Redis, hear: &mut impl FnMut(News)) -> Result<(), Error> {
    let status = redis.names().worker_status();
    let mut ear = Ear::open(redis, std::slice::from_ref(&status), &redis.names().progress_patterns()).await?;
    while let Some(message) = ear.next().await {
        let said: String = message.get_payload().unwrap_or_default();
        let news = if message.get_channel_name() == status {
            load(&said)
        } else {
            serde_json::from_str(&said).ok().map(News::Progress)
        };
        // What is no news of ours is nobody's.
        news.into_iter().for_each(&mut *hear);
    }
    Ok(())
}

/// A change of status has an id: it is kept, and told from the database.
fn load(said: &str) -> Option<News> {
    let said: Value = serde_json::from_str(said).ok()?;
    (said.get("worker").is_some() && said.get("id").is_none()).then_some(News::Load(said))
}
