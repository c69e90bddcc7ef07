//! A place in the audit log: everything before it has been read, and nothing will ever be added there.

use crate::db::Tx;
use crate::error::Result;
use crate::timeline::{self, Timeline};
use std::fmt;
use std::str::FromStr;

/// How far a reader of events is. On PostgreSQL rows are ordered by transaction first, for their ids are not in the
/// order of commits; on SQLite the transaction is always 0.
///
/// It is written `timeline.xact-id` behind a row, and `timeline.xact-id-told` inside a row that speaks for more tasks than
/// were told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor {
    pub(crate) xact: i64,
    pub(crate) id: i64,
    /// Of how many of the row's tasks the reader was told, or [`WHOLE`].
    pub(crate) told: i64,
    /// Cursors of older programs have none. Places of different timelines cannot be compared.
    pub(crate) timeline: Option<Timeline>,
}

/// The reader was told of all tasks of a row, however many they are.
pub(crate) const WHOLE: i64 = i64::MAX;

impl Cursor {
    pub(crate) fn behind(xact: i64, id: i64) -> Self {
        Cursor { xact, id, told: WHOLE, timeline: None }
    }

    pub(crate) fn on(self, timeline: Timeline) -> Self {
        Cursor { timeline: Some(timeline), ..self }
    }

    /// Whether both are places of one history.
    pub fn is_comparable(self, other: Cursor) -> bool {
        self.timeline == other.timeline
    }

    /// The rows of its transaction with an id above this have something that the reader was not told.
    pub(crate) fn last_whole(self) -> i64 {
        if self.told == WHOLE { self.id } else { self.id - 1 }
    }
}

/// The last row of the audit that was dropped with old history: what followed an earlier place is not known any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Dropped {
    pub xact: i64,
    pub id: i64,
}

impl Dropped {
    /// Whether somebody who has read up to this place misses something. The beginning is that of what is kept.
    pub fn is_missed_at(self, place: Cursor) -> bool {
        (place.xact, place.id) != (0, 0) && (place.xact, place.last_whole()) < (self.xact, self.id)
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.xact, self.id)
    }
}

impl FromStr for Dropped {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let Cursor { xact, id, .. } = text.parse()?;
        Ok(Dropped { xact, id })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(timeline) = self.timeline {
            write!(f, "{timeline}.")?;
        }
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
        let bad = || NoCursor(text.chars().take(50).collect());
        let (timeline, place) = match text.split_once('.') {
            Some((timeline, place)) => (Some(timeline.parse().map_err(|_| bad())?), place),
            None => (None, text),
        };
        let numbers: Option<Vec<i64>> = place.split('-').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[xact, id]) => Ok(Cursor { timeline, ..Cursor::behind(xact, id) }),
            Some(&[xact, id, told]) if told > 0 => Ok(Cursor { xact, id, told, timeline }),
            _ => Err(bad()),
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

const DROPPED: &str = "SELECT value FROM setting WHERE name = 'history_dropped'";

/// The latest row that went with old history, if any did.
pub(crate) async fn dropped(tx: &mut Tx) -> Result<Option<Dropped>> {
    let found: Option<(String,)> = tx.query(DROPPED).optional().await?;
    Ok(found.and_then(|(text,)| text.parse().ok()))
}

/// The end of what can be read in this snapshot, and the timeline that it is of.
pub(crate) async fn head(tx: &mut Tx) -> Result<(Cursor, timeline::Current)> {
    let timeline = timeline::current(tx).await?;
    let head = if tx.is_postgres() {
        Cursor::behind(settled(tx).await?, 0)
    } else {
        let (id,) = tx.query(LAST).one().await?;
        Cursor::behind(0, id)
    };
    Ok((head.on(timeline.name), timeline))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        for (cursor, written) in [
            (Cursor::behind(7, 12), "7-12"),
            (Cursor { told: 3, ..Cursor::behind(7, 12) }, "7-12-3"),
            (Cursor::behind(7, 12).on("1f2e3d4c".parse().unwrap()), "1f2e3d4c.7-12"),
        ] {
            assert_eq!(cursor.to_string(), written);
            assert_eq!(written.parse(), Ok(cursor));
        }
        for bad in [
            "",
            "7",
            "-",
            "7-",
            "-7-1",
            "7--1",
            "7-x",
            "7-1-",
            "7-1-0",
            "7-1-1-1",
            "99999999999999999999-1",
            ".7-1",
            "1f.7-1",
            "1F2E3D4C.7-1",
            "1f2e3d4c.7",
            "1f2e3d4c.1f2e3d4c.7-1",
        ] {
            assert!(bad.parse::<Cursor>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_place_inside_a_row_is_before_the_place_behind_it() {
        let places = ["7-11", "7-12-1", "7-12-2", "7-12", "7-13-1", "8-0"];

        assert!(places.map(|place| place.parse::<Cursor>().unwrap()).is_sorted());
    }
}
