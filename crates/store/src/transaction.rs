//! PostgreSQL's transactions, which callers may abandon at any moment.
//!
//! sqlx has one of its own, but counts it only once BEGIN is answered: a caller that goes away before, as those of a
//! server do, leaves a connection in a transaction that nobody knows of, and whoever is given it next would be in it.

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnection, PgPool, PgTransactionManager, Postgres};
use sqlx::{Result, SqlSafeStr};
use sqlx_core::transaction::TransactionManager;

/// Dropped without [`Transaction::commit`], it never happened.
pub struct Transaction {
    connection: PoolConnection<Postgres>,
    state: State,
}

enum State {
    /// BEGIN is under way; whether it was heard is not known.
    Beginning,
    Open,
    Ended,
}

impl Transaction {
    pub async fn begin(pool: &PgPool, statement: &'static str) -> Result<Self> {
        let mut transaction = Transaction { connection: pool.acquire().await?, state: State::Beginning };
        let statement = Some(statement.into_sql_str());
        PgTransactionManager::begin(&mut transaction.connection, statement).await?;
        transaction.state = State::Open;
        Ok(transaction)
    }

    pub fn connection(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    pub async fn commit(mut self) -> Result<()> {
        PgTransactionManager::commit(&mut self.connection).await?;
        self.state = State::Ended;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        match self.state {
            State::Beginning => self.connection.close_on_drop(),
            State::Open => PgTransactionManager::start_rollback(&mut self.connection),
            State::Ended => {}
        }
    }
}
