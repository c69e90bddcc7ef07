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
    /// For orchestrators: something was committed.
    Settle,
    /// For orchestrators: something failed.
    Judge,
    /// For orchestrators: the outside is to be told something.
    Deliver,
}

impl Topic {
    const ALL: [Topic; 4] = [Topic::Ready, Topic::Settle, Topic::Judge, Topic::Deliver];

    fn name(self) -> &'static str {
        match self {
            Topic::Ready => "ready",
            Topic::Settle => "settle",
            Topic::Judge => "judge",
            Topic::Deliver => "deliver",
        }
    }
}

#[derive(Clone)]
pub struct Wake {
    local: Arc<Hints>,
    carrier: Arc<Carrier>,
}

/// Counts up with each hint, topic by topic.
#[derive(Default)]
struct Hints([watch::Sender<u64>; 4]);

impl Hints {
    fn up(&self, topic: Topic) {
        self.0[topic as usize].send_modify(|count| *count += 1);
    }

    fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.0[topic as usize].subscribe()
    }
}

enum Carrier {
    Watch {
        reader: SqlitePool,
    },
    Notify {
        pool: PgPool,
        /// Of local hints; the notifier sends what it has not sent yet.
        outgoing: Hints,
        /// Goes with each hint, for its sender hears it too and has heard it before.
        sender: u64,
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
                outgoing: Hints::default(),
                sender: rand::random(),
                can_listen: db.keeps_statements,
            },
            Pool::Sqlite { reader, .. } => Carrier::Watch { reader: reader.clone() },
        };
        Wake { local: Arc::default(), carrier: Arc::new(carrier) }
    }

    /// Hands out hints of this topic. Subscribe, then look for work, then wait: nothing falls in between.
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.local.subscribe(topic)
    }

    pub(crate) fn up(&self, topic: Topic) {
        self.local.up(topic);
        if let Carrier::Notify { outgoing, .. } = &*self.carrier {
            outgoing.up(topic);
        }
    }

    /// Carries hints to and from other processes until dropped.
    pub async fn run(&self) {
        match &*self.carrier {
            Carrier::Watch { reader } => self.watch(reader).await,
            Carrier::Notify { pool, outgoing, sender, can_listen } => {
                let [ready, settle, judge, deliver] =
                    Topic::ALL.map(|topic| notify(pool, outgoing.subscribe(topic), topic, *sender));
                let listen = async {
                    if *can_listen {
                        self.listen(pool, *sender).await;
                    }
                };
                tokio::join!(ready, settle, judge, deliver, listen);
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
        for topic in Topic::ALL {
            self.local.up(topic);
        }
    }

    async fn listen(&self, pool: &PgPool, own: u64) {
        loop {
            if let Err(error) = self.listen_once(pool, own).await {
                tracing::debug!(%error, "not listening for wake-ups, polling meanwhile");
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    async fn listen_once(&self, pool: &PgPool, own: u64) -> sqlx::Result<()> {
        let mut listener = PgListener::connect_with(pool).await?;
        listener.listen(CHANNEL).await?;
        // What happened while nobody listened is found by looking.
        self.up_here();
        loop {
            let hint = listener.recv().await?;
            let Some((name, sender)) = hint.payload().split_once(' ') else { continue };
            let topic = Topic::ALL.into_iter().find(|topic| topic.name() == name);
            if let Some(topic) = topic.filter(|_| sender != own.to_string()) {
                self.local.up(topic);
            }
        }
    }
}

async fn notify(pool: &PgPool, mut hints: watch::Receiver<u64>, topic: Topic, sender: u64) {
    let notify = format!("NOTIFY {CHANNEL}, '{} {sender}'", topic.name());
    while hints.changed().await.is_ok() {
        // The simple protocol: outside a transaction, a pooler could send two halves to two servers.
        if let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(notify.as_str())).execute(pool).await {
            tracing::debug!(%error, "a wake-up was lost, a poll will find the work");
        }
        tokio::time::sleep(GATHER).await;
    }
}
