//! Load, decide, save — on PostgreSQL and SQLite.
//!
//! A change of a task's state is decided by `rules`, kept by [`moves`] and saved by [`save`], with its audit row, in one
//! transaction.
//! `db` alone knows that there are two engines; `dialect` that they differ in spelling.
//!
//! | who | files |
//! | --- | --- |
//! | a person | [`submit`], [`cancel`], [`rerun`], [`job`], [`detail`] and [`why`] (views), [`video`], [`catalogue`], [`caption`], [`upload`], [`key`], [`setting`], [`log`], [`event`] and [`running`] (live), [`timeline`] and [`storage`] (which database this is), [`counts`] and [`census`] |
//! | a worker | [`claim`] (with `results`), [`word`] (renew, progress, commit, fail), [`worker`]; together they are a [`wire::Desk`] |
//! | the orchestrator | [`settle`], [`judge`], [`retry`], [`recover`], [`hedge`], [`lost_worker`], [`worker`] (offline), [`outbox`] and [`alert`], [`archive`], [`history`]; and one of several by [`lead`] |
//!
//! Locks are taken in one order, or deadlocks would follow: jobs, then tasks by id, then videos by id. The lock on a
//! task guards it until it is committed; from then on its job's does.
//!
//! To add a query: write the statement as a constant in its noun's file, give `Store` a method named for what
//! happens, and add the behaviour to `tests/conformance`.

pub mod alert;
pub mod archive;
mod audit;
pub mod batch;
pub mod cancel;
pub mod caption;
pub mod catalogue;
pub mod census;
pub mod claim;
pub mod counts;
mod cursor;
pub mod db;
mod desk;
pub mod detail;
mod dialect;
pub mod doctor;
mod eligibility;
mod error;
pub mod event;
mod failed;
mod from_row;
mod fullness;
pub mod hedge;
pub mod history;
pub mod hold;
pub mod inventory;
pub mod job;
pub mod judge;
pub mod key;
mod lane;
pub mod lead;
pub mod log;
pub mod lost_worker;
mod machine_clock;
pub mod migrate;
mod moves;
mod open;
pub mod outbox;
mod owner;
mod plan;
mod publish;
mod queue;
mod readied;
pub mod recover;
pub mod rerun;
pub mod results;
pub mod retry;
mod rows;
pub mod running;
mod save;
pub mod session;
pub mod setting;
pub mod settle;
mod stage;
pub mod storage;
pub mod submit;
pub mod suspension;
mod task;
mod text;
pub mod timeline;
mod transaction;
pub mod upload;
pub mod video;
pub mod wake;
pub mod why;
mod witness;
pub mod word;
pub mod worker;

pub use cursor::{Cursor, NoCursor};
pub use db::{Clock, Step};
pub use desk::StoreDesk;
pub use error::{Error, Refusal, Result};
pub use open::{Location, Options};
pub use readied::Readied;

use db::Db;
use std::sync::Arc;
use wake::Wake;

/// The database, and everything that may be done to it. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    db: Db,
    options: Arc<Options>,
    wake: Wake,
}

impl Store {
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Why the database can take nothing more, if it just said so.
    pub fn shortage(&self) -> Option<String> {
        self.db.full.reason()
    }

    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    pub fn is_postgres(&self) -> bool {
        self.db.is_postgres()
    }

    /// Lets go of the database; of a file, nothing is left beside it. Nobody may use this store or its clones any more.
    pub async fn close(&self) {
        self.db.close().await;
    }

    /// The time by the clock that decides: the database's.
    pub async fn now(&self) -> Result<rules::Millis> {
        Ok(self.db.read().await?.now())
    }

    /// Has PostgreSQL remember how far its time is, so that no process goes back behind it when its clock is set back.
    /// SQLite's transactions do so by themselves.
    pub async fn note_clock(&self) -> Result<()> {
        self.db.note_clock().await
    }
}

/// For tests that look over the store's shoulder.
#[doc(hidden)]
pub mod testing {
    impl crate::Store {
        pub fn db(&self) -> &crate::db::Db {
            &self.db
        }
    }
}
