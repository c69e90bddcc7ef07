//! Structs that a row becomes, column by column, on both engines.
//!
//! sqlx's own derive would have both drivers and SQLite built a second time, for the compiler.

use sqlx::{Column, ColumnIndex, Decode, Row, Type};
use std::ops::RangeFrom;

/// Declares a struct of which each field is read from the column of its name.
macro_rules! row {
    ($(#[$about:meta])* $seen:vis struct $name:ident {
        $($(#[$of:meta])* $shown:vis $field:ident: $type:ty),+ $(,)?
    }) => {
        $(#[$about])*
        $seen struct $name {
            $($(#[$of])* $shown $field: $type),+
        }
        $crate::from_row::row!(@from sqlx::postgres::PgRow, $name, $($field)+);
        $crate::from_row::row!(@from sqlx::sqlite::SqliteRow, $name, $($field)+);
    };
    (@from $row:ty, $name:ident, $($field:ident)+) => {
        impl<'r> sqlx::FromRow<'r, $row> for $name {
            fn from_row(row: &'r $row) -> sqlx::Result<Self> {
                let mut places = 0..;
                Ok($name { $($field: $crate::from_row::get(row, &mut places, stringify!($field))?),+ })
            }
        }
    };
}
pub(crate) use row;

/// The value of a column. Mostly columns stand in the order of the fields, and then their names need not be looked up.
pub(crate) fn get<'r, R, T>(row: &'r R, places: &mut RangeFrom<usize>, name: &'static str) -> sqlx::Result<T>
where
    R: Row,
    T: Decode<'r, R::Database> + Type<R::Database>,
    usize: ColumnIndex<R>,
    &'static str: ColumnIndex<R>,
{
    let place = places.next().unwrap_or_default();
    match row.columns().get(place) {
        Some(column) if column.name() == name => row.try_get(place),
        _ => row.try_get(name),
    }
}
