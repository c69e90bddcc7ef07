//! A place in the audit log: everything before it has been read, and nothing will ever be added there.

use crate::db::Tx;
use crate::error::Result;
use std::fmt;
use std::str::FromStr;

/// How far a reader of events is. On PostgreSQL rows are ordered by transaction first, for their ids are not in the
/// order of commits; on SQLite the transaction is always 0.
///
/// It is written `xact-id` behind a row, and `xact-id-told` inside a row that speaks for more tasks than were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    pub(crate) xact: i64,
    pub(crate) id: i64,
    /// Of how many of the row's tasks the reader was told, or [`WHOLE`].
    pub(crate) told: i64,
}

/// The reader was told of all tasks of a row, however many they are.
pub(crate) const WHOLE: i64 = i64::MAX;

impl Cursor {
    pub(crate) fn behind(xact: i64, id: i64) -> Self {
        Cursor { xact, id, told: WHOLE }
    }

    /// The rows of its transaction with an id above this have something that the reader was not told.
    pub(crate) fn last_whole(self) -> i64 {
        if self.told == WHOLE { self.id } else { self.id - 1 }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xact, self.id)?;
        if self.told == WHOLE { Ok(()) } else { write!(f, "-{}", self.told) }
    }
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not the id of an event")]
pub struct NoCursor(String);

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let numbers: Option<Vec<i64>> = text.split('-').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[xact, id]) => Ok(Cursor::behind(xact, id)),
            Some(&[xact, id, told]) if told > 0 => Ok(Cursor { xact, id, told }),
            _ => Err(NoCursor(text.chars().take(50).collect())),
        }
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
        return Ok(Cursor::behind(settled(tx).await?, 0));
    }
    let (id,) = tx.query(LAST).one().await?;
    Ok(Cursor::behind(0, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for (cursor, written) in
            [(Cursor::behind(7, 12), "7-12"), (Cursor { xact: 7, id: 12, told: 3 }, "7-12-3")]
        {
            assert_eq!(cursor.to_string(), written);
            assert_eq!(written.parse(), Ok(cursor));
        }
        for bad in
            ["", "7", "-", "7-", "-7-1", "7--1", "7-x", "7-1-", "7-1-0", "7-1-1-1", "99999999999999999999-1"]
        {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_inside_a_row_is_before_the_place_behind_it() {
        let places = ["7-11", "7-12-1", "7-12-2", "7-12", "7-13-1", "8-0"];

        assert!(places.map(|place| place.parse::<Cursor>().unwrap()).is_sorted());
    }
}
