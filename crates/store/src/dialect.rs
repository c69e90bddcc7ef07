//! One text for both engines: statements are written so that they can be tried in `psql`, and translated.
//!
//! A batch of rows stands in them as one JSON text, `json_to_recordset($1::json) AS r(id BIGINT, state TEXT)`.
//! PostgreSQL is given an array for each column instead, and opens them with `unnest`, for a third to a fifth of the
//! cost; SQLite is given the JSON, and opens it with `json_each`. A column that all rows of a batch have in common is
//! given as one plain value. Where nothing differs but the key by which rows are found, `t.id = r.id` becomes
//! `t.id = ANY($1)`, which finds all of them in one scan; or, where the keys are consecutive, `t.id BETWEEN` the first and
//! the last, which is one look-up. And for SQLite `FOR UPDATE …` is dropped: there the transaction
//! already holds the only write lock.

use crate::rows::{Kind, Named, Sent, Shape};
use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Engine {
    Postgres,
    Sqlite,
}

/// A statement as written, and the forms it has been given.
pub struct Statement {
    sql: &'static str,
    /// For each parameter the columns of its rows; none where it is a plain value.
    pub rows: Vec<Vec<Named>>,
    forms: Mutex<HashMap<(Engine, Vec<Shape>), &'static str>>,
    gathered: Mutex<HashMap<Vec<Shape>, &'static str>>,
}

/// Statements are constants: what is leaked is bounded by the program's text.
pub fn statement(sql: &'static str) -> &'static Statement {
    static MADE: LazyLock<Mutex<HashMap<&'static str, &'static Statement>>> = LazyLock::new(Mutex::default);
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    let make = || Statement { sql, rows: rows(sql), forms: Mutex::default(), gathered: Mutex::default() };
    made.entry(sql).or_insert_with(|| Box::leak(Box::new(make())))
}

impl Statement {
    /// The text for `engine` when its batches are sent in these shapes; a plain value's is empty. In place of a batch
    /// stand as many parameters as it is sent in: first its arrays or its JSON, then what all rows have in common.
    pub fn form(&self, engine: Engine, shapes: Vec<Shape>) -> &'static str {
        let mut forms = self.forms.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (engine, shapes);
        if let Some(form) = forms.get(&key) {
            return form;
        }
        let form: &'static str = Box::leak(make(self.sql, engine, &key.1).into());
        forms.insert(key, form);
        form
    }

    /// The text for SQLite whose answer is one JSON text: an array of rows, each an array of its columns.
    pub fn gathered(&self, shapes: Vec<Shape>) -> &'static str {
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        gathered.entry(shapes).or_insert_with_key(|shapes| {
            Box::leak(gather(&make(self.sql, Engine::Sqlite, shapes), columns_selected(self.sql)).into())
        })
    }
}

fn gather(sql: &str, columns: usize) -> String {
    let names: Vec<String> = (1..=columns).map(|at| format!("c{at}")).collect();
    let names = names.join(", ");
    format!("WITH r({names}) AS ({sql}\n) SELECT json_group_array(json_array({names})) FROM r")
}

/// How many columns a plain SELECT gives: names, and no expressions with commas.
fn columns_selected(sql: &str) -> usize {
    let list = sql.trim_start().strip_prefix("SELECT ").and_then(|rest| rest.split("FROM ").next());
    list.expect("SELECT column, … FROM …").split(',').count()
}

fn make(sql: &str, engine: Engine, shapes: &[Shape]) -> String {
    let first = |parameter: usize| -> usize {
        let before = shapes.iter().take(parameter - 1);
        let sent = before.map(|shape| {
            if shape.is_empty() {
                1
            } else {
                arrays(engine, shape) + 2 * count(shape, Sent::Run) + count(shape, Sent::Once)
            }
        });
        1 + sent.sum::<usize>()
    };
    match engine {
        Engine::Postgres => open_all(sql, engine, shapes, &first),
        Engine::Sqlite => open_all(&drop_locks(sql), engine, shapes, &first),
    }
}

/// What follows a batch, when the batch is but a list of keys: the one place that speaks of the key asks for any of them.
fn found_by_key(engine: Engine, batch: &Opened<'_>, shape: &Shape) -> Option<String> {
    let mut each = batch.columns.iter().zip(shape).filter(|(_, sent)| **sent != Sent::Once);
    let (Some((key, sent)), None) = (each.next(), each.next()) else { return None };
    let (before, after) = batch.around_key(&key.name)?;
    let keys = match (engine, sent) {
        (_, Sent::Run) => format!("BETWEEN {0}.{FIRST} AND {0}.{LAST}", batch.alias),
        (Engine::Postgres, _) => format!("= ANY(${}::{}[])", batch.parameter, sql_type(key.kind)),
        (Engine::Sqlite, _) => format!("IN (SELECT value FROM json_each(${}))", batch.parameter),
    };
    Some(format!("{before} {keys}{after}"))
}

/// How many parameters hold what differs from row to row.
fn arrays(engine: Engine, shape: &Shape) -> usize {
    match engine {
        Engine::Postgres => count(shape, Sent::Each),
        Engine::Sqlite => count(shape, Sent::Each).min(1),
    }
}

fn count(shape: &Shape, sent: Sent) -> usize {
    shape.iter().filter(|it| **it == sent).count()
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

impl<'a> Opened<'a> {
    /// The text before and behind ` = r.name`, where that is all that is said of the column.
    fn around_key(&self, name: &str) -> Option<(&'a str, &'a str)> {
        let name = format!("{}.{name}", self.alias);
        let is_whole = |at: usize, text: &str| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            !text[..at].ends_with(is_word) && !text[at + name.len()..].starts_with(is_word)
        };
        let uses = |text: &str| text.match_indices(&name).filter(|&(at, _)| is_whole(at, text)).count();
        self.after.split_once(&format!(" = {name}")).filter(|(before, _)| {
            uses(self.before) == 0 && uses(self.after) == 1 && !before.contains("LEFT JOIN")
        })
    }
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
    Some(Named { name: name.into(), kind, is_key: false })
}

fn rows(sql: &str) -> Vec<Vec<Named>> {
    let Some(mut opened) = opened(sql) else { return Vec::new() };
    for at in 0..opened.columns.len() {
        opened.columns[at].is_key = opened.around_key(&opened.columns[at].name).is_some();
    }
    let mut rows = rows(opened.after);
    rows.resize_with(rows.len().max(opened.parameter), Vec::new);
    rows[opened.parameter - 1] = opened.columns;
    rows
}

/// Opens every batch of a statement, and renumbers the parameters around them.
fn open_all(sql: &str, engine: Engine, shapes: &[Shape], first: &impl Fn(usize) -> usize) -> String {
    let Some(batch) = opened(sql) else { return renumber(sql, first) };
    let Opened { before, parameter, alias, columns, after } = &batch;
    let shape = &shapes[parameter - 1];
    let by_key = found_by_key(engine, &batch, shape);
    let rows = match by_key {
        Some(_) => once(engine, columns, shape, first(*parameter)),
        None => open(engine, columns, shape, first(*parameter)),
    };
    let before = renumber(before, first);
    let after = open_all(by_key.as_deref().unwrap_or(after), engine, shapes, first);
    format!("{before}({rows}) AS {alias}{after}")
}

/// The ends of a run of keys.
const FIRST: &str = "first_key";
const LAST: &str = "last_key";

/// What is sent once of a batch, as one row.
fn once(engine: Engine, columns: &[Named], shape: &Shape, first: usize) -> String {
    let ends = if shape.contains(&Sent::Run) { [FIRST, LAST].as_slice() } else { &[] };
    let ends = ends.iter().map(|end| (*end, Kind::Int));
    let common = columns.iter().zip(shape).filter(|(_, sent)| **sent == Sent::Once);
    let plain = ends.chain(common.map(|(column, _)| (column.name.as_str(), column.kind)));
    let selected = plain.zip(first + arrays(engine, shape)..).map(|((name, kind), at)| match engine {
        Engine::Postgres => format!("${at}::{} AS {name}", sql_type(kind)),
        Engine::Sqlite => format!("${at} AS {name}"),
    });
    let selected: Vec<String> = selected.collect();
    if selected.is_empty() {
        "SELECT 1".into()
    } else {
        format!("SELECT {}", selected.join(", "))
    }
}

/// One batch as a SELECT, over the parameters from `first` on.
fn open(engine: Engine, columns: &[Named], shape: &Shape, first: usize) -> String {
    let mut selected = Vec::new();
    let mut each: Vec<&Named> = Vec::new();
    let mut once = first + arrays(engine, shape);
    for (column, sent) in columns.iter().zip(shape) {
        let value = match (sent, engine) {
            (Sent::Once, Engine::Postgres) => format!("${once}::{}", sql_type(column.kind)),
            (Sent::Once, Engine::Sqlite) => format!("${once}"),
            (Sent::Each, Engine::Postgres) => format!("u.{}", column.name),
            (Sent::Each, Engine::Sqlite) if count(shape, Sent::Each) == 1 => "value".into(),
            (Sent::Each, Engine::Sqlite) => format!("value->>{}", each.len()),
            (Sent::Run, _) => unreachable!("a run is found by its key"),
        };
        selected.push(format!("{value} AS {}", column.name));
        match sent {
            Sent::Each => each.push(column),
            Sent::Once | Sent::Run => once += 1,
        }
    }
    let selected = selected.join(", ");
    match engine {
        _ if each.is_empty() => format!("SELECT {selected}"),
        // OFFSET 0 keeps the planner from seeing what all rows have in common. With half of a key known it would find
        // a table's rows by that half, all of them, and look for each among the batch's.
        Engine::Postgres => format!("SELECT {selected} FROM {} OFFSET 0", unnest(&each, first)),
        Engine::Sqlite => format!("SELECT {selected} FROM json_each(${first})"),
    }
}

fn unnest(columns: &[&Named], first: usize) -> String {
    let array = |(at, column): (usize, &&Named)| format!("${}::{}[]", first + at, sql_type(column.kind));
    let arrays: Vec<String> = columns.iter().enumerate().map(array).collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
    format!("unnest({}) AS u({})", arrays.join(", "), names.join(", "))
}

fn sql_type(kind: Kind) -> &'static str {
    match kind {
        Kind::Int => "BIGINT",
        Kind::Text => "TEXT",
        Kind::Bool => "BOOLEAN",
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
    use Sent::{Each, Once, Run};

    const INSERT: &str = "INSERT INTO t SELECT r.id, r.word, $1 \
        FROM json_to_recordset($2::json) AS r(id BIGINT, word TEXT) WHERE id < $3";

    fn form(engine: Engine, sent: [Sent; 2]) -> &'static str {
        statement(INSERT).form(engine, vec![vec![], sent.into(), vec![]])
    }

    #[test]
    fn a_statement_knows_its_batches() {
        let named = |name: &str, kind| Named { name: name.into(), kind, is_key: false };

        assert_eq!(statement(INSERT).rows, [vec![], vec![named("id", Kind::Int), named("word", Kind::Text)]]);
    }

    #[test]
    fn locks_are_dropped_wherever_they_stand() {
        let sql = "SELECT * FROM (SELECT id FROM t LIMIT 1 FOR UPDATE OF t SKIP LOCKED) x JOIN y FOR UPDATE";

        assert_eq!(
            statement(sql).form(Engine::Sqlite, vec![]),
            "SELECT * FROM (SELECT id FROM t LIMIT 1) x JOIN y"
        );
    }

    #[test]
    fn sqlite_opens_rows_from_json() {
        let around = |batch| format!("INSERT INTO t SELECT r.id, r.word, $1 FROM {batch}");

        assert_eq!(
            form(Engine::Sqlite, [Each, Each]),
            around("(SELECT value->>0 AS id, value->>1 AS word FROM json_each($2)) AS r WHERE id < $3")
        );
        assert_eq!(
            form(Engine::Sqlite, [Each, Once]),
            around("(SELECT value AS id, $3 AS word FROM json_each($2)) AS r WHERE id < $4")
        );
        assert_eq!(
            form(Engine::Sqlite, [Once, Once]),
            around("(SELECT $2 AS id, $3 AS word) AS r WHERE id < $4")
        );
    }

    #[test]
    fn rows_that_differ_in_their_key_alone_are_found_by_any_of_the_keys() {
        let sql = "UPDATE t SET word = r.word FROM json_to_recordset($2::json) AS r(id BIGINT, word TEXT) \
            WHERE t.id = r.id AND t.n < $1";
        let form = |engine, sent: [Sent; 2]| statement(sql).form(engine, vec![vec![], sent.into()]);

        assert_eq!(
            form(Engine::Postgres, [Each, Once]),
            "UPDATE t SET word = r.word FROM (SELECT $3::TEXT AS word) AS r WHERE t.id = ANY($2::BIGINT[]) AND t.n < $1"
        );
        assert_eq!(
            form(Engine::Sqlite, [Each, Once]),
            "UPDATE t SET word = r.word FROM (SELECT $3 AS word) AS r \
             WHERE t.id IN (SELECT value FROM json_each($2)) AND t.n < $1"
        );
        assert_eq!(
            form(Engine::Postgres, [Run, Once]),
            "UPDATE t SET word = r.word \
             FROM (SELECT $2::BIGINT AS first_key, $3::BIGINT AS last_key, $4::TEXT AS word) AS r \
             WHERE t.id BETWEEN r.first_key AND r.last_key AND t.n < $1"
        );
        assert_eq!(
            form(Engine::Sqlite, [Run, Once]),
            "UPDATE t SET word = r.word FROM (SELECT $2 AS first_key, $3 AS last_key, $4 AS word) AS r \
             WHERE t.id BETWEEN r.first_key AND r.last_key AND t.n < $1"
        );
        assert!(
            form(Engine::Postgres, [Each, Each]).contains("WHERE t.id = r.id"),
            "each has a word of its own"
        );
    }

    #[test]
    fn a_key_that_is_needed_for_more_than_finding_stays_a_row() {
        let keyed = |sql| {
            let is_keyed = statement(sql).form(Engine::Postgres, vec![vec![Each]]).contains("ANY");
            assert_eq!(statement(sql).rows[0][0].is_key, is_keyed, "{sql}");
            is_keyed
        };

        assert!(keyed("SELECT t.id FROM json_to_recordset($1::json) AS r(id BIGINT) JOIN t ON t.id = r.id"));
        assert!(!keyed("SELECT r.id FROM json_to_recordset($1::json) AS r(id BIGINT) JOIN t ON t.id = r.id"));
        assert!(!keyed(
            "SELECT t.id FROM json_to_recordset($1::json) AS r(id BIGINT) LEFT JOIN t ON t.id = r.id"
        ));
        assert!(keyed(
            "SELECT t.id FROM json_to_recordset($1::json) AS r(id BIGINT) JOIN t ON t.id = r.id LEFT JOIN u ON TRUE"
        ));
    }

    #[test]
    fn sqlite_gathers_an_answer_into_one_text() {
        let sql = "\nSELECT t.id, t.word\nFROM t WHERE id = $1\nFOR UPDATE";

        assert_eq!(
            statement(sql).gathered(vec![vec![]]),
            "WITH r(c1, c2) AS (\nSELECT t.id, t.word\nFROM t WHERE id = $1\n) \
             SELECT json_group_array(json_array(c1, c2)) FROM r"
        );
    }

    #[test]
    fn postgres_opens_rows_from_arrays() {
        let around = |batch| format!("INSERT INTO t SELECT r.id, r.word, $1 FROM {batch} AS r WHERE id < $4");

        assert_eq!(
            form(Engine::Postgres, [Each, Each]),
            around(
                "(SELECT u.id AS id, u.word AS word FROM unnest($2::BIGINT[], $3::TEXT[]) AS u(id, word) OFFSET 0)"
            )
        );
        assert_eq!(
            form(Engine::Postgres, [Once, Each]),
            around("(SELECT $3::BIGINT AS id, u.word AS word FROM unnest($2::TEXT[]) AS u(word) OFFSET 0)")
        );
        assert_eq!(
            form(Engine::Postgres, [Once, Once]),
            around("(SELECT $2::BIGINT AS id, $3::TEXT AS word)")
        );
    }
}
