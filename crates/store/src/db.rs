//! The facade over the two engines: the only place that knows there are two.
//!
//! It owns the two locks nobody may forget: [`Db::write`] takes SQLite's single write lock at once
//! (`BEGIN IMMEDIATE`), and PostgreSQL's row locks stand in the statements (`FOR UPDATE`).

use crate::dialect::{self, Engine, Statement};
use crate::error::{Error, Result};
use crate::fullness::Fullness;
use crate::machine_clock::{self, MachineClock, Seen};
use crate::rows::{self, Batch, Column, Shape};
use crate::text;
use crate::transaction::{self, Patience};
use rules::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::sqlite::{Sqlite, SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{Arguments, FromRow, Transaction};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

#[derive(Clone)]
pub struct Db {
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
    /// What keeps the database's time from going back.
    pub(crate) machine: MachineClock,
    /// Whether statements may outlive their transaction on the server: not behind a transaction-mode pooler.
    pub(crate) keeps_statements: bool,
    pub(crate) full: Fullness,
}

#[derive(Clone)]
pub(crate) enum Pool {
    Postgres(PgPool),
    /// One connection writes, so that writers of one process queue here and not at the file's lock.
    Sqlite {
        writer: SqlitePool,
        reader: SqlitePool,
    },
}

/// Whose clock decides when a lease expires.
#[derive(Clone, Default)]
pub enum Clock {
    #[default]
    Database,
    /// Turned by hand, in tests.
    Manual(Arc<AtomicI64>),
}

failpoint::steps![
    /// Every durable step the store makes, each by one transaction in one place. Its name is its failpoint's.
    Submit,
    SubmitVideo,
    Claim,
    Progress,
    Renew,
    Commit,
    Fail,
    Settle,
    Judge,
    Retry,
    Recover,
    LoseWorker,
    Hedge,
    Cancel,
    Rerun,
    Register,
    Introduce,
    Enroll,
    Heartbeat,
    Offline,
    Manage,
    Reject,
    IssueKey,
    RevokeKeys,
    OpenSession,
    CloseSession,
    Decide,
    AskForAlerts,
    CreateVideo,
    ChangeVideo,
    SetVideoSettings,
    PurgeVideo,
    Rollback,
    BeginUpload,
    ForgetUpload,
    SetCaption,
    DeleteCaption,
    Deliver,
    Delivered,
    Postpone,
    PostponeAlert,
    PruneMessages,
    PruneWorkers,
    Log,
    Archive,
    PrepareHistory,
    DropPartitions,
    DeleteHistory,
    Migrate,
    Mark,
    BeginTimeline,
    TakeStorage,
    MoveStorage,
];

impl Step {
    /// Whether PostgreSQL need not wait for the disk; see [`BEGIN_RELAXED`].
    fn is_relaxed(self) -> bool {
        matches!(self, Step::Claim | Step::Heartbeat | Step::Settle)
    }
}

/// PostgreSQL: the clock, and what a transaction of ours must never do. A client that was stopped in the middle
/// gives up its locks after a while; and keyed statements are planned once and never as scans, whatever stale
/// statistics say. The few that must scan a small table look dear for that: without the last line each would be
/// compiled first.
macro_rules! begin {
    ($($more:literal)?) => {
        concat!(
            "
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT,
       set_config('idle_in_transaction_session_timeout', '15000', TRUE),
       set_config('lock_timeout', '10000', TRUE),
       set_config('plan_cache_mode', 'force_generic_plan', TRUE),
       set_config('random_page_cost', '0.1', TRUE),
       set_config('enable_seqscan', 'off', TRUE),
       set_config('enable_hashjoin', 'off', TRUE),
       set_config('enable_mergejoin', 'off', TRUE),
       set_config('jit', 'off', TRUE)"
            $(, $more)?
        )
    };
}
const BEGIN: &str = begin!();

/// As [`BEGIN`], and the commit returns before it is on disk. A lost claim only wastes a little work, for its token is
/// random; a lost heartbeat is followed by the next; what settling came to follows from commits, which are on disk, and
/// is made again. Whoever tells others of such a transaction waits for the disk himself: [`Db::outlive_a_crash`].
const BEGIN_RELAXED: &str = begin!(
    ",
       set_config('synchronous_commit', 'off', TRUE)"
);

/// Only the clock: what is asked seldom may be planned as the planner likes.
const READ: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT";

const IS_ON_DISK: &str = "SELECT pg_current_wal_insert_lsn() <= pg_current_wal_flush_lsn()";

/// A transaction that changes nothing, and waits for the disk: what was written before it is there then, too.
const FLUSH: &str = "SELECT pg_logical_emit_message(TRUE, 'vodmill', '')";

impl Db {
    /// Begins a read-decide-write transaction.
    pub async fn write(&self, step: Step) -> Result<Tx> {
        let mut tx = match &self.pool {
            Pool::Postgres(pool) => {
                let patience = if step == Step::Migrate { Patience::Long } else { Patience::Usual };
                let begun = transaction::Transaction::begin(pool, "BEGIN", patience).await?;
                self.tx(Inner::Postgres(begun), Some(step))
            }
            Pool::Sqlite { writer, .. } => {
                self.tx(Inner::Sqlite(writer.begin_with("BEGIN IMMEDIATE").await?), Some(step))
            }
        };
        let begin = if step.is_relaxed() { BEGIN_RELAXED } else { BEGIN };
        tx.now = self.now(&mut tx, begin).await?;
        Ok(tx)
    }

    /// Begins a snapshot that only reads, for whatever people ask.
    pub async fn read(&self) -> Result<Tx> {
        self.snapshot(READ, Patience::Long).await
    }

    /// Begins a snapshot for a question that is asked all day long and answered by an index.
    pub async fn look(&self) -> Result<Tx> {
        self.snapshot(BEGIN, Patience::Usual).await
    }

    async fn snapshot(&self, begin: &'static str, patience: Patience) -> Result<Tx> {
        let mut tx = match &self.pool {
            Pool::Postgres(pool) => {
                let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                let begun = transaction::Transaction::begin(pool, snapshot, patience).await?;
                self.tx(Inner::Postgres(begun), None)
            }
            Pool::Sqlite { reader, .. } => self.tx(Inner::Sqlite(reader.begin().await?), None),
        };
        tx.now = self.now(&mut tx, begin).await?;
        Ok(tx)
    }

    /// Ends a snapshot, and waits until all that it showed is on disk. Of transactions that did not wait for the disk
    /// PostgreSQL shows more than a crash of its host leaves; and their numbers are then given to others.
    pub(crate) async fn outlive_a_crash(&self, mut snapshot: Tx) -> Result<()> {
        let Pool::Postgres(pool) = &self.pool else { return Ok(()) };
        let (is_on_disk,): (bool,) = snapshot.query(IS_ON_DISK).one().await?;
        drop(snapshot);
        if !is_on_disk {
            let mut tx = transaction::Transaction::begin(pool, "BEGIN", Patience::Usual).await?;
            tx.answered(async |connection| sqlx::raw_sql(FLUSH).execute(connection).await.map(drop)).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    fn tx(&self, inner: Inner, step: Option<Step>) -> Tx {
        Tx {
            inner,
            step,
            now: Millis(0),
            keeps_statements: self.keeps_statements,
            full: self.full.clone(),
            told_later: Vec::new(),
        }
    }

    async fn now(&self, tx: &mut Tx, begin: &'static str) -> Result<Millis> {
        if let Inner::Sqlite(_) = tx.inner {
            return match &self.clock {
                Clock::Database => Ok(self.machine_time(tx).await),
                Clock::Manual(hand) => Ok(Millis(hand.load(Ordering::SeqCst))),
            };
        }
        let asked = machine_clock::since_boot();
        let (wall,): (i64,) = tx.query(begin).one().await?;
        match &self.clock {
            Clock::Database => self.postgres_time(tx, &machine_clock::answered(wall, asked)).await,
            Clock::Manual(hand) => Ok(Millis(hand.load(Ordering::SeqCst))),
        }
    }

    /// PostgreSQL's time. About once a second a transaction also reads what PostgreSQL remembers of it.
    async fn postgres_time(&self, tx: &mut Tx, seen: &Seen) -> Result<Millis> {
        if self.machine.is_stale(seen) {
            self.learn_clock(tx, seen).await?;
        }
        Ok(self.machine.now(seen))
    }

    async fn learn_clock(&self, tx: &mut Tx, seen: &Seen) -> Result<()> {
        let known: Option<(String,)> = tx.query(REMEMBERED).optional().await?;
        self.machine.learn(known.and_then(|(anchor,)| anchor.parse().ok()), seen);
        Ok(())
    }

    /// Reads for the first time what PostgreSQL remembers of its time, once there is a schema.
    pub(crate) async fn begin_clock(&self) -> Result<()> {
        if self.is_postgres() && matches!(self.clock, Clock::Database) {
            let mut tx = self.read().await?;
            self.learn_clock(&mut tx, &machine_clock::look()).await?;
        }
        Ok(())
    }

    /// Has PostgreSQL remember its time, for all processes.
    pub(crate) async fn note_clock(&self) -> Result<()> {
        let (Pool::Postgres(pool), Clock::Database) = (&self.pool, &self.clock) else { return Ok(()) };
        drop(self.look().await?);
        let Some(anchor) = self.machine.written(&machine_clock::look()) else { return Ok(()) };
        let mut tx = transaction::Transaction::begin(pool, "BEGIN", Patience::Usual).await?;
        let note = sqlx::query(NOTE_CLOCK).bind(anchor).persistent(false);
        tx.answered(async |connection| note.execute(connection).await.map(drop)).await?;
        Ok(tx.commit().await?)
    }

    /// SQLite's time. Transactions that write take the chance to write it down, about once a second.
    async fn machine_time(&self, tx: &mut Tx) -> Millis {
        let seen = machine_clock::look();
        let is_written = tx.step.is_some_and(|step| step != Step::Migrate) && self.machine.is_due(&seen);
        if is_written || self.machine.is_new() {
            // A database that has no such table yet remembers nothing.
            let known: Result<Option<(String,)>> = tx.query(REMEMBERED).optional().await;
            let known = known.ok().flatten().and_then(|(anchor,)| anchor.parse().ok());
            self.machine.learn(known, &seen);
        }
        let now = self.machine.now(&seen);
        if is_written && let Some(anchor) = self.machine.written(&seen) {
            // What cannot be written now is written with the next transaction; this one will say what is wrong.
            let _ = tx.query(REMEMBER).bind(anchor).execute().await;
        }
        now
    }

    pub(crate) async fn close(&self) {
        match &self.pool {
            Pool::Postgres(pool) => pool.close().await,
            Pool::Sqlite { writer, reader } => {
                reader.close().await;
                writer.close().await;
            }
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.pool, Pool::Postgres(_))
    }
}

const REMEMBERED: &str = "SELECT value FROM setting WHERE name = 'clock'";

/// What is noted never goes back, in whatever order processes note it.
const NOTE_CLOCK: &str = "
INSERT INTO setting (name, value) VALUES ('clock', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
WHERE split_part(setting.value, ' ', 1)::BIGINT < split_part(excluded.value, ' ', 1)::BIGINT";

const REMEMBER: &str = "
INSERT INTO setting (name, value) VALUES ('clock', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value";

/// A transaction. Dropped without [`Tx::commit`], it never happened.
pub struct Tx {
    inner: Inner,
    step: Option<Step>,
    now: Millis,
    keeps_statements: bool,
    full: Fullness,
    told_later: Vec<Box<dyn FnOnce() + Send>>,
}

enum Inner {
    Postgres(transaction::Transaction),
    Sqlite(Transaction<'static, Sqlite>),
}

impl Tx {
    /// The time at which this transaction decides.
    pub fn now(&self) -> Millis {
        self.now
    }

    pub fn query(&mut self, sql: &'static str) -> Query<'_> {
        Query::new(self, sql)
    }

    pub async fn commit(self) -> Result<()> {
        let step = self.step.map(Step::name);
        if let Some(step) = &step {
            failpoint::reached(step, "before");
        }
        let committed = match self.inner {
            Inner::Postgres(tx) => tx.commit().await,
            Inner::Sqlite(tx) => tx.commit().await,
        };
        self.full.note(committed.map_err(Error::from))?;
        if let Some(step) = &step {
            failpoint::reached(step, "after");
        }
        self.told_later.into_iter().for_each(|tell| tell());
        Ok(())
    }

    /// Tells of something once it has truly happened: a transaction that is begun again tells once.
    pub(crate) fn once_committed(&mut self, tell: impl FnOnce() + Send + 'static) {
        self.told_later.push(Box::new(tell));
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.inner, Inner::Postgres(_))
    }

    /// Runs statements of one engine only: migrations and partitions.
    pub(crate) async fn raw(&mut self, sql: &str) -> Result<()> {
        let sql = sqlx::AssertSqlSafe(sql);
        match &mut self.inner {
            Inner::Postgres(tx) => {
                tx.answered(async |connection| sqlx::raw_sql(sql).execute(connection).await.map(drop)).await?
            }
            Inner::Sqlite(tx) => sqlx::raw_sql(sql).execute(&mut **tx).await.map(drop)?,
        }
        Ok(())
    }
}

/// A row both engines can give.
pub trait Row: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin {}
impl<T: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin> Row for T {}

/// A value for a `$n`. NULLs are typed: PostgreSQL refuses what SQLite lets pass.
#[derive(Debug, Clone)]
pub enum Value {
    Int(Option<i64>),
    Text(Option<String>),
    Bool(Option<bool>),
}

pub struct Query<'t> {
    tx: &'t mut Tx,
    statement: &'static Statement,
    given: Vec<Given>,
}

/// What a statement's parameter was given.
enum Given {
    Value(Value),
    Rows(Batch),
}

impl<'t> Query<'t> {
    fn new(tx: &'t mut Tx, sql: &'static str) -> Self {
        Query { tx, statement: dialect::statement(sql), given: Vec::new() }
    }

    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.given.push(Given::Value(value.into()));
        self
    }

    /// Binds a batch of rows, for `json_to_recordset`.
    pub fn rows<T: Serialize>(mut self, rows: &[T]) -> Self {
        let named = self.statement.rows.get(self.given.len()).expect("the statement takes rows here");
        self.given.push(Given::Rows(Batch::new(rows, named)));
        self
    }

    /// Binds a list of ids, for `json_to_recordset($1::json) AS r(id BIGINT)`.
    pub fn ids(self, ids: impl IntoIterator<Item = i64>) -> Self {
        #[derive(Serialize)]
        struct Key {
            id: i64,
        }
        let keys: Vec<Key> = ids.into_iter().map(|id| Key { id }).collect();
        self.rows(&keys)
    }

    pub async fn all<T: Row>(self) -> Result<Vec<T>> {
        let full = self.tx.full.clone();
        full.note(self.rows_of_answer().await)
    }

    async fn rows_of_answer<T: Row>(self) -> Result<Vec<T>> {
        let (sql, keeps) = (self.form(), self.tx.keeps_statements);
        Ok(match &mut self.tx.inner {
            Inner::Postgres(tx) => {
                let values = for_postgres(self.given);
                let query = sqlx::query_as_with(sql, values).persistent(keeps);
                tx.answered(async |connection| query.fetch_all(connection).await).await?
            }
            Inner::Sqlite(tx) => {
                sqlx::query_as_with(sql, for_sqlite(self.given)).fetch_all(&mut **tx).await?
            }
        })
    }

    /// As [`Query::all`], for answers as long as a batch. SQLite gives them as one text: handing over each row by
    /// itself, from its thread to ours, costs more than finding it.
    pub async fn many<T: Row + DeserializeOwned>(self) -> Result<Vec<T>> {
        let shapes = self.shapes();
        match &mut self.tx.inner {
            Inner::Postgres(_) => self.all().await,
            Inner::Sqlite(tx) => {
                let sql = self.statement.gathered(shapes);
                let values = for_sqlite(self.given);
                let text: String = sqlx::query_scalar_with(sql, values).fetch_one(&mut **tx).await?;
                Ok(serde_json::from_str(&text)?)
            }
        }
    }

    pub async fn optional<T: Row>(self) -> Result<Option<T>> {
        Ok(self.all().await?.into_iter().next())
    }

    pub async fn one<T: Row>(self) -> Result<T> {
        self.optional().await?.ok_or(Error::NotFound("row"))
    }

    /// Runs the statement; how many rows it changed.
    pub async fn execute(self) -> Result<u64> {
        let full = self.tx.full.clone();
        full.note(self.rows_changed().await)
    }

    async fn rows_changed(self) -> Result<u64> {
        let (sql, keeps) = (self.form(), self.tx.keeps_statements);
        Ok(match &mut self.tx.inner {
            Inner::Postgres(tx) => {
                let values = for_postgres(self.given);
                let query = sqlx::query_with(sql, values).persistent(keeps);
                tx.answered(async |connection| query.execute(connection).await).await?.rows_affected()
            }
            Inner::Sqlite(tx) => {
                sqlx::query_with(sql, for_sqlite(self.given)).execute(&mut **tx).await?.rows_affected()
            }
        })
    }

    /// The statement as this transaction's engine takes it, with what it was given.
    fn form(&self) -> &'static str {
        let engine = if self.tx.is_postgres() { Engine::Postgres } else { Engine::Sqlite };
        self.statement.form(engine, self.shapes())
    }

    fn shapes(&self) -> Vec<Shape> {
        let shape = |given: &Given| match given {
            Given::Value(_) => Shape::new(),
            Given::Rows(batch) => batch.shape.clone(),
        };
        self.given.iter().map(shape).collect()
    }
}

fn for_postgres(given: Vec<Given>) -> PgArguments {
    let mut values = PgArguments::default();
    for given in given {
        let (each, once) = match given {
            Given::Value(value) => (Vec::new(), vec![value]),
            Given::Rows(batch) => batch.sent(),
        };
        for column in each {
            match column {
                Column::Int(ints) => values.add(ints),
                Column::Text(texts) => values.add(texts),
                Column::Bool(bools) => values.add(bools),
            }
            .expect("plain values can be encoded");
        }
        for value in once {
            match value {
                Value::Int(int) => values.add(int),
                Value::Text(text) => values.add(text),
                Value::Bool(bool) => values.add(bool),
            }
            .expect("plain values can be encoded");
        }
    }
    values
}

fn for_sqlite(given: Vec<Given>) -> SqliteArguments {
    let mut values = SqliteArguments::default();
    for given in given {
        let (each, once) = match given {
            Given::Value(value) => (Vec::new(), vec![value]),
            Given::Rows(batch) => batch.sent(),
        };
        let json = (!each.is_empty()).then(|| Value::Text(Some(rows::json(&each))));
        for value in json.into_iter().chain(once) {
            match value {
                Value::Int(int) => values.add(int),
                Value::Text(text) => values.add(text),
                Value::Bool(bool) => values.add(bool),
            }
            .expect("plain values can be encoded");
        }
    }
    values
}

macro_rules! into_value {
    ($($type:ty => |$it:ident| $value:expr),+ $(,)?) => {$(
        impl From<$type> for Value {
            fn from($it: $type) -> Value { $value }
        }
    )+};
}
into_value! {
    i64 => |it| Value::Int(Some(it)),
    Option<i64> => |it| Value::Int(it),
    Millis => |it| Value::Int(Some(it.0)),
    Option<Millis> => |it| Value::Int(it.map(|at| at.0)),
    rules::JobId => |it| Value::Int(Some(it.0)),
    rules::TaskId => |it| Value::Int(Some(it.0)),
    rules::VideoId => |it| Value::Int(Some(it.0)),
    rules::GenerationId => |it| Value::Int(Some(it.0)),
    rules::WorkerId => |it| Value::Text(Some(it.to_string())),
    &str => |it| Value::Text(Some(text::plain(it).into_owned())),
    String => |it| it.as_str().into(),
    Option<String> => |it| it.map_or(Value::Text(None), Value::from),
    bool => |it| Value::Bool(Some(it)),
}

/// Runs `attempt` again while it only meets other transactions, so that no caller ever sees "deadlock detected",
/// "could not serialize" or "database is locked".
pub async fn again<T, F: Future<Output = Result<T>>>(mut attempt: impl FnMut() -> F) -> Result<T> {
    const PATIENCE: Duration = Duration::from_secs(120);
    let begun = std::time::Instant::now();
    let mut wait = 1;
    loop {
        match attempt().await {
            Err(Error::Contention(source)) if begun.elapsed() > PATIENCE => {
                return Err(Error::Unavailable(source));
            }
            Err(Error::Contention(source)) => {
                tracing::debug!(%source, "transaction met another, beginning it again");
                telemetry::metrics::TRANSACTION_RETRIES.count([]);
                tokio::time::sleep(Duration::from_millis(rand::random_range(1..=wait))).await;
                wait = (wait * 2).min(100);
            }
            done => return done,
        }
    }
}
