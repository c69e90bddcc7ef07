//! What the store promises, written once and lived through on both engines.
//!
//! A behaviour is an `async fn` that reads as a sentence, and stands in its file's `on_both_engines!`: one left out
//! is an unused function, and the compiler says so. Each gets a [`world::World`] of its own, with a database that
//! nobody else uses and a clock that it turns by hand; at its end the doctor must find nothing.
//!
//! `make test` brings the PostgreSQL and the PgBouncer that this needs; so does
//! `scripts/with-services cargo test -p vodmill-store`.

#![allow(clippy::unwrap_used)]

/// Makes a test on SQLite and one on PostgreSQL of each behaviour.
macro_rules! on_both_engines {
    ($($behaviour:ident),+ $(,)?) => {
        mod on_sqlite {
            use $crate::world::{Ground, live};
            $(#[test] fn $behaviour() { live(Ground::Sqlite, super::$behaviour); })+
        }
        mod on_postgres {
            use $crate::world::{Ground, live};
            $(#[test] fn $behaviour() { live(Ground::PostgresSchema, super::$behaviour); })+
        }
    };
}

/// For what only PostgreSQL has: partitions, row locks.
macro_rules! on_postgres_alone {
    ($($behaviour:ident),+ $(,)?) => {
        mod on_postgres_alone {
            use $crate::world::{Ground, live};
            $(#[test] fn $behaviour() { live(Ground::PostgresSchema, super::$behaviour); })+
        }
    };
}

/// For what touches a whole database: its settings, statistics, notifications and connections.
macro_rules! on_a_whole_database {
    ($($behaviour:ident),+ $(,)?) => {
        mod on_a_whole_database {
            use $crate::world::{Ground, live};
            $(#[test] fn $behaviour() { live(Ground::PostgresDatabase, super::$behaviour); })+
        }
    };
}

/// For what only SQLite has: a file.
macro_rules! on_sqlite_alone {
    ($($behaviour:ident),+ $(,)?) => {
        mod on_sqlite_alone {
            use $crate::world::{Ground, live};
            $(#[test] fn $behaviour() { live(Ground::Sqlite, super::$behaviour); })+
        }
    };
}

mod alert;
mod archive;
mod audit;
mod bad_input;
mod bounds;
mod cancel;
mod census;
mod claim;
mod clock;
mod confirm;
mod contention;
mod doctor;
mod event;
mod fair;
mod gpu;
mod hedge;
mod history;
mod key;
mod lost_worker;
mod outbox;
mod planner;
mod pooler;
mod recover;
mod rerun;
mod results;
mod retry;
mod schema;
mod server;
mod settle;
mod submit;
mod suspend;
mod timeline;
mod upgrade;
mod video;
mod wake;
mod why;
mod word;
mod worker;

mod database;
mod shop;
mod world;
