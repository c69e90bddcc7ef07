//! Redis: told at once, and never needed. Everything here may be lost, doubled, late or gone altogether; the database
//! alone decides, and a poll finds what nobody told of.
//!
//! | what | file |
//! | --- | --- |
//! | one server, and whether it answers | [`link`]; its keys and channels: [`names`]; what it tells: [`ear`] |
//! | tasks became READY: one process is told, and passes on what it cannot take | [`hint`] |
//! | the other wake-ups: all are told | [`bell`] |
//! | who works on what, how far it is, what is done: for pages and programs | [`herald`] tells, [`news`] listens |
//! | one holder at a time, with a number that grows | [`lock`] |
//! | one leader among processes, by Redis or else by PostgreSQL | [`lead`] |

mod bell;
mod ear;
pub mod herald;
mod hint;
pub mod lead;
mod link;
pub mod lock;
mod names;
pub mod news;

pub use link::{Error, Redis};

use rules::Millis;
use rules::backoff::{Backoff, Jitter};
use std::time::Duration;
use store::Store;

/// Who carries hints from process to process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// The database, by NOTIFY; Redis carries news only.
    #[default]
    Database,
    /// Redis; while it is away, workers poll.
    Redis,
    /// Redis; while it is away, the database.
    Hybrid,
}

/// Carries hints between `store` and Redis until dropped.
pub async fn carry(redis: &Redis, store: &Store, mode: Mode) {
    let pulse = redis.pulse();
    if mode == Mode::Database {
        return pulse.await;
    }
    let wake = store.wake();
    let fallback = Fallback { wake, mode };
    tokio::join!(
        pulse,
        fallback.rest(redis),
        bell::send(redis, &fallback),
        bell::listen(redis, wake),
        hint::send(redis, &fallback),
        hint::take(redis, wake),
    );
}

/// What becomes of hints that Redis did not take.
struct Fallback<'a> {
    wake: &'a store::wake::Wake,
    mode: Mode,
}

impl Fallback<'_> {
    /// Lets NOTIFY rest while Redis answers; in mode `redis`, always.
    async fn rest(&self, redis: &Redis) {
        let mut is_up = redis.watch();
        loop {
            let is_quiet = *is_up.borrow_and_update() || self.mode == Mode::Redis;
            self.wake.set_quiet(is_quiet);
            // The link lives as long as this does.
            let _ = is_up.changed().await;
        }
    }

    /// Polls find what nobody carries.
    fn settle(&self, topic: store::wake::Topic, sent: &Result<(), Error>) {
        if sent.is_err() && self.mode == Mode::Hybrid {
            self.wake.give_back(topic);
        }
    }
}

/// Between tries to reach a server that is away.
struct Pace(u32);

impl Pace {
    const GROWS: Backoff = Backoff { initial: Millis(250), max: Millis(10_000) };

    fn new() -> Self {
        Pace(0)
    }

    async fn wait(&mut self) {
        self.0 = self.0.saturating_add(1);
        let delay = Self::GROWS.delay(self.0, jitter()).0.unsigned_abs();
        tokio::time::sleep(Duration::from_millis(delay)).await;
    }
}

fn jitter() -> Jitter {
    Jitter(rand::random_range(0..=1000))
}
