//! A store of one's own, a clock to turn, and short words for what tests do all the time.

use crate::database::Database;
use rules::{Millis, job};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use store::{Clock, Options, Step, Store};
use tokio::sync::Semaphore;

/// What `Options` say in these tests.
pub const LEASE: i64 = 60_000;
pub const HEARTBEAT: i64 = 30_000;
pub const OFFLINE: i64 = 300_000;

/// When every world begins: 15 November 2025.
pub const DAWN: i64 = 1_763_200_000_000;

pub struct World {
    pub store: Store,
    pub database: Database,
    hand: Arc<AtomicI64>,
    is_damaged: AtomicBool,
}

/// So many worlds exist at once, whatever the number of cores: PostgreSQL's connections are limited.
static SEATS: Semaphore = Semaphore::const_new(12);

/// What a world stands on.
pub enum Ground {
    Sqlite,
    PostgresSchema,
    PostgresDatabase,
}

/// Lets a behaviour live in a new world, and has the doctor look at what it leaves.
pub fn live(ground: Ground, behaviour: impl AsyncFnOnce(&World)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let _seat = SEATS.acquire().await.unwrap();
        let world = World::new(ground).await;
        behaviour(&world).await;
        world.end().await;
    });
}

impl World {
    async fn new(ground: Ground) -> Self {
        let database = match ground {
            Ground::Sqlite => Database::on_sqlite(),
            Ground::PostgresSchema => Database::schema().await,
            Ground::PostgresDatabase => Database::whole().await,
        };
        World::on(database).await
    }

    pub async fn on(database: Database) -> Self {
        let hand = Arc::new(AtomicI64::new(DAWN));
        let store = Store::open(&database.location, options(&hand)).await.unwrap();
        World { store, database, hand, is_damaged: AtomicBool::new(false) }
    }

    /// The doctor looks at what is left, and nothing is.
    pub async fn end(self) {
        self.examine().await;
        let World { store, database, .. } = self;
        database.remove(store).await;
    }

    async fn examine(&self) {
        let findings = self.store.examine().await.unwrap().findings;
        if self.is_damaged.load(Ordering::SeqCst) {
            assert!(!findings.is_empty(), "the doctor overlooks what was damaged");
        } else {
            assert!(findings.is_empty(), "the doctor finds {findings:#?}");
        }
    }

    /// Says that the doctor must find something at the end.
    pub fn is_damaged(&self) {
        self.is_damaged.store(true, Ordering::SeqCst);
    }

    /// What this world's stores are opened with.
    pub fn options(&self) -> Options {
        options(&self.hand)
    }

    /// The same database as another process sees it: with connections of its own.
    pub async fn elsewhere(&self) -> Store {
        Store::open(&self.database.location, self.options()).await.unwrap()
    }

    pub fn now(&self) -> Millis {
        Millis(self.hand.load(Ordering::SeqCst))
    }

    /// Turns the clock; also back, as clocks do.
    pub fn turn(&self, ms: i64) {
        self.hand.fetch_add(ms, Ordering::SeqCst);
    }

    /// Runs a statement by hand, behind the store's back.
    pub async fn execute(&self, sql: &'static str) -> store::Result<u64> {
        let mut tx = self.store.db().write(Step::Manage).await?;
        let changed = tx.query(sql).execute().await?;
        tx.commit().await?;
        Ok(changed)
    }

    pub async fn rows<T: store::db::Row>(&self, sql: &'static str) -> Vec<T> {
        let mut tx = self.store.db().read().await.unwrap();
        tx.query(sql).all().await.unwrap()
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        self.rows::<(i64,)>(sql).await[0].0
    }

    /// How many jobs have not ended.
    pub async fn open_jobs(&self) -> i64 {
        self.count("SELECT count(*) FROM job WHERE outcome IS NULL").await
    }

    pub async fn state(&self, job: rules::JobId) -> job::State {
        self.store.job(job).await.unwrap().state
    }
}

fn options(hand: &Arc<AtomicI64>) -> Options {
    Options {
        lease: Millis(LEASE),
        heartbeat_interval: Millis(HEARTBEAT),
        offline_after: Millis(OFFLINE),
        connections: 4,
        is_durable: false,
        clock: Clock::Manual(hand.clone()),
        ..Options::default()
    }
}
