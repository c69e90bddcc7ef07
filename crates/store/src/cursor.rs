//! A place in the audit log: everything before it has been read, and nothing will ever be added there.

use crate::db::Tx;
use crate::error::Result;
use std::fmt;
use std::str::FromStr;

/// How far a reader of events is. On PostgreSQL rows are ordered by transaction first, for their ids are not in the
/// order of commits; on SQLite the transaction is always 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    pub(crate) xact: i64,
    pub(crate) id: i64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xact, self.id)
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the id of an event")]
pub struct NoCursor(String);

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let number = |text: &str| text.parse().ok().filter(|number: &i64| *number >= 0);
        let parsed = text.split_once('-').and_then(|(xact, id)| Some((number(xact)?, number(id)?)));
        let (xact, id) = parsed.ok_or_else(|| NoCursor(text.chars().take(50).collect()))?;
        Ok(Cursor { xact, id })
    }
}

/// The oldest transaction that may still add rows: those of older ones are all there.
const RUNNING: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::TEXT::BIGINT";

const LAST: &str = "SELECT coalesce(max(id), 0) FROM audit";

/// Rows of transactions below this are all there, and nothing will be added among them.
pub(crate) async fn settled(tx: &mut Tx) -> Result<i64> {
    if !tx.is_postgres() {
        return Ok(i64::MAX);
    }
    let (xact,) = tx.query(RUNNING).one().await?;
    Ok(xact)
}

/// The end of what can be read in this snapshot.
pub(crate) async fn head(tx: &mut Tx) -> Result<Cursor> {
    if tx.is_postgres() {
        return Ok(Cursor { xact: settled(tx).await?, id: 0 });
    }
    let (id,) = tx.query(LAST).one().await?;
    Ok(Cursor { xact: 0, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let cursor = Cursor { xact: 7, id: 12 };

        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "7", "-", "7-", "-7-1", "7-x", "7-1-1", "99999999999999999999-1"] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }
}
