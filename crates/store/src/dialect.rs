//! One text for both engines: statements are written so that they can be tried in `psql`, and translated.
//!
//! A batch of rows stands in them as one JSON text, `json_to_recordset($1::json) AS r(id BIGINT, state TEXT)`.
//! PostgreSQL is given an array for each column instead, and opens them with `unnest`, for a third to a fifth of the
//! cost; SQLite is given the JSON, and opens it with `json_each`. And for SQLite `FOR UPDATE …` is dropped: there the
//! transaction already holds the only write lock.

use crate::rows::{Kind, Named};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// A statement as one engine takes it.
#[derive(Debug, PartialEq, Eq)]
pub struct Form {
    pub sql: String,
    /// For each parameter of the statement as written the columns of its rows; none where it is a plain value.
    pub rows: Vec<Vec<Named>>,
}

type Made = LazyLock<Mutex<HashMap<&'static str, &'static Form>>>;

/// The PostgreSQL form of `sql`, made once for each statement.
pub fn postgres(sql: &'static str) -> &'static Form {
    static MADE: Made = LazyLock::new(Mutex::default);
    once(&MADE, sql, |sql| Form { sql: open_arrays(sql), rows: rows(sql) })
}

/// The SQLite form of `sql`, made once for each statement.
pub fn sqlite(sql: &'static str) -> &'static Form {
    static MADE: Made = LazyLock::new(Mutex::default);
    once(&MADE, sql, |sql| Form { sql: open_json(&drop_locks(sql)), rows: rows(sql) })
}

/// Statements are constants: what is leaked is bounded by the program's text.
fn once(made: &Made, sql: &'static str, make: impl FnOnce(&str) -> Form) -> &'static Form {
    let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
    made.entry(sql).or_insert_with(|| Box::leak(Box::new(make(sql))))
}

fn drop_locks(sql: &str) -> String {
    let Some((before, after)) = sql.split_once(" FOR UPDATE").or_else(|| sql.split_once("\nFOR UPDATE"))
    else {
        return sql.into();
    };
    let after = after
        .strip_prefix(" OF ")
        .map_or(after, |rest| rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_'));
    let after = after.strip_prefix(" SKIP LOCKED").unwrap_or(after);
    drop_locks(&format!("{before}{after}"))
}

/// A batch of rows in a statement, and the text around it.
struct Opened<'a> {
    before: &'a str,
    /// Which parameter it is, from 1.
    parameter: usize,
    alias: &'a str,
    columns: Vec<Named>,
    after: &'a str,
}

fn opened(sql: &str) -> Option<Opened<'_>> {
    let (before, rest) = sql.split_once("json_to_recordset($")?;
    let parts = || {
        let (parameter, rest) = rest.split_once("::json) AS ")?;
        let (alias, rest) = rest.split_once('(')?;
        let (columns, after) = rest.split_once(')')?;
        let columns = columns.split(',').map(named).collect::<Option<Vec<_>>>()?;
        Some(Opened { before, parameter: parameter.parse().ok()?, alias, columns, after })
    };
    Some(parts().expect("json_to_recordset($N::json) AS alias(column TYPE, …)"))
}

fn named(column: &str) -> Option<Named> {
    let (name, kind) = column.trim().split_once(' ')?;
    let kind = match kind {
        "BIGINT" => Kind::Int,
        "TEXT" => Kind::Text,
        "BOOLEAN" => Kind::Bool,
        _ => return None,
    };
    Some(Named { name: name.into(), kind })
}

fn rows(sql: &str) -> Vec<Vec<Named>> {
    let Some(opened) = opened(sql) else { return Vec::new() };
    let mut rows = rows(opened.after);
    rows.resize_with(rows.len().max(opened.parameter), Vec::new);
    rows[opened.parameter - 1] = opened.columns;
    rows
}

fn open_json(sql: &str) -> String {
    let Some(Opened { before, parameter, alias, columns, after }) = opened(sql) else { return sql.into() };
    let columns: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, Named { name, .. })| format!("value->>{at} AS {name}"))
        .collect();
    let columns = columns.join(", ");
    format!("{before}(SELECT {columns} FROM json_each(${parameter})) AS {alias}{}", open_json(after))
}

/// Each batch takes as many parameters as it has columns; those behind it move up.
fn open_arrays(sql: &str) -> String {
    let rows = rows(sql);
    let moved = |parameter: usize| -> usize {
        let before = rows.iter().take(parameter - 1).map(|columns| columns.len().max(1) - 1);
        parameter + before.sum::<usize>()
    };
    open_arrays_moved(sql, &moved)
}

fn open_arrays_moved(sql: &str, moved: &impl Fn(usize) -> usize) -> String {
    let Some(Opened { before, parameter, alias, columns, after }) = opened(sql) else {
        return renumber(sql, moved);
    };
    let first = moved(parameter);
    let arrays: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, column)| format!("${}::{}", first + at, array(column.kind)))
        .collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    let (arrays, names) = (arrays.join(", "), names.join(", "));
    let (before, after) = (renumber(before, moved), open_arrays_moved(after, moved));
    format!("{before}unnest({arrays}) AS {alias}({names}){after}")
}

fn array(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "BIGINT[]",
        Kind::Text => "TEXT[]",
        Kind::Bool => "BOOLEAN[]",
    }
}

/// `$3` as the parameter that it has become.
fn renumber(sql: &str, moved: impl Fn(usize) -> usize) -> String {
    let mut parts = sql.split('$');
    let mut renumbered = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.len() - part.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        match part[..digits].parse() {
            Ok(parameter) => renumbered.push_str(&format!("${}{}", moved(parameter), &part[digits..])),
            Err(_) => renumbered.push_str(&format!("${part}")),
        }
    }
    renumbered
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSERT: &str = "INSERT INTO t SELECT r.id, r.word, $1 \
        FROM json_to_recordset($2::json) AS r(id BIGINT, word TEXT) WHERE id < $3";

    #[test]
    fn locks_are_dropped_wherever_they_stand() {
        let sql = "SELECT * FROM (SELECT id FROM t LIMIT 1 FOR UPDATE OF t SKIP LOCKED) x JOIN y FOR UPDATE";

        assert_eq!(sqlite(sql).sql, "SELECT * FROM (SELECT id FROM t LIMIT 1) x JOIN y");
    }

    #[test]
    fn sqlite_opens_rows_from_json() {
        assert_eq!(
            sqlite(INSERT).sql,
            "INSERT INTO t SELECT r.id, r.word, $1 \
             FROM (SELECT value->>0 AS id, value->>1 AS word FROM json_each($2)) AS r WHERE id < $3"
        );
    }

    #[test]
    fn postgres_opens_rows_from_arrays() {
        let form = postgres(INSERT);

        assert_eq!(
            form.sql,
            "INSERT INTO t SELECT r.id, r.word, $1 \
             FROM unnest($2::BIGINT[], $3::TEXT[]) AS r(id, word) WHERE id < $4"
        );
        let named = |name: &str, kind| Named { name: name.into(), kind };
        assert_eq!(form.rows, [vec![], vec![named("id", Kind::Int), named("word", Kind::Text)]]);
    }
}
