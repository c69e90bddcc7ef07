//! What can go wrong with a store, by what a caller does about it.

use rules::{JobId, Unknown, job, spec, task, video, worker};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("job {0} is over and was archived: it can be shown, and not changed; submit it again")]
    Archived(JobId),
    #[error("idempotency key `{0}` was used for a different job; use a new key, or send the same job again")]
    KeyReused(String),
    #[error(
        "the job was changed by someone else meanwhile (version {found}, not {expected}); look at it again"
    )]
    VersionMismatch { expected: i64, found: i64 },
    #[error("{0}")]
    Refused(#[from] Refusal),
    #[error("{0}")]
    BadSpec(#[from] spec::Bad),
    #[error("the slug `{0}` is taken; choose another")]
    Taken(String),
    #[error("{0}")]
    Invalid(String),
    #[error("the API key is not known, or was revoked")]
    BadKey,
    #[error(
        "the database has schema version {found}, and this program knows only up to {known}; \
         use the newer program that made it"
    )]
    Newer { found: i64, known: i64 },
    #[error("the database has schema version {found}, and this program needs {known}; run `vodmill migrate`")]
    Older { found: i64, known: i64 },
    #[error("the database cannot be written: {0}; check the file's and its folder's permissions")]
    ReadOnly(String),
    /// A standby that takes over can be written a moment later.
    #[error(
        "the database can only be read for now: it is a standby, or `default_transaction_read_only` is on ({0})"
    )]
    Standby(String),
    #[error("the disk that holds the database is full: {0}; make room and go on, nothing is lost")]
    Full(String),
    #[error("the database cannot be reached")]
    Unavailable(#[source] sqlx::Error),
    /// For as long as a connection is waited for.
    #[error(
        "the database cannot be reached: it does not answer, or it has no connection left (max_connections), or all of this \
         program's own are in use (database_connections)"
    )]
    NoConnection,
    /// The same transaction, begun again, may pass. Never leaves the store.
    #[error("the transaction met another")]
    Contention(#[source] sqlx::Error),
    #[error("the database holds something this program does not understand: {0}")]
    Corrupt(#[from] Unknown),
    #[error("the database holds malformed JSON: {0}")]
    BadJson(#[from] serde_json::Error),
    #[error("database")]
    Database(#[source] sqlx::Error),
}

/// A no by the rules: not a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{0}")]
    Task(#[from] task::Refusal),
    #[error("{0}")]
    Job(#[from] job::Refusal),
    #[error("{0}")]
    Video(#[from] video::Refusal),
    #[error("{0}")]
    Worker(#[from] worker::Refusal),
}

macro_rules! refusals {
    ($($machine:ident),+) => {$(
        impl From<$machine::Refusal> for Error {
            fn from(refusal: $machine::Refusal) -> Self {
                Error::Refused(refusal.into())
            }
        }
    )+};
}
refusals!(task, job, video, worker);

impl Error {
    /// Whether the database is away, and the same call may succeed once it is back.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable(_) | Error::NoConnection | Error::Full(_) | Error::Standby(_))
    }
}

impl Error {
    /// What was read without a lock is no longer so.
    pub(crate) fn moved_meanwhile() -> Self {
        Error::Contention(sqlx::Error::Protocol("a task was moved by another transaction meanwhile".into()))
    }

    /// Whether a statement failed for want of its table: nobody has migrated this database.
    pub(crate) fn is_missing_table(&self) -> bool {
        let Error::Database(sqlx::Error::Database(error)) = self else { return false };
        error.code().as_deref() == Some("42P01") || error.message().starts_with("no such table")
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        let Some(database) = error.as_database_error() else {
            return match error {
                sqlx::Error::RowNotFound => Error::NotFound("row"),
                sqlx::Error::Io(_)
                | sqlx::Error::Tls(_)
                | sqlx::Error::Protocol(_)
                | sqlx::Error::PoolClosed
                | sqlx::Error::WorkerCrashed => Error::Unavailable(error),
                sqlx::Error::PoolTimedOut => Error::NoConnection,
                other => Error::Database(other),
            };
        };
        let message = database.message().to_owned();
        let code = database.code().unwrap_or_default().into_owned();
        if database.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
            return sqlite(&code, message, error);
        }
        match code.as_str() {
            // serialization failure, deadlock, lock not available in time
            "40001" | "40P01" | "55P03" => Error::Contention(error),
            "53100" => Error::Full(message),
            "25006" => Error::Standby(message),
            // connection trouble, too many connections, shutting down, starting up, idle in transaction
            code if code.starts_with("08") || code.starts_with("57P") => Error::Unavailable(error),
            "53300" | "25P03" | "53400" => Error::Unavailable(error),
            _ => Error::Database(error),
        }
    }
}

/// The file beside the database that its readers share could not grow: a full disk, by another name.
const SQLITE_IOERR_SHMSIZE: i64 = 4874;

/// SQLite's extended codes carry the primary one in their low byte.
fn sqlite(code: &str, message: String, error: sqlx::Error) -> Error {
    let code = code.parse::<i64>().unwrap_or(0);
    if code == SQLITE_IOERR_SHMSIZE {
        return Error::Full(message);
    }
    match code & 0xff {
        5 | 6 => Error::Contention(error),
        8 => Error::ReadOnly(message),
        13 => Error::Full(message),
        10 | 14 => Error::Unavailable(error),
        _ => Error::Database(error),
    }
}
