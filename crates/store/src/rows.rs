//! Batches of rows, column by column, as PostgreSQL's `unnest` takes them.
//!
//! A row is any struct of plain fields. A statement's columns are found in it by name; one it does not have is NULL,
//! as in JSON. What all rows have in common is sent once.

use crate::db::Value as Plain;
use crate::text;
use serde::ser::{Error as _, Impossible, SerializeMap, SerializeStruct, Serializer};
use serde::{Serialize, de::value::Error};
use serde_json::Value;
use std::fmt::Write;

/// The type of a column, by the name the statement gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Int,
    Text,
    Bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    pub name: String,
    pub kind: Kind,
    /// The statement finds its rows by this column, and does nothing else with it.
    pub is_key: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    Int(Vec<Option<i64>>),
    Text(Vec<Option<String>>),
    Bool(Vec<Option<bool>>),
}

/// Rows as they are sent.
pub struct Batch {
    pub shape: Shape,
    /// The columns that differ from row to row.
    each: Vec<Column>,
    /// The ends of a run of keys, and what all rows have in common.
    once: Vec<Plain>,
}

/// How each column of a batch is sent: a statement has a form of its own for each such list.
pub type Shape = Vec<Sent>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sent {
    /// A value for each row.
    Each,
    /// The first and the last of consecutive keys: they are found by one look-up.
    Run,
    /// One value, for all rows have it.
    Once,
}

/// Smaller batches are not looked through for what their rows have in common: it would save little, and chance would
/// give a statement ever new forms.
pub const MANY: usize = 32;

impl Batch {
    pub fn new<T: Serialize>(rows: &[T], named: &[Named]) -> Self {
        let columns = columns(rows, named);
        let shape = shape(&columns, named);
        let (mut run, mut each, mut once) = (Vec::new(), Vec::new(), Vec::new());
        for (column, sent) in columns.into_iter().zip(&shape) {
            match (sent, column.run()) {
                (Sent::Run, Some((first, last))) => run.extend([first, last].map(Plain::from)),
                (Sent::Once, _) => once.push(column.into_first()),
                (Sent::Each | Sent::Run, _) => each.push(column),
            }
        }
        run.append(&mut once);
        Batch { shape, each, once: run }
    }

    /// What is sent: columns first, then plain values.
    pub fn sent(self) -> (Vec<Column>, Vec<Plain>) {
        (self.each, self.once)
    }
}

/// A single row is sent as plain values, many rows without what they repeat. At least one column of several rows is
/// sent for each, for it says how many there are.
fn shape(columns: &[Column], named: &[Named]) -> Shape {
    let rows = columns.first().map_or(0, Column::len);
    let mut shape: Shape = match rows {
        1 => return vec![Sent::Once; columns.len()],
        0..MANY => return vec![Sent::Each; columns.len()],
        _ => columns.iter().map(Column::sent).collect(),
    };
    if !shape.contains(&Sent::Each) {
        shape[0] = Sent::Each;
    }
    let mut each = (0..shape.len()).filter(|at| shape[*at] == Sent::Each);
    if let (Some(key), None) = (each.next(), each.next())
        && named[key].is_key
        && columns[key].run().is_some()
    {
        shape[key] = Sent::Run;
    }
    shape
}

/// The columns that a statement names, of these rows.
fn columns<T: Serialize>(rows: &[T], named: &[Named]) -> Vec<Column> {
    let mut columns: Vec<Column> = named.iter().map(|named| Column::new(named.kind, rows.len())).collect();
    for (at, row) in rows.iter().enumerate() {
        let fields = Fields { named, columns: &mut columns, next: 0 };
        row.serialize(fields).expect("rows are structs of plain fields");
        columns.iter_mut().for_each(|column| column.fill(at + 1));
    }
    columns
}

/// Columns as a JSON array of rows, for SQLite; each row an array, or a plain value where there is one column.
pub fn json(columns: &[Column]) -> String {
    let rows = columns.first().map_or(0, Column::len);
    let mut json = String::from("[");
    for row in 0..rows {
        if row > 0 {
            json.push(',');
        }
        match columns {
            [column] => column.write(row, &mut json),
            _ => write_row(columns, row, &mut json),
        }
    }
    json.push(']');
    json
}

fn write_row(columns: &[Column], row: usize, json: &mut String) {
    json.push('[');
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            json.push(',');
        }
        column.write(row, json);
    }
    json.push(']');
}

impl Column {
    fn new(kind: Kind, rows: usize) -> Self {
        match kind {
            Kind::Int => Column::Int(Vec::with_capacity(rows)),
            Kind::Text => Column::Text(Vec::with_capacity(rows)),
            Kind::Bool => Column::Bool(Vec::with_capacity(rows)),
        }
    }

    fn push(&mut self, cell: Cell) -> Result<(), Error> {
        match (self, cell) {
            (Column::Int(cells), Cell::Int(value)) => cells.push(Some(value)),
            (Column::Text(cells), Cell::Text(value)) => cells.push(Some(value)),
            (Column::Bool(cells), Cell::Bool(value)) => cells.push(Some(value)),
            (_, Cell::Null) => {}
            (column, cell) => return Err(Error::custom(format!("{cell:?} in a column of {column:?}"))),
        }
        Ok(())
    }

    fn sent(&self) -> Sent {
        fn is_alike<T: PartialEq>(cells: &[T]) -> bool {
            cells.windows(2).all(|pair| pair[0] == pair[1])
        }
        let is_alike = match self {
            Column::Int(cells) => is_alike(cells),
            Column::Text(cells) => is_alike(cells),
            Column::Bool(cells) => is_alike(cells),
        };
        if is_alike { Sent::Once } else { Sent::Each }
    }

    /// The ends of consecutive numbers, in order.
    pub fn run(&self) -> Option<(i64, i64)> {
        let Column::Int(cells) = self else { return None };
        let is_next = |pair: &[Option<i64>]| pair[0].and_then(|one| one.checked_add(1)) == pair[1];
        match (*cells.first()?, *cells.last()?) {
            (Some(first), Some(last)) if cells.windows(2).all(is_next) => Some((first, last)),
            _ => None,
        }
    }

    fn into_first(self) -> Plain {
        match self {
            Column::Int(cells) => Plain::Int(cells[0]),
            Column::Text(cells) => Plain::Text(cells.into_iter().next().flatten()),
            Column::Bool(cells) => Plain::Bool(cells[0]),
        }
    }

    fn len(&self) -> usize {
        match self {
            Column::Int(cells) => cells.len(),
            Column::Text(cells) => cells.len(),
            Column::Bool(cells) => cells.len(),
        }
    }

    fn write(&self, row: usize, json: &mut String) {
        let written = match self {
            Column::Int(cells) => cells[row].map(|int| write!(json, "{int}")),
            Column::Text(cells) => cells[row].as_deref().map(|text| write!(json, "{}", Value::from(text))),
            Column::Bool(cells) => cells[row].map(|bool| write!(json, "{bool}")),
        };
        written.unwrap_or_else(|| write!(json, "null")).expect("a string can be written to");
    }

    /// NULLs for what the row did not have.
    fn fill(&mut self, rows: usize) {
        match self {
            Column::Int(cells) => cells.resize(rows, None),
            Column::Text(cells) => cells.resize(rows, None),
            Column::Bool(cells) => cells.resize(rows, None),
        }
    }
}

/// Takes a row apart.
struct Fields<'a> {
    named: &'a [Named],
    columns: &'a mut [Column],
    /// Where the next field is expected: rows and statements mostly agree on the order.
    next: usize,
}

impl Fields<'_> {
    fn put<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) -> Result<(), Error> {
        let is_it = |at: &usize| self.named.get(*at).is_some_and(|named| named.name == name);
        let Some(at) = Some(self.next).filter(is_it).or_else(|| (0..self.named.len()).find(is_it)) else {
            return Ok(());
        };
        self.next = at + 1;
        self.columns[at].push(value.serialize(Scalar)?)
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<(), Error> {
        self.put(name, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

/// For rows with flattened parts, and for ready-made JSON.
struct Entries<'a> {
    fields: Fields<'a>,
    key: String,
}

impl SerializeMap for Entries<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        match key.serialize(Scalar)? {
            Cell::Text(key) => self.key = key,
            other => return Err(Error::custom(format!("{other:?} is no name"))),
        }
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.fields.put(&self.key, value)
    }

    fn end(self) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Debug)]
enum Cell {
    Null,
    Int(i64),
    Text(String),
    Bool(bool),
}

/// Takes one field of a row.
struct Scalar;

/// The methods of serde's data model that make no sense here.
macro_rules! refuse {
    ($($method:ident($($argument:ty),*) -> $ok:ty;)+) => {$(
        fn $method(self, $(_: $argument),*) -> Result<$ok, Error> {
            Err(Error::custom(concat!(stringify!($method), " in a row")))
        }
    )+};
}

macro_rules! refuse_compounds {
    ($ok:ty) => {
        type SerializeSeq = Impossible<$ok, Error>;
        type SerializeTuple = Impossible<$ok, Error>;
        type SerializeTupleStruct = Impossible<$ok, Error>;
        type SerializeTupleVariant = Impossible<$ok, Error>;
        type SerializeStructVariant = Impossible<$ok, Error>;
        type Ok = $ok;
        type Error = Error;

        refuse! {
            serialize_f32(f32) -> $ok;
            serialize_f64(f64) -> $ok;
            serialize_char(char) -> $ok;
            serialize_bytes(&[u8]) -> $ok;
            serialize_unit_struct(&'static str) -> $ok;
            serialize_seq(Option<usize>) -> Self::SerializeSeq;
            serialize_tuple(usize) -> Self::SerializeTuple;
            serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
            serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
            serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
        }

        fn serialize_newtype_variant<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            _: u32,
            _: &'static str,
            _: &T,
        ) -> Result<$ok, Error> {
            Err(Error::custom("an enum with data in a row"))
        }

        fn serialize_newtype_struct<T: Serialize + ?Sized>(
            self,
            _: &'static str,
            value: &T,
        ) -> Result<$ok, Error> {
            value.serialize(self)
        }

        fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<$ok, Error> {
            value.serialize(self)
        }
    };
}

impl<'a> Serializer for Fields<'a> {
    type SerializeStruct = Self;
    type SerializeMap = Entries<'a>;
    refuse_compounds!(());
    refuse! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i64(i64) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_str(&str) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Error> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Entries<'a>, Error> {
        Ok(Entries { fields: self, key: String::new() })
    }
}

macro_rules! scalars {
    ($($method:ident($value:ident: $type:ty) => $cell:expr;)+) => {$(
        fn $method(self, $value: $type) -> Result<Cell, Error> {
            Ok($cell)
        }
    )+};
}

impl Serializer for Scalar {
    type SerializeStruct = Impossible<Cell, Error>;
    type SerializeMap = Impossible<Cell, Error>;
    refuse_compounds!(Cell);
    refuse! {
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_map(Option<usize>) -> Self::SerializeMap;
    }
    scalars! {
        serialize_bool(value: bool) => Cell::Bool(value);
        serialize_i8(value: i8) => Cell::Int(value.into());
        serialize_i16(value: i16) => Cell::Int(value.into());
        serialize_i32(value: i32) => Cell::Int(value.into());
        serialize_i64(value: i64) => Cell::Int(value);
        serialize_u8(value: u8) => Cell::Int(value.into());
        serialize_u16(value: u16) => Cell::Int(value.into());
        serialize_u32(value: u32) => Cell::Int(value.into());
        serialize_u64(value: u64) => Cell::Int(i64::try_from(value).map_err(Error::custom)?);
        serialize_str(value: &str) => Cell::Text(text::plain(value).into_owned());
    }

    fn serialize_none(self) -> Result<Cell, Error> {
        Ok(Cell::Null)
    }

    fn serialize_unit(self) -> Result<Cell, Error> {
        Ok(Cell::Null)
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Result<Cell, Error> {
        Ok(Cell::Text(variant.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Row {
        id: i64,
        word: Option<&'static str>,
        is_new: bool,
        unasked: u32,
    }

    #[test]
    fn columns_are_found_by_name_and_what_is_missing_is_null() {
        let named = |name: &str, kind| Named { name: name.into(), kind, is_key: false };
        let named = [
            named("word", Kind::Text),
            named("id", Kind::Int),
            named("is_new", Kind::Bool),
            named("x", Kind::Int),
        ];
        let rows = [
            Row { id: 1, word: Some("a"), is_new: true, unasked: 0 },
            Row { id: 2, word: None, is_new: false, unasked: 0 },
        ];
        let values: Vec<serde_json::Value> =
            rows.iter().map(|row| serde_json::to_value(row).unwrap()).collect();

        let expected = vec![
            Column::Text(vec![Some("a".into()), None]),
            Column::Int(vec![Some(1), Some(2)]),
            Column::Bool(vec![Some(true), Some(false)]),
            Column::Int(vec![None, None]),
        ];
        assert_eq!(columns(&rows, &named), expected);
        assert_eq!(columns(&values, &named), expected);
        assert_eq!(json(&expected), r#"[["a",1,true,null],[null,2,false,null]]"#);
        assert_eq!(json(&expected[1..2]), "[1,2]");
    }

    #[test]
    fn what_many_rows_have_in_common_is_sent_once() {
        use Sent::{Each, Once};
        let batch =
            |rows: i64| [Column::Int((0..rows).map(Some).collect()), Column::Text(vec![None; rows as usize])];
        let alike = [Column::Int(vec![Some(1); MANY]), Column::Text(vec![None; MANY])];
        let shape = |columns: &[Column]| shape(columns, &named(false));

        assert_eq!(shape(&batch(0)), [Each, Each]);
        assert_eq!(shape(&batch(1)), [Once, Once]);
        assert_eq!(shape(&batch(2)), [Each, Each]);
        assert_eq!(shape(&batch(MANY as i64)), [Each, Once]);
        assert_eq!(shape(&alike), [Each, Once], "one column says how many rows there are");
    }

    fn named(is_key: bool) -> [Named; 2] {
        [("id", Kind::Int, is_key), ("word", Kind::Text, false)].map(|(name, kind, is_key)| Named {
            name: name.into(),
            kind,
            is_key,
        })
    }

    #[test]
    fn consecutive_keys_are_sent_as_their_ends() {
        use Sent::{Each, Once, Run};
        let shape = |ids: Vec<i64>| {
            let words = Column::Text(vec![None; ids.len()]);
            shape(&[Column::Int(ids.into_iter().map(Some).collect()), words], &named(true))
        };

        assert_eq!(shape((7..107).collect()), [Run, Once]);
        assert_eq!(shape((i64::MAX - 50..=i64::MAX).collect()), [Run, Once]);
        assert_eq!(shape((7..57).chain(58..90).collect()), [Each, Once], "a gap");
        assert_eq!(shape((7..107).rev().collect()), [Each, Once], "not in order");
        assert_eq!(shape((7..57).chain(56..90).collect()), [Each, Once], "twice the same");
        let whole = |column: Column| column.run();
        assert_eq!(whole(Column::Int(vec![Some(1), Some(2), Some(3)])), Some((1, 3)));
        assert_eq!(whole(Column::Int(vec![None, Some(1)])), None);
        assert_eq!(whole(Column::Int(vec![Some(i64::MAX), Some(i64::MIN)])), None);
    }
}
