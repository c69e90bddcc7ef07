//! Opening a store: where it is, and how it behaves.

use crate::db::{Clock, Db, Pool};
use crate::error::{Error, Result};
use crate::fullness::Fullness;
use crate::machine_clock::MachineClock;
use crate::wake::Wake;
use crate::{Store, migrate, timeline};
use rules::Millis;
use sqlx::Connection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How a store behaves. The database's connection string is not part of it: it may hold a password.
#[derive(Clone)]
pub struct Options {
    /// How long a claim or a renewal lasts. Default 60 s.
    pub lease: Millis,
    /// How often workers send a heartbeat; CPU workers defer to GPU workers for two of these. Default 30 s.
    pub heartbeat_interval: Millis,
    /// A worker not heard of for this long is offline. Default 5 min.
    pub offline_after: Millis,
    /// Connections to PostgreSQL. Default 10.
    pub connections: u32,
    /// PostgreSQL is reached through a pooler in transaction mode. Default no.
    pub is_pooled: bool,
    /// Also write what changed to disk before a commit returns. Default yes; without, a power cut may lose the
    /// last second on SQLite.
    pub is_durable: bool,
    /// How many tasks of one user may run at a time. Default: any number.
    pub max_running_per_user: Option<u32>,
    /// A remote worker is suspended at so many rejected reports within `rejection_window`; 0: never. Default 5.
    pub suspend_after: u32,
    /// Default 1 h.
    pub rejection_window: Millis,
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            lease: Millis::from_secs(60),
            heartbeat_interval: Millis::from_secs(30),
            offline_after: Millis::from_secs(300),
            connections: 10,
            is_pooled: false,
            is_durable: true,
            max_running_per_user: None,
            suspend_after: 5,
            rejection_window: Millis::from_secs(3600),
            clock: Clock::Database,
        }
    }
}

/// Where a database is, from its URL.
#[derive(Clone)]
pub enum Location {
    Postgres(Box<PgConnectOptions>),
    Sqlite(PathBuf),
}

impl FromStr for Location {
    type Err = Error;

    fn from_str(url: &str) -> Result<Self> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            let options = PgConnectOptions::from_str(url)
                .map_err(|error| Error::Invalid(format!("the PostgreSQL URL cannot be read: {error}")))?;
            return Ok(Location::Postgres(Box::new(options.application_name("vodmill"))));
        }
        match url.strip_prefix("sqlite:") {
            Some(path) if !path.trim_start_matches('/').is_empty() => {
                let path = path.strip_prefix("//").unwrap_or(path);
                Ok(Location::Sqlite(PathBuf::from(path)))
            }
            _ => Err(Error::Invalid(
                "the database URL must begin with `postgres://` or be `sqlite:` and a file's path".into(),
            )),
        }
    }
}

impl Store {
    /// Opens a database whose schema is current. A SQLite file is made and migrated on the way; PostgreSQL is
    /// migrated by [`Store::migrate`] alone, for it may serve others meanwhile.
    pub async fn open(location: &Location, options: Options) -> Result<Store> {
        let db = connect(location, &options).await?;
        match location {
            Location::Sqlite(_) => migrate::run(&db).await.map(drop)?,
            Location::Postgres(_) => migrate::check(&db).await?,
        }
        db.begin_clock().await?;
        Ok(Store { wake: Wake::new(&db), db, options: Arc::new(options) })
    }

    /// Opens a database that must exist, and writes nothing to it.
    pub async fn open_existing(location: &Location, options: Options) -> Result<Store> {
        if let Location::Sqlite(path) = location
            && !path.exists()
        {
            return Err(Error::Invalid(format!("there is no database at {}", path.display())));
        }
        let db = connect(location, &options).await?;
        migrate::check(&db).await?;
        db.begin_clock().await?;
        Ok(Store { wake: Wake::new(&db), db, options: Arc::new(options) })
    }

    /// Brings the schema up to date; the names of the migrations that were missing.
    pub async fn migrate(location: &Location, options: Options) -> Result<Vec<&'static str>> {
        let db = connect(location, &options).await?;
        migrate::run(&db).await
    }
}

async fn connect(location: &Location, options: &Options) -> Result<Db> {
    let pool = match location {
        Location::Postgres(connect) => postgres(connect, options).await?,
        Location::Sqlite(path) => sqlite(path, options).await?,
    };
    let whose = if matches!(pool, Pool::Postgres(_)) { "PostgreSQL's" } else { "the machine's" };
    Ok(Db {
        pool,
        clock: options.clock.clone(),
        machine: MachineClock::new(whose),
        keeps_statements: !options.is_pooled,
        full: Fullness::default(),
    })
}

async fn postgres(connect: &PgConnectOptions, options: &Options) -> Result<Pool> {
    let pool = PgPoolOptions::new()
        .max_connections(options.connections)
        .acquire_timeout(Duration::from_secs(15))
        .after_connect(|connection, _| {
            Box::pin(async move {
                timeline::follow_history(connection).await;
                Ok(())
            })
        })
        .connect_lazy_with(connect.clone());
    match pool.acquire().await {
        // The pool waits for a server that may be starting, and then says only that it has waited.
        Err(sqlx::Error::PoolTimedOut) => PgConnection::connect_with(connect).await.map(drop)?,
        reached => drop(reached?),
    }
    Ok(Pool::Postgres(pool))
}

async fn sqlite(path: &PathBuf, options: &Options) -> Result<Pool> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| {
            Error::Invalid(format!("cannot make the folder {}: {error}", folder.display()))
        })?;
    }
    let durability = if options.is_durable {
        SqliteSynchronous::Full
    } else {
        SqliteSynchronous::Normal
    };
    let connect = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(durability)
        .foreign_keys(true)
        .busy_timeout(Duration::from_secs(5))
        .pragma("cache_size", "-16000")
        .pragma("wal_autocheckpoint", "4000")
        // A batch's rows at once: each time the buffer is full, two threads wait for each other.
        .row_buffer_size(1000);
    let pool = |size: u32| {
        SqlitePoolOptions::new()
            .max_connections(size)
            .acquire_timeout(Duration::from_secs(300))
            // A full disk makes SQLite roll back by itself, and sqlx then counts a transaction that is none: such a
            // connection would refuse every other one.
            .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
            .idle_timeout(None)
            .max_lifetime(None)
    };
    let writer = crate::db::again(|| async { Ok(pool(1).connect_with(connect.clone()).await?) })
        .await
        .map_err(|error| at(path, error))?;
    Ok(Pool::Sqlite { writer, reader: pool(4).connect_lazy_with(connect) })
}

/// A file that was closed in good order cannot even be opened where nothing may be written: SQLite wants to put others
/// beside it, and says only that.
fn is_read_only(path: &std::path::Path) -> bool {
    let opened = std::fs::OpenOptions::new().append(true).open(path);
    opened.is_err_and(|error| {
        matches!(error.kind(), ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied)
    })
}

fn at(path: &std::path::Path, error: Error) -> Error {
    match error {
        Error::Unavailable(source) | Error::Database(source) if is_read_only(path) => {
            Error::ReadOnly(format!("{}: {source}", path.display()))
        }
        Error::Unavailable(source) | Error::Database(source) => {
            Error::Invalid(format!("cannot open the database {}: {source}", path.display()))
        }
        other => other,
    }
}
