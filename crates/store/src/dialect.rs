//! One text for both engines: statements are written for PostgreSQL and translated for SQLite.
//!
//! Two things differ. `FOR UPDATE …` is dropped: on SQLite the transaction already holds the only write lock.
//! And a batch of rows arrives as one JSON text, which PostgreSQL opens with
//! `json_to_recordset($1::json) AS r(id BIGINT, state TEXT)` and SQLite with `json_each`.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

/// The SQLite form of `sql`, made once for each statement.
pub fn sqlite(sql: &'static str) -> &'static str {
    static MADE: LazyLock<Mutex<HashMap<&'static str, &'static str>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Statements are constants: what is leaked is bounded by the program's text.
    made.entry(sql).or_insert_with(|| Box::leak(open_rows(&drop_locks(sql)).into_boxed_str()))
}

fn drop_locks(sql: &str) -> String {
    let Some((before, after)) = sql.split_once(" FOR UPDATE").or_else(|| sql.split_once("\nFOR UPDATE"))
    else {
        return sql.into();
    };
    let after = strip(after, " OF ")
        .map_or(after, |rest| rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'));
    let after = strip(after, " SKIP LOCKED").unwrap_or(after);
    drop_locks(&format!("{before}{after}"))
}

fn strip<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.strip_prefix(prefix)
}

const OPENER: &str = "json_to_recordset(";

fn open_rows(sql: &str) -> String {
    let Some((before, rest)) = sql.split_once(OPENER) else { return sql.into() };
    let parts = || -> Option<(&str, &str, &str, &str)> {
        let (parameter, rest) = rest.split_once("::json) AS ")?;
        let (alias, rest) = rest.split_once('(')?;
        let (columns, rest) = rest.split_once(')')?;
        Some((parameter, alias, columns, rest))
    };
    let (parameter, alias, columns, rest) =
        parts().expect("json_to_recordset($N::json) AS alias(column TYPE, …)");
    let columns: Vec<String> = columns
        .split(',')
        .filter_map(|column| column.split_whitespace().next())
        .map(|name| format!("value->>'{name}' AS {name}"))
        .collect();
    format!(
        "{before}(SELECT {} FROM json_each({parameter})) AS {alias}{}",
        columns.join(", "),
        open_rows(rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_dropped_wherever_they_stand() {
        let sql = "SELECT * FROM (SELECT id FROM t LIMIT 1 FOR UPDATE OF t SKIP LOCKED) x JOIN y FOR UPDATE";

        assert_eq!(sqlite(sql), "SELECT * FROM (SELECT id FROM t LIMIT 1) x JOIN y");
    }

    #[test]
    fn rows_are_opened_by_name() {
        let sql = "INSERT INTO t SELECT r.id, r.word FROM json_to_recordset($2::json) AS r(id BIGINT, word TEXT) WHERE TRUE";

        assert_eq!(
            sqlite(sql),
            "INSERT INTO t SELECT r.id, r.word FROM (SELECT value->>'id' AS id, value->>'word' AS word \
             FROM json_each($2)) AS r WHERE TRUE"
        );
    }
}
