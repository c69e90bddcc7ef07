//! Structs that a row becomes, column by column, on both engines.
//!
//! sqlx's own derive would have both drivers and SQLite built a second time, for the compiler.

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
                Ok($name { $($field: sqlx::Row::try_get(row, stringify!($field))?),+ })
            }
        }
    };
}
pub(crate) use row;
