//! The tables that grow for ever: audit, logs, steps. Their history ends by age.
//!
//! On PostgreSQL they are partitioned by month: partitions are made ahead of time, and dropping one costs nothing,
//! however large. On SQLite rows are deleted, a batch at a time.

use crate::Store;
use crate::cursor::{self, Dropped};
use crate::db::{Step, Tx, again};
use crate::error::Result;
use rules::Millis;
use std::ops::Range;

pub const TABLES: [&str; 3] = ["audit", "job_log", "execution_step"];

/// How many months ahead have their partition.
const AHEAD: i64 = 3;

const SET: &str = "UPDATE history SET dropped_before = $1 WHERE name = $2 AND dropped_before < $1";

/// The last row of the audit that goes.
const LAST_DROPPED: &str = "SELECT coalesce(max(xact), 0), coalesce(max(id), 0) FROM audit WHERE at < $1";

const LAST_DELETED: &str = "
SELECT 0, coalesce(max(id), 0) FROM (
    SELECT id FROM audit WHERE at < $1 AND id < (SELECT max(id) FROM audit) ORDER BY id LIMIT 5000) AS old";

const NOTE_DROPPED: &str = "
INSERT INTO setting (name, value) VALUES ('history_dropped', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

const PARTITIONS: &str = "
SELECT c.relname::TEXT FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_class p ON p.oid = i.inhparent
WHERE p.relname = $1 AND p.relnamespace = current_schema()::regnamespace";

/// The newest audit row stays, or its number would be given again to another, and those who remember how far they have
/// read would never see that one.
const DELETE: [&str; 3] = [
    "DELETE FROM audit WHERE id IN (
         SELECT id FROM audit WHERE at < $1 AND id < (SELECT max(id) FROM audit) ORDER BY id LIMIT 5000)",
    "DELETE FROM job_log WHERE id IN (SELECT id FROM job_log WHERE at < $1 ORDER BY id LIMIT 5000)",
    "DELETE FROM execution_step WHERE id IN (SELECT id FROM execution_step WHERE at < $1 ORDER BY id LIMIT 5000)",
];

/// A calendar month in UTC, counted from year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Month(i64);

impl Month {
    fn of(at: Millis) -> Self {
        // Days to civil date, after Howard Hinnant's well-known derivation; exact for all dates we can meet.
        let days = at.0.div_euclid(86_400_000) + 719_468;
        let era = days.div_euclid(146_097);
        let day = days.rem_euclid(146_097);
        let year_of_era = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Month(year * 12 + month - 1)
    }

    fn start(self) -> Millis {
        let (year, month) = (self.0.div_euclid(12), self.0.rem_euclid(12) + 1);
        let year = year - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted = if month > 2 { month - 3 } else { month + 9 };
        let day = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + (153 * shifted + 2) / 5;
        Millis((era * 146_097 + day - 719_468) * 86_400_000)
    }

    fn next(self) -> Self {
        Month(self.0 + 1)
    }

    fn suffix(self) -> String {
        format!("{:04}_{:02}", self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }

    fn parse(suffix: &str) -> Option<Self> {
        let (year, month) = suffix.split_once('_')?;
        Some(Month(year.parse::<i64>().ok()? * 12 + month.parse::<i64>().ok()? - 1))
    }
}

/// A time as people and programs elsewhere read it, in UTC.
pub(crate) fn rfc3339(at: Millis) -> String {
    let month = Month::of(at);
    let within = at.0 - month.start().0;
    let (day, ms) = (within.div_euclid(86_400_000) + 1, within.rem_euclid(86_400_000));
    let (year, month) = (month.0.div_euclid(12), month.0.rem_euclid(12) + 1);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}Z", ms % 1000)
}

impl Store {
    /// Makes the partitions that will be needed next; nothing to do on SQLite. How many were made.
    pub async fn prepare_history(&self) -> Result<usize> {
        if !self.is_postgres() {
            return Ok(0);
        }
        again(|| self.prepare_history_once()).await
    }

    async fn prepare_history_once(&self) -> Result<usize> {
        let mut made = 0;
        for table in TABLES {
            made += self.prepare(table).await?;
        }
        Ok(made)
    }

    async fn prepare(&self, table: &str) -> Result<usize> {
        let mut read = self.db.read().await?;
        let is_ready = missing(&mut read, table).await?.is_empty();
        drop(read);
        if is_ready {
            return Ok(0);
        }
        let mut tx = self.db.write(Step::PrepareHistory).await?;
        lock(&mut tx, table).await?;
        let missing = missing(&mut tx, table).await?;
        for month in &missing {
            let range = format!("FOR VALUES FROM ({}) TO ({})", month.start().0, month.next().start().0);
            make(&mut tx, table, &month.suffix(), &range).await?;
        }
        tx.commit().await?;
        Ok(missing.len())
    }

    /// Drops what the growing tables hold from before `before`: whole months on PostgreSQL. How many partitions or
    /// rows went.
    pub async fn drop_history(&self, before: Millis) -> Result<u64> {
        if self.is_postgres() {
            again(|| self.drop_partitions(before)).await
        } else {
            again(|| self.delete_rows(before)).await
        }
    }

    async fn drop_partitions(&self, before: Millis) -> Result<u64> {
        let limit = Month::of(before);
        let mut dropped = 0;
        for table in TABLES {
            let mut tx = self.db.write(Step::DropPartitions).await?;
            if table == "audit" {
                note_dropped(&mut tx, LAST_DROPPED, limit.start()).await?;
            }
            for month in partitions(&mut tx, table).await?.into_iter().filter(|month| *month < limit) {
                tx.raw(&format!("DROP TABLE {table}_{}", month.suffix())).await?;
                dropped += 1;
            }
            dropped += u64::from(drop_default(&mut tx, table, limit.start()).await?);
            tx.query(SET).bind(limit.start()).bind(table).execute().await?;
            tx.commit().await?;
        }
        Ok(dropped)
    }

    async fn delete_rows(&self, before: Millis) -> Result<u64> {
        let mut deleted = 0;
        for (table, delete) in TABLES.into_iter().zip(DELETE) {
            let mut tx = self.db.write(Step::DeleteHistory).await?;
            if table == "audit" {
                note_dropped(&mut tx, LAST_DELETED, before).await?;
            }
            tx.query(SET).bind(before).bind(table).execute().await?;
            deleted += tx.query(delete).bind(before).execute().await?;
            tx.commit().await?;
        }
        Ok(deleted)
    }
}

/// For listeners that come back later than that.
async fn note_dropped(tx: &mut Tx, last: &'static str, before: Millis) -> Result<()> {
    let (xact, id): (i64, i64) = tx.query(last).bind(before).one().await?;
    let last = Dropped { xact, id };
    if last.id > 0 && cursor::dropped(tx).await?.is_none_or(|known| known < last) {
        tx.query(NOTE_DROPPED).bind(last.to_string()).execute().await?;
    }
    Ok(())
}

/// The months that have no partition and need one. A month that has begun in the default partition stays there:
/// splitting it would take long, and nobody could write meanwhile.
async fn missing(tx: &mut Tx, table: &str) -> Result<Vec<Month>> {
    let now = Month::of(tx.now());
    let made = partitions(tx, table).await?;
    let mut missing = Vec::new();
    for month in (now.0..=now.0 + AHEAD).map(Month).filter(|month| !made.contains(month)) {
        if !default_holds(tx, table, month.start()..month.next().start()).await? {
            missing.push(month);
        }
    }
    Ok(missing)
}

/// Keeps everyone from the table until the transaction ends: what is seen of it stays so.
async fn lock(tx: &mut Tx, table: &str) -> Result<()> {
    tx.raw(&format!("LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await
}

async fn make(tx: &mut Tx, table: &str, suffix: &str, range: &str) -> Result<()> {
    let name = format!("{table}_{suffix}");
    tx.raw(&format!("CREATE TABLE {name} PARTITION OF {table} {range}")).await?;
    if table == "audit" {
        // Triggers for rows are inherited, those for whole statements are not.
        tx.raw(&format!(
            "CREATE TRIGGER {name}_no_truncate BEFORE TRUNCATE ON {name} \
             FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
        ))
        .await?;
    }
    Ok(())
}

/// Empties the default partition when all it holds is from before `before`.
async fn drop_default(tx: &mut Tx, table: &str, before: Millis) -> Result<bool> {
    if !default_holds(tx, table, Millis(i64::MIN)..before).await? {
        return Ok(false);
    }
    lock(tx, table).await?;
    if default_holds(tx, table, before..Millis(i64::MAX)).await? {
        return Ok(false);
    }
    tx.raw(&format!("DROP TABLE {table}_default")).await?;
    make(tx, table, "default", "DEFAULT").await?;
    Ok(true)
}

/// Whether anything of that time lies in the default partition.
async fn default_holds(tx: &mut Tx, table: &str, time: Range<Millis>) -> Result<bool> {
    let any = match table {
        "audit" => "SELECT at FROM audit_default WHERE at >= $1 AND at < $2 LIMIT 1",
        "job_log" => "SELECT at FROM job_log_default WHERE at >= $1 AND at < $2 LIMIT 1",
        _ => "SELECT at FROM execution_step_default WHERE at >= $1 AND at < $2 LIMIT 1",
    };
    Ok(tx.query(any).bind(time.start).bind(time.end).optional::<(i64,)>().await?.is_some())
}

async fn partitions(tx: &mut Tx, table: &str) -> Result<Vec<Month>> {
    let names: Vec<(String,)> = tx.query(PARTITIONS).bind(table).all().await?;
    let prefix = format!("{table}_");
    Ok(names.iter().filter_map(|(name,)| Month::parse(name.strip_prefix(&prefix)?)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_written_as_the_standard_says() {
        assert_eq!(rfc3339(Millis(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(rfc3339(Millis(1_709_251_199_999)), "2024-02-29T23:59:59.999Z");
        assert_eq!(rfc3339(Millis(1_763_200_000_042)), "2025-11-15T09:46:40.042Z");
    }

    #[test]
    fn months_begin_where_the_calendar_says() {
        for (at, suffix, start) in [
            (0, "1970_01", 0),
            (1_763_200_000_000, "2025_11", 1_761_955_200_000),
            (951_782_400_000, "2000_02", 949_363_200_000),
            (1_735_689_599_999, "2024_12", 1_733_011_200_000),
        ] {
            let month = Month::of(Millis(at));
            assert_eq!(month.suffix(), suffix);
            assert_eq!(month.start(), Millis(start));
            assert_eq!(Month::parse(suffix), Some(month));
        }
    }
}
