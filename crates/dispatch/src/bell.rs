//! Wake-ups that everybody hears, by one channel: what is to be settled, judged or delivered, and that something happened.

use crate::ear::Ear;
use crate::{Error, Fallback, Pace, Redis};
use std::time::Duration;
use store::wake::{Topic, Wake};

/// Hints within this time travel as one.
const GATHER: Duration = Duration::from_millis(2);

/// Tells everybody to look.
pub(crate) async fn ring(redis: &Redis, topics: &[Topic]) -> Result<(), Error> {
    let names: Vec<&str> = topics.iter().map(|topic| topic.name()).collect();
    redis.publish(&redis.names().wake(), &format!("{} {}", redis.id(), names.join(" "))).await
}

/// Carries what arises here, until dropped. Of READY it says only that something happened: the rest is a [`crate::hint`].
pub(crate) async fn send(redis: &Redis, fallback: &Fallback<'_>) {
    let [mut ready, mut settle, mut judge, mut deliver, mut event] =
        Topic::ALL.map(|topic| fallback.wake.outgoing(topic));
    loop {
        let mut topics = Vec::new();
        tokio::select! {
            _ = ready.changed() => topics.push(Topic::Event),
            _ = settle.changed() => topics.push(Topic::Settle),
            _ = judge.changed() => topics.push(Topic::Judge),
            _ = deliver.changed() => topics.push(Topic::Deliver),
            _ = event.changed() => topics.push(Topic::Event),
        }
        tokio::time::sleep(GATHER).await;
        let more = [(&mut ready, Topic::Event), (&mut settle, Topic::Settle), (&mut judge, Topic::Judge)];
        let more = more.into_iter().chain([(&mut deliver, Topic::Deliver), (&mut event, Topic::Event)]);
        for (hints, topic) in more {
            if hints.has_changed().unwrap_or(false) {
                hints.mark_unchanged();
                topics.push(topic);
            }
        }
        let sent = ring(redis, &topics).await;
        topics.iter().for_each(|topic| fallback.settle(*topic, &sent));
    }
}

/// Hears what others send, until dropped.
pub(crate) async fn listen(redis: &Redis, wake: &Wake) {
    let mut pace = Pace::new();
    loop {
        if listen_once(redis, wake).await.is_ok() {
            pace = Pace::new();
        }
        pace.wait().await;
    }
}

/// Returns when the connection is gone.
async fn listen_once(redis: &Redis, wake: &Wake) -> Result<(), Error> {
    let mut ear = Ear::open(redis, &[redis.names().wake()], &[]).await?;
    // What happened while nobody listened is found by looking.
    wake.hear_all();
    while let Some(message) = ear.next().await {
        let said: String = message.get_payload().unwrap_or_default();
        let mut words = said.split(' ');
        // What was sent from here has been heard here before.
        if words.next() != Some(redis.id()) {
            words.filter_map(Topic::named).for_each(|topic| wake.hear(topic));
        }
    }
    Ok(())
}
