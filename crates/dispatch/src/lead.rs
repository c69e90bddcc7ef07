//! One leader among all processes, for duties that one can do for all. By a lock in Redis; where there is none, or it does
//! not answer, by one in PostgreSQL. Two may lead for a moment, when they see different things: it costs work and no more.

use crate::Redis;
use crate::lock::Lock;
use std::time::Duration;
use store::Store;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// How long a leader that says nothing leads.
const TERM: Duration = Duration::from_secs(5);

/// How often others ask whether the place is free.
const ASK: Duration = Duration::from_secs(2);

/// Stands for `name` until `shutdown`, and says in `leads` whether it leads.
pub async fn stand(
    name: &'static str,
    redis: Option<Redis>,
    store: Store,
    leads: watch::Sender<bool>,
    shutdown: CancellationToken,
) {
    while !shutdown.is_cancelled() {
        match redis.as_ref().filter(|redis| redis.is_up()) {
            Some(redis) => by_redis(name, redis, &leads, &shutdown).await,
            None => tokio::select! {
                () = by_database(name, redis.as_ref(), &store, &leads) => {}
                () = shutdown.cancelled() => {}
            },
        }
        say(name, &leads, false);
        tokio::select! {
            () = sleep(ASK) => {}
            () = shutdown.cancelled() => {}
        }
    }
}

/// Returns when it does not lead, or does no longer.
pub(crate) async fn by_redis(
    name: &'static str,
    redis: &Redis,
    leads: &watch::Sender<bool>,
    shutdown: &CancellationToken,
) {
    let Ok(Some(mut held)) = Lock::new(redis, name, TERM).try_acquire().await else { return };
    say(name, leads, true);
    tokio::select! {
        () = held.lost() => tracing::warn!("lost the lead of {name}: another has it, or Redis is away"),
        () = shutdown.cancelled() => {
            let _ = held.release().await;
        }
    }
}

async fn by_database(name: &'static str, redis: Option<&Redis>, store: &Store, leads: &watch::Sender<bool>) {
    let Ok(Some(mut lead)) = store.try_lead(name).await else { return };
    say(name, leads, true);
    // A Redis that is back decides from then on.
    while !redis.is_some_and(Redis::is_up) && lead.is_kept().await {
        sleep(ASK).await;
    }
}

fn say(name: &str, leads: &watch::Sender<bool>, is_leader: bool) {
    if leads.send_replace(is_leader) != is_leader {
        tracing::debug!("{} {name}", if is_leader { "leading" } else { "following" });
    }
}
