//! What the database itself carries from process to process.
//!
//! PostgreSQL carries hints by NOTIFY, sent outside the transactions that cause them and at most every few milliseconds,
//! for NOTIFY locks the whole database at commit. SQLite carries nothing, but a file that another has changed says so
//! when it is asked.

use super::{Topic, Wake};
use crate::db::{Db, Pool};
use sqlx::postgres::{PgListener, PgPool};
use sqlx::sqlite::SqlitePool;
use std::time::Duration;

pub(super) enum Carrier {
    Watch {
        reader: SqlitePool,
    },
    Notify {
        pool: PgPool,
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

impl Carrier {
    pub fn new(db: &Db) -> Self {
        match &db.pool {
            Pool::Postgres(pool) => Carrier::Notify {
                pool: pool.clone(),
                sender: rand::random(),
                can_listen: db.keeps_statements,
            },
            Pool::Sqlite { reader, .. } => Carrier::Watch { reader: reader.clone() },
        }
    }

    pub async fn run(&self, wake: &Wake) {
        match self {
            Carrier::Watch { reader } => watch(wake, reader).await,
            Carrier::Notify { pool, sender, can_listen } => {
                let [ready, settle, judge, deliver, event] =
                    Topic::ALL.map(|topic| notify(wake, pool, topic, *sender));
                let listen = async {
                    if *can_listen {
                        listen(wake, pool, *sender).await;
                    }
                };
                tokio::join!(ready, settle, judge, deliver, event, listen);
            }
        }
    }

    /// A SQLite file says itself that it has changed.
    pub async fn send(&self, wake: &Wake) {
        let Carrier::Notify { pool, sender, .. } = self else { return };
        for topic in Topic::ALL.into_iter().filter(|topic| wake.0.notify.are_any(*topic)) {
            say(pool, &words(topic, *sender)).await;
        }
    }
}

async fn watch(wake: &Wake, reader: &SqlitePool) {
    loop {
        if let Err(error) = watch_once(wake, reader).await {
            tracing::debug!(%error, "cannot watch the database file, polling meanwhile");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn watch_once(wake: &Wake, reader: &SqlitePool) -> sqlx::Result<()> {
    let mut connection = reader.acquire().await?;
    let mut seen = None;
    loop {
        let (version,): (i64,) = sqlx::query_as("PRAGMA data_version").fetch_one(&mut *connection).await?;
        if seen.replace(version).is_some_and(|before| before != version) {
            wake.hear_all();
        }
        tokio::time::sleep(ASK).await;
    }
}

async fn listen(wake: &Wake, pool: &PgPool, own: u64) {
    loop {
        if let Err(error) = listen_once(wake, pool, own).await {
            tracing::debug!(%error, "not listening for wake-ups, polling meanwhile");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn listen_once(wake: &Wake, pool: &PgPool, own: u64) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen(CHANNEL).await?;
    wake.hear_all();
    loop {
        let hint = listener.recv().await?;
        let Some((name, sender)) = hint.payload().split_once(' ') else { continue };
        if let Some(topic) = Topic::named(name).filter(|_| sender != own.to_string()) {
            wake.hear(topic);
        }
    }
}

async fn notify(wake: &Wake, pool: &PgPool, topic: Topic, sender: u64) {
    let notify = words(topic, sender);
    let mut hints = wake.0.notify.subscribe(topic);
    while hints.changed().await.is_ok() {
        say(pool, &notify).await;
        tokio::time::sleep(GATHER).await;
    }
}

fn words(topic: Topic, sender: u64) -> String {
    format!("NOTIFY {CHANNEL}, '{} {sender}'", topic.name())
}

async fn say(pool: &PgPool, notify: &str) {
    // The simple protocol: outside a transaction, a pooler could send two halves to two servers.
    if let Err(error) = sqlx::raw_sql(sqlx::AssertSqlSafe(notify)).execute(pool).await {
        tracing::debug!(%error, "a wake-up was lost, a poll will find the work");
    }
}
