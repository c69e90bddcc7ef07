//! The schema and its versions: the same names on both engines, applied in one locked transaction.

use crate::db::{Db, Step, Tx, again};
use crate::error::{Error, Result};

pub struct Migration {
    pub name: &'static str,
    /// Programs that know this version can work with the schema that it makes: it takes nothing away from them.
    oldest: Option<i64>,
    postgres: &'static str,
    sqlite: &'static str,
}

macro_rules! migrations {
    (@oldest) => { None };
    (@oldest $oldest:literal) => { Some($oldest) };
    ($($name:literal $(fits $oldest:literal)?),+ $(,)?) => {
        pub const MIGRATIONS: &[Migration] = &[$(Migration {
            name: $name,
            oldest: migrations!(@oldest $($oldest)?),
            postgres: include_str!(concat!("../migrations/postgres/", $name, ".sql")),
            sqlite: include_str!(concat!("../migrations/sqlite/", $name, ".sql")),
        }),+];
    };
}

// A version is its place in this list, from 1. One that only adds what older programs need not know says from which version
// on they fit: `"0007_lean" fits 6`.
migrations![
    "0001_core",
    "0002_server",
    "0003_session",
    "0004_owner",
    "0005_trace",
    "0006_compatible",
    "0007_lean" fits 6,
    "0008_log_order" fits 6,
    "0009_audit_runs",
    "0010_one_row",
    "0011_step_token" fits 10,
    "0012_timeline" fits 10,
    "0013_refusal" fits 10,
    "0014_worker_bounds" fits 10,
    "0015_session_secret" fits 10,
    "0016_durable_progress" fits 10,
];

const KNOWN: i64 = MIGRATIONS.len() as i64;

/// The oldest version whose programs work with the schema that this program makes.
pub fn oldest_that_fits() -> i64 {
    let needed = (1..).zip(MIGRATIONS).map(|(version, migration)| migration.oldest.unwrap_or(version));
    needed.max().unwrap_or_default()
}

const MAKE_TABLE: &str = "
CREATE TABLE IF NOT EXISTS schema_version (
    version    BIGINT PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at BIGINT NOT NULL
)";

/// Two programs that start at once take turns; on SQLite the write lock sees to it.
const LOCK: &str = "SELECT pg_advisory_xact_lock(7301856490)";

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM schema_version";

const RECORD: &str = "INSERT INTO schema_version (version, name, applied_at) VALUES ($1, $2, $3)";

const RECORD_COMPATIBLE: &str = "INSERT INTO schema_compatible (version, oldest) VALUES ($1, $2)";

/// What a program must know at least. Every schema that is newer than this program has the table.
const NEEDED: &str = "
SELECT coalesce(max(coalesce(c.oldest, v.version)), 0)
FROM schema_version v LEFT JOIN schema_compatible c ON c.version = v.version";

pub(crate) async fn run(db: &Db) -> Result<Vec<&'static str>> {
    match check(db).await {
        Ok(()) => Ok(Vec::new()),
        Err(Error::Older { .. }) => again(|| run_once(db)).await,
        Err(error) => Err(error),
    }
}

async fn run_once(db: &Db) -> Result<Vec<&'static str>> {
    let mut tx = db.write(Step::Migrate).await?;
    if tx.is_postgres() {
        tx.raw(LOCK).await?;
    }
    tx.query(MAKE_TABLE).execute().await?;
    let found = version(&mut tx).await?;
    fits(&mut tx, found).await?;
    let mut applied = Vec::new();
    for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > found) {
        let sql = if tx.is_postgres() { migration.postgres } else { migration.sqlite };
        tx.raw(sql).await?;
        let now = tx.now();
        tx.query(RECORD).bind(version).bind(migration.name).bind(now).execute().await?;
        if let Some(oldest) = migration.oldest {
            tx.query(RECORD_COMPATIBLE).bind(version).bind(oldest).execute().await?;
        }
        applied.push(migration.name);
    }
    tx.commit().await?;
    Ok(applied)
}

/// Refuses a database that this program does not fit.
pub(crate) async fn check(db: &Db) -> Result<()> {
    let mut tx = db.read().await?;
    let found = match version(&mut tx).await {
        Ok(found) => found,
        Err(error) if error.is_missing_table() => 0,
        Err(error) => return Err(error),
    };
    if found < KNOWN {
        Err(Error::Older { found, known: KNOWN })
    } else {
        fits(&mut tx, found).await
    }
}

/// Whether this program knows enough of a schema that may be newer.
async fn fits(tx: &mut Tx, found: i64) -> Result<()> {
    let needed = if found > KNOWN { tx.query(NEEDED).one::<(i64,)>().await?.0 } else { found };
    if needed > KNOWN { Err(Error::Newer { found, known: KNOWN }) } else { Ok(()) }
}

async fn version(tx: &mut Tx) -> Result<i64> {
    Ok(tx.query(VERSION).one::<(i64,)>().await?.0)
}
