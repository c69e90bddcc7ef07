//! Wake-ups: who waits for work is told when there may be some. A hint, with a poll behind it: hints get lost.
//!
//! Within a process a hint is a counter that grows. Between processes PostgreSQL carries it by NOTIFY, sent outside
//! the transactions that cause it and at most every few milliseconds, for NOTIFY locks the whole database at commit.

use crate::db::{Db, Pool};
use sqlx::postgres::{PgListener, PgPool};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What there may be to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// For workers: tasks became READY.
    Ready,
    /// For orchestrators: something was committed, failed or submitted.
    Settle,
}

#[derive(Clone)]
pub struct Wake {
    ready: Arc<watch::Sender<u64>>,
    settle: Arc<watch::Sender<u64>>,
    carrier: Arc<Carrier>,
}

enum Carrier {
    None,
    /// Counts up with each local hint; the notifier sends what it has not sent yet.
    Notify {
        pool: PgPool,
        ready: watch::Sender<u64>,
        settle: watch::Sender<u64>,
        /// A pooler in transaction mode delivers nothing to those who listen through it.
        can_listen: bool,
    },
}

const CHANNEL: &str = "vodmill";
/// Hints within this time travel as one.
const GATHER: Duration = Duration::from_millis(2);

impl Wake {
    pub(crate) fn new(db: &Db) -> Self {
        let carrier = match &db.pool {
            Pool::Postgres(pool) => Carrier::Notify {
                pool: pool.clone(),
                ready: watch::channel(0).0,
                settle: watch::channel(0).0,
                can_listen: db.keeps_statements,
            },
            Pool::Sqlite { .. } => Carrier::None,
        };
        Wake {
            ready: Arc::new(watch::channel(0).0),
            settle: Arc::new(watch::channel(0).0),
            carrier: Arc::new(carrier),
        }
    }

    /// Hands out hints of this topic. Subscribe, then look for work, then wait: nothing falls in between.
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.local(topic).subscribe()
    }

    pub(crate) fn up(&self, topic: Topic) {
        self.local(topic).send_modify(|count| *count += 1);
        if let Carrier::Notify { ready, settle, .. } = &*self.carrier {
            let outgoing = if topic == Topic::Ready { ready } else { settle };
            outgoing.send_modify(|count| *count += 1);
        }
    }

    fn local(&self, topic: Topic) -> &watch::Sender<u64> {
        match topic {
            Topic::Ready => &self.ready,
            Topic::Settle => &self.settle,
        }
    }

    /// Carries hints to and from other processes until dropped; returns at once where nothing can carry them.
    pub async fn run(&self) {
        if let Carrier::Notify { pool, ready, settle, can_listen } = &*self.carrier {
            tokio::join!(
                notify(pool, ready.subscribe(), Topic::Ready),
                notify(pool, settle.subscribe(), Topic::Settle),
                async {
                    if *can_listen {
                        self.listen(pool).await;
                    }
                },
            );
        }
    }

    async fn listen(&self, pool: &PgPool) {
        loop {
            if let Err(error) = self.listen_once(pool).await {
                tracing::debug!(%error, "not listening for wake-ups, polling meanwhile");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn listen_once(&self, pool: &PgPool) -> sqlx::Result<()> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        // What happened while nobody listened is found by looking.
        for topic in [Topic::Ready, Topic::Settle] {
            self.local(topic).send_modify(|count| *count += 1);
        }
        loop {
            let hint = listener.recv().await?;
            let topic = if hint.payload() == "ready" { Topic::Ready } else { Topic::Settle };
            self.local(topic).send_modify(|count| *count += 1);
        }
    }
}

async fn notify(pool: &PgPool, mut hints: watch::Receiver<u64>, topic: Topic) {
    while hints.changed().await.is_ok() {
        // The simple protocol: outside a transaction, a pooler could send two halves to two servers.
        let notify = match topic {
            Topic::Ready => "NOTIFY vodmill, 'ready'",
            Topic::Settle => "NOTIFY vodmill, 'settle'",
        };
        if let Err(error) = sqlx::raw_sql(notify).execute(pool).await {
            tracing::debug!(%error, "a wake-up was lost, a poll will find the work");
        }
        tokio::time::sleep(GATHER).await;
    }
}
