//! The tables that grow for ever: audit, logs, steps. Their history ends by age.
//!
//! On PostgreSQL they are partitioned by month: partitions are made ahead of time, and dropping one costs nothing,
//! however large. On SQLite rows are deleted, a batch at a time.

use crate::Store;
use crate::db::{Step, Tx, again};
use crate::error::Result;
use rules::Millis;

pub const TABLES: [&str; 3] = ["audit", "job_log", "execution_step"];

/// How many months ahead have their partition.
const AHEAD: i64 = 3;

const SET: &str = "UPDATE history SET dropped_before = $1 WHERE name = $2 AND dropped_before < $1";

const PARTITIONS: &str = "
SELECT c.relname::TEXT FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_class p ON p.oid = i.inhparent
WHERE p.relname = $1 AND p.relnamespace = current_schema()::regnamespace";

const DELETE: [&str; 3] = [
    "DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE at < $1 ORDER BY id LIMIT 5000)",
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

    fn suffix(self) -> String {
        format!("{:04}_{:02}", self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }

    fn parse(suffix: &str) -> Option<Self> {
        let (year, month) = suffix.split_once('_')?;
        Some(Month(year.parse::<i64>().ok()? * 12 + month.parse::<i64>().ok()? - 1))
    }
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
        let mut read = self.db.read().await?;
        let now = Month::of(read.now());
        let mut missing = Vec::new();
        for table in TABLES {
            let made = partitions(&mut read, table).await?;
            // A month that has begun in the default partition stays there: splitting it would lock it meanwhile.
            let first = i64::from(!is_default_empty(&mut read, table).await?);
            let months = (first..=AHEAD).map(|ahead| Month(now.0 + ahead));
            missing.extend(months.filter(|month| !made.contains(month)).map(|month| (table, month)));
        }
        drop(read);
        for (table, month) in &missing {
            let mut tx = self.db.write(Step::History).await?;
            let (from, to) = (month.start().0, Month(month.0 + 1).start().0);
            let name = format!("{table}_{}", month.suffix());
            tx.raw(&format!(
                "CREATE TABLE IF NOT EXISTS {name} PARTITION OF {table} FOR VALUES FROM ({from}) TO ({to})"
            ))
            .await?;
            if *table == "audit" {
                tx.raw(&format!(
                    "CREATE OR REPLACE TRIGGER {name}_no_truncate BEFORE TRUNCATE ON {name} \
                     FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change()"
                ))
                .await?;
            }
            tx.commit().await?;
        }
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
            let mut tx = self.db.write(Step::History).await?;
            for month in partitions(&mut tx, table).await?.into_iter().filter(|month| *month < limit) {
                tx.raw(&format!("DROP TABLE {table}_{}", month.suffix())).await?;
                dropped += 1;
            }
            tx.query(SET).bind(limit.start()).bind(table).execute().await?;
            tx.commit().await?;
        }
        Ok(dropped)
    }

    async fn delete_rows(&self, before: Millis) -> Result<u64> {
        let mut deleted = 0;
        for (table, delete) in TABLES.into_iter().zip(DELETE) {
            let mut tx = self.db.write(Step::History).await?;
            tx.query(SET).bind(before).bind(table).execute().await?;
            deleted += tx.query(delete).bind(before).execute().await?;
            tx.commit().await?;
        }
        Ok(deleted)
    }
}

async fn is_default_empty(tx: &mut Tx, table: &str) -> Result<bool> {
    let any = match table {
        "audit" => "SELECT at FROM audit_default LIMIT 1",
        "job_log" => "SELECT at FROM job_log_default LIMIT 1",
        _ => "SELECT at FROM execution_step_default LIMIT 1",
    };
    Ok(tx.query(any).optional::<(i64,)>().await?.is_none())
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
