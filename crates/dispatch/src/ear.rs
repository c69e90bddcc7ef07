//! A connection that hears channels, and notices when it has gone deaf.

use crate::{Error, Redis};
use futures_util::StreamExt;
use redis::Msg;
use redis::aio::{PubSub, PubSubSink, PubSubStream};
use std::time::Duration;
use tokio::time::timeout;

/// After so much silence it is asked whether it still hears.
const SILENCE: Duration = Duration::from_secs(3);

/// For its answer.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Ear {
    sink: PubSubSink,
    heard: PubSubStream,
}

impl Ear {
    /// Hears these channels, and those that fit these patterns, from when it returns.
    pub async fn open(redis: &Redis, channels: &[String], patterns: &[String]) -> Result<Self, Error> {
        let mut connection = redis.hear().await?;
        let subscribed = timeout(PATIENCE, subscribe(&mut connection, channels, patterns)).await;
        subscribed.map_err(|_| redis.away("it does not answer"))?.map_err(|error| redis.error(&error))?;
        let (sink, heard) = connection.split();
        Ok(Ear { sink, heard })
    }

    /// The next message; none when the connection is gone.
    pub async fn next(&mut self) -> Option<Msg> {
        loop {
            match timeout(SILENCE, self.heard.next()).await {
                Ok(message) => return message,
                Err(_) => self.is_alive().await.then_some(())?,
            }
        }
    }

    async fn is_alive(&mut self) -> bool {
        matches!(timeout(PATIENCE, self.sink.ping::<redis::Value>()).await, Ok(Ok(_)))
    }
}

async fn subscribe(
    connection: &mut PubSub,
    channels: &[String],
    patterns: &[String],
) -> redis::RedisResult<()> {
    if !channels.is_empty() {
        connection.subscribe(channels).await?;
    }
    if !patterns.is_empty() {
        connection.psubscribe(patterns).await?;
    }
    Ok(())
}
