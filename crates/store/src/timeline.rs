//! Timelines: what is given twice after a restored backup is told apart by the name of its timeline.
//!
//! A server keeps a [`Mark`] of the history outside of the database. If the database has lost it, it went back in time, and
//! a new timeline begins.

use crate::Store;
use crate::db::{Pool, Step, Tx, again};
use crate::error::{Error, Result};
use crate::from_row::row;
use rules::Millis;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgConnection;
use std::fmt;
use std::str::FromStr;

/// The name of a timeline. Random, so that it is never given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timeline(u32);

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a timeline")]
pub struct NoTimeline;

impl FromStr for Timeline {
    type Err = NoTimeline;

    fn from_str(text: &str) -> Result<Self, NoTimeline> {
        let named = u32::from_str_radix(text, 16).map(Timeline).map_err(|_| NoTimeline)?;
        if named.to_string() == text { Ok(named) } else { Err(NoTimeline) }
    }
}

row! {
    /// One of the timelines of a database, for people.
    #[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
    pub struct TimelineView {
        pub number: i64,
        pub name: String,
        pub began_at: i64,
        /// The audit's rows up to this one are of earlier timelines.
        pub after_id: i64,
        pub reason: String,
    }
}

/// The timeline that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Current {
    pub number: i64,
    pub name: Timeline,
    /// The audit's rows up to this one are of earlier timelines.
    pub after_id: i64,
}

/// A point of the history that is on disk, for a server to keep outside of the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub timeline: String,
    pub number: i64,
    pub value: i64,
}

/// What a mark says about the database that is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// The database still has it.
    Kept,
    /// Another timeline began after it.
    Earlier,
    /// The database does not have it any more: it went back to before it.
    Lost,
}

/// How many marks are kept. A server that was off while others made more cannot tell any more.
const KEPT: i64 = 100_000;

const CURRENT: &str = "SELECT number, name, after_id FROM timeline ORDER BY number DESC LIMIT 1";

const ALL: &str = "SELECT number, name, began_at, after_id, reason FROM timeline ORDER BY number";

const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";

const RESTORED: &str = "SELECT began_at FROM timeline WHERE number > 1 ORDER BY number DESC LIMIT 1";

const BEGIN: &str = "
INSERT INTO timeline (number, name, began_at, after_id, reason) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (number) DO NOTHING";

const LATEST_MARK: &str = "SELECT number, value, audit_id FROM mark ORDER BY number DESC LIMIT 1";

const FIND_MARK: &str = "SELECT value FROM mark WHERE number = $1";

const OLDEST_MARK: &str = "SELECT coalesce(min(number), 0) FROM mark";

const MARK: &str = "
INSERT INTO mark (number, value, audit_id, made_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (number) DO NOTHING";

const PRUNE: &str = "DELETE FROM mark WHERE number <= $1";

/// The number that the audit gave last. On PostgreSQL no index knows it, and the sequence does.
const LAST_AUDIT: &str = "SELECT coalesce(max(id), 0) FROM audit";
const LAST_AUDIT_GIVEN: &str = "SELECT last_value FROM audit_id_seq";

/// Rows of transactions that this PostgreSQL has not begun yet: another one wrote them.
const FROM_ELSEWHERE: &str = "
SELECT id FROM audit
WHERE xact >= pg_snapshot_xmax(pg_current_snapshot())::TEXT::BIGINT AND id > $1 LIMIT 1";

/// PostgreSQL counts its own histories: one begins when a standby is promoted, or a recovery to a point in time ends. Not
/// known of a standby. Beside it the one that was known last.
const HISTORY: &str = "
SELECT CASE WHEN pg_is_in_recovery() THEN NULL ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END,
       (SELECT value FROM setting WHERE name = 'postgres_history')";

const NOTE_HISTORY: &str =
    "INSERT INTO setting (name, value) VALUES ('postgres_history', $1) ON CONFLICT (name) DO NOTHING";

const KNOWN_HISTORY: &str = "SELECT value FROM setting WHERE name = 'postgres_history'";

const FOLLOW_HISTORY: &str = "
UPDATE setting SET value = substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) WHERE name = 'postgres_history'";

/// Of several that find it at once, the first changes the setting, and the others change nothing.
const BEGIN_WITH_HISTORY: &str = "
WITH changed AS (
    UPDATE setting SET value = $1 WHERE name = 'postgres_history' AND value <> $1 RETURNING name
)
INSERT INTO timeline (number, name, began_at, after_id, reason)
SELECT max(number) + 1, left(replace(gen_random_uuid()::TEXT, '-', ''), 8),
       (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT, (SELECT last_value FROM audit_id_seq), $2
FROM timeline HAVING EXISTS (SELECT 1 FROM changed)
RETURNING name";

const PROMOTED: &str =
    "a standby took over, or a recovery ended: it may not know the latest of the database before it";

/// Begins a timeline if PostgreSQL has begun a history of its own. Each connection looks before it is used, so nothing is
/// written in the new history under the name of the old one.
pub(crate) async fn follow_history(connection: &mut PgConnection) {
    // Without our schema there is nothing to follow; and some services do not tell.
    if let Err(error) = follow(connection).await {
        tracing::debug!("cannot tell which history of PostgreSQL this is: {error}");
    }
}

async fn follow(connection: &mut PgConnection) -> sqlx::Result<()> {
    let (now, known): (Option<String>, Option<String>) =
        sqlx::query_as(HISTORY).persistent(false).fetch_one(&mut *connection).await?;
    let Some(now) = now.filter(|now| known.as_ref() != Some(now)) else { return Ok(()) };
    if known.is_none() {
        sqlx::query(NOTE_HISTORY).bind(now).persistent(false).execute(connection).await?;
        return Ok(());
    }
    let begin = sqlx::query_as(BEGIN_WITH_HISTORY).bind(now).bind(PROMOTED).persistent(false);
    if let Some((begun,)) = begin.fetch_optional(connection).await? as Option<(String,)> {
        tracing::warn!("timeline {begun} begins: {PROMOTED}");
    }
    Ok(())
}

/// A timeline that begins for another reason is of PostgreSQL's present history too.
async fn note_history(tx: &mut Tx) -> Result<()> {
    if tx.is_postgres() && tx.query(KNOWN_HISTORY).optional::<(String,)>().await?.is_some() {
        tx.query(FOLLOW_HISTORY).execute().await?;
    }
    Ok(())
}

pub(crate) async fn current(tx: &mut Tx) -> Result<Current> {
    let (number, name, after_id): (i64, String, i64) = tx.query(CURRENT).one().await?;
    let name = name.parse().map_err(|NoTimeline| Error::Invalid(format!("`{name}` names no timeline")))?;
    Ok(Current { number, name, after_id })
}

async fn last_audit(tx: &mut Tx) -> Result<i64> {
    let sql = if tx.is_postgres() { LAST_AUDIT_GIVEN } else { LAST_AUDIT };
    Ok(tx.query(sql).one::<(i64,)>().await?.0)
}

impl Store {
    /// The name of the timeline that goes on.
    pub async fn timeline(&self) -> Result<Timeline> {
        Ok(current(&mut self.db.look().await?).await?.name)
    }

    /// All of them, the first one first.
    pub async fn timelines(&self) -> Result<Vec<TimelineView>> {
        self.db.read().await?.query(ALL).all().await
    }

    /// The latest point of the history, on disk when this returns.
    pub async fn mark(&self) -> Result<Mark> {
        let mut tx = self.db.look().await?;
        let (timeline, last) = (current(&mut tx).await?.name, last_audit(&mut tx).await?);
        let latest: Option<(i64, i64, i64)> = tx.query(LATEST_MARK).optional().await?;
        drop(tx);
        match latest {
            Some((number, value, audit_id)) if audit_id == last => {
                Ok(Mark { timeline: timeline.to_string(), number, value })
            }
            _ => again(|| self.mark_once()).await,
        }
    }

    async fn mark_once(&self) -> Result<Mark> {
        let mut tx = self.db.write(Step::Mark).await?;
        let (timeline, last, now) =
            (current(&mut tx).await?.name.to_string(), last_audit(&mut tx).await?, tx.now());
        let latest: Option<(i64, i64, i64)> = tx.query(LATEST_MARK).optional().await?;
        let (number, value) = (latest.map_or(0, |latest| latest.0) + 1, rand::random());
        let made = tx.query(MARK).bind(number).bind(value).bind(last).bind(now).execute().await?;
        if made == 0 {
            return Err(Error::moved_meanwhile());
        }
        tx.query(PRUNE).bind(number - KEPT).execute().await?;
        tx.commit().await?;
        Ok(Mark { timeline, number, value })
    }

    /// Whether the database still has a mark that was made of it.
    pub async fn standing(&self, mark: &Mark) -> Result<Standing> {
        let mut tx = self.db.look().await?;
        if current(&mut tx).await?.name.to_string() != mark.timeline {
            let known: Vec<TimelineView> = tx.query(ALL).all().await?;
            let is_known = known.iter().any(|timeline| timeline.name == mark.timeline);
            return Ok(if is_known { Standing::Earlier } else { Standing::Lost });
        }
        let found: Option<(i64,)> = tx.query(FIND_MARK).bind(mark.number).optional().await?;
        let (oldest,): (i64,) = tx.query(OLDEST_MARK).one().await?;
        Ok(match found {
            Some((value,)) if value == mark.value => Standing::Kept,
            None if mark.number < oldest => Standing::Kept,
            Some(_) | None => Standing::Lost,
        })
    }

    /// Begins a timeline if PostgreSQL has begun a history of its own, also behind a pooler that hides it.
    pub async fn follow_history(&self) -> Result<()> {
        let Pool::Postgres(pool) = &self.db.pool else { return Ok(()) };
        let found: Result<(Option<String>, Option<String>)> =
            self.db.look().await?.query(HISTORY).one().await;
        match found {
            Ok((now, known)) if now.is_some() && now != known => {
                follow_history(&mut *pool.acquire().await?).await;
                Ok(())
            }
            // Some services do not tell.
            Ok(_) | Err(Error::Database(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// When the latest history began that does not know everything of the one before. A standby cannot say: it may be
    /// about to begin one.
    pub async fn last_restore(&self) -> Result<Option<Millis>> {
        let mut tx = self.db.look().await?;
        if tx.is_postgres() && tx.query(IS_STANDBY).one::<(bool,)>().await?.0 {
            return Err(Error::Standby("it follows another server".into()));
        }
        let restored: Option<(i64,)> = tx.query(RESTORED).optional().await?;
        Ok(restored.map(|(at,)| Millis(at)))
    }

    /// Whether another PostgreSQL wrote the newest rows: a dump was restored into this one.
    pub async fn was_moved_here(&self) -> Result<bool> {
        let mut tx = self.db.read().await?;
        if !tx.is_postgres() {
            return Ok(false);
        }
        let after = current(&mut tx).await?.after_id;
        Ok(tx.query(FROM_ELSEWHERE).bind(after).optional::<(i64,)>().await?.is_some())
    }

    /// Begins a timeline after the one of this name, or after the current one; which one goes on then. Of several that
    /// ask at once, the first begins it.
    pub async fn begin_timeline(&self, after: Option<Timeline>, reason: &str) -> Result<Timeline> {
        again(|| async {
            let mut tx = self.db.write(Step::BeginTimeline).await?;
            let before = current(&mut tx).await?;
            if after.is_some_and(|after| after != before.name) {
                return Ok(before.name);
            }
            let (name, last, now) = (Timeline(rand::random()), last_audit(&mut tx).await?, tx.now());
            let begin = tx.query(BEGIN).bind(before.number + 1).bind(name.to_string()).bind(now).bind(last);
            if begin.bind(reason).execute().await? == 0 {
                return Err(Error::moved_meanwhile());
            }
            note_history(&mut tx).await?;
            tx.commit().await?;
            Ok(name)
        })
        .await
    }
}
