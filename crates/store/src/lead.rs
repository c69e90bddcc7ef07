//! One leader among many processes, by the database: a lock that ends with its transaction, and a transaction that is
//! kept open for as long as its holder lives. It saves work that would be done twice; nothing rests on it.
//!
//! The transaction reads nothing and writes nothing, so it holds back neither vacuum nor events. PostgreSQL ends it when
//! its client is gone, and when the client has stood still for longer than [`SILENCE`].

use crate::Store;
use crate::db::Pool;
use crate::error::Result;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use std::time::Duration;

/// Two names that fall on one key only take turns.
const TRY: &str = "SELECT pg_try_advisory_xact_lock(hashtext('vodmill'), hashtext(coalesce(current_schema(), '') || '/' || $1))";

/// Asked first, by the pool: most who ask do not lead, and a connection for each question would be dear.
const IS_LED: &str = "
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND classid = hashtext('vodmill')::OID
  AND objid = hashtext(coalesce(current_schema(), '') || '/' || $1)::OID
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

/// How long a leader may say nothing.
const SILENCE: Duration = Duration::from_secs(15);

/// Leads until it is dropped, or [`Lead::is_kept`] says otherwise.
pub struct Lead(Holder);

enum Holder {
    /// A connection beside the pool, which must never be short of one.
    Postgres(Box<PgConnection>),
    /// One server at a time has the file.
    Sqlite,
}

impl Store {
    /// Becomes the one leader of this name; none if another is.
    pub async fn try_lead(&self, name: &str) -> Result<Option<Lead>> {
        let Pool::Postgres(pool) = &self.db.pool else { return Ok(Some(Lead(Holder::Sqlite))) };
        let is_led = sqlx::query_as(IS_LED).persistent(self.db.keeps_statements).bind(name);
        let (leaders,): (i64,) = is_led.fetch_one(pool).await?;
        if leaders > 0 {
            return Ok(None);
        }
        let mut connection = PgConnection::connect_with(&pool.connect_options()).await?;
        let begin = format!("BEGIN; SET LOCAL idle_in_transaction_session_timeout = {}", SILENCE.as_millis());
        connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(begin))).await?;
        let (is_leader,): (bool,) =
            sqlx::query_as(TRY).persistent(false).bind(name).fetch_one(&mut connection).await?;
        if is_leader {
            return Ok(Some(Lead(Holder::Postgres(Box::new(connection)))));
        }
        connection.close().await?;
        Ok(None)
    }
}

impl Lead {
    /// To be asked more often than every [`SILENCE`]: whether it still leads.
    pub async fn is_kept(&mut self) -> bool {
        match &mut self.0 {
            Holder::Postgres(connection) => {
                let asked = connection.execute(sqlx::raw_sql("SELECT 1"));
                matches!(tokio::time::timeout(SILENCE / 3, asked).await, Ok(Ok(_)))
            }
            Holder::Sqlite => true,
        }
    }
}
