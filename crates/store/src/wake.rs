//! Wake-ups: who waits for work is told when there may be some. A hint, with a poll behind it: hints get lost.
//!
//! Within a process a hint is a counter that grows. Between processes PostgreSQL carries it by NOTIFY, sent outside
//! the transactions that cause it and at most every few milliseconds, for NOTIFY locks the whole database at commit.
//! SQLite carries nothing, but a file that another has changed says so when it is asked.

use crate::db::{Db, Pool};
use sqlx::postgres::{PgListener, PgPool};
use sqlx::sqlite::SqlitePool;
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
    Watch {
        reader: SqlitePool,
    },
    /// Counts up with each local hint; the notifier sends what it has not sent yet.
    Notify {
        pool: PgPool,
        ready: watch::Sender<u64>,
        settle: watch::Sender<u64>,
        /// A pooler in transaction mode delivers nothing to those who listen through it.
        can_listen: bool,
    },
}

/// How often a SQLite file is asked whether another connection has changed it.
const ASK: Duration = Duration::from_millis(50);

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
            Pool::Sqlite { reader, .. } => Carrier::Watch { reader: reader.clone() },
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

    /// Carries hints to and from other processes until dropped.
    pub async fn run(&self) {
        match &*self.carrier {
            Carrier::Watch { reader } => self.watch(reader).await,
            Carrier::Notify { pool, ready, settle, can_listen } => {
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
    }

    async fn watch(&self, reader: &SqlitePool) {
        loop {
            if let Err(error) = self.watch_once(reader).await {
                tracing::debug!(%error, "cannot watch the database file, polling meanwhile");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn watch_once(&self, reader: &SqlitePool) -> sqlx::Result<()> {
        let mut connection = reader.acquire().await?;
        let mut seen = None;
        loop {
            let (version,): (i64,) =
                sqlx::query_as("PRAGMA data_version").fetch_one(&mut *connection).await?;
            if seen.replace(version).is_some_and(|before| before != version) {
                self.up_here();
            }
            tokio::time::sleep(ASK).await;
        }
    }

    /// Something has happened elsewhere; what, is found by looking.
    fn up_here(&self) {
        for topic in [Topic::Ready, Topic::Settle] {
            self.local(topic).send_modify(|count| *count += 1);
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
        self.up_here();
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
