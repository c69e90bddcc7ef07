//! PostgreSQL's transactions, which callers may abandon at any moment.
//!
//! sqlx has one of its own, but counts it only once BEGIN is answered: a caller that goes away before, as those of a
//! server do, leaves a connection in a transaction that nobody knows of, and whoever is given it next would be in it.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgTransactionManager, Postgres};
use sqlx::{Error, Result, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;
use std::io;
use std::time::Duration;
use tokio::time::timeout;

/// How long a statement of the program's own may go without an answer. The other end may be gone and nobody says so: then
/// TCP waits for a quarter of an hour, or for ever. Longer than the slowest of them takes on a slow disk.
const SILENCE: Duration = Duration::from_secs(300);

/// The same for migrations, and for what people ask.
const LONG_SILENCE: Duration = Duration::from_secs(3600);

/// How long the end of a transaction may take that was not committed.
const FAREWELL: Duration = Duration::from_secs(30);

/// How long the other end may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Usual,
    Long,
}

impl Patience {
    fn span(self) -> Duration {
        let usual = match self {
            Patience::Usual => SILENCE,
            Patience::Long => LONG_SILENCE,
        };
        failpoint::shortened("VODMILL_DATABASE_SILENCE_SECONDS", usual)
    }
}

/// Dropped without [`Transaction::commit`], it never happened.
pub struct Transaction {
    connection: PoolConnection<Postgres>,
    state: State,
    patience: Patience,
}

enum State {
    /// BEGIN is under way, or something was not answered; whether it was heard is not known.
    Unknown,
    Open,
    Ended,
}

impl Transaction {
    pub async fn begin(pool: &PgPool, statement: &'static str, patience: Patience) -> Result<Self> {
        let connection = pool.acquire().await?;
        let mut transaction = Transaction { connection, state: State::Unknown, patience };
        let statement = Some(statement.into_sql_str());
        transaction
            .answered(async |connection| PgTransactionManager::begin(connection, statement).await)
            .await?;
        transaction.state = State::Open;
        Ok(transaction)
    }

    /// Asks, and gives the connection up if no answer comes.
    pub async fn answered<T>(&mut self, ask: impl AsyncFnOnce(&mut PgConnection) -> Result<T>) -> Result<T> {
        let patience = self.patience.span();
        match timeout(patience, ask(&mut self.connection)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.state = State::Unknown;
                let silent = format!("the database has not answered for {patience:?}");
                Err(Error::Io(io::Error::new(io::ErrorKind::TimedOut, silent)))
            }
        }
    }

    pub async fn commit(mut self) -> Result<()> {
        self.answered(async |connection| PgTransactionManager::commit(connection).await).await?;
        self.state = State::Ended;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        match self.state {
            State::Unknown => return self.connection.close_on_drop(),
            State::Open => PgTransactionManager::start_rollback(&mut self.connection),
            State::Ended => {}
        }
        // The pool asks whether the connection is well, and would wait for ever for one that fell silent.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(timeout(FAREWELL, self.connection.return_to_pool()));
        }
    }
}
