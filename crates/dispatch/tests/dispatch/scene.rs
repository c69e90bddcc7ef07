//! A database, a Redis, and processes that are tasks of this one: each has a store, a link and a worker of its own.

use dispatch::{Mode, Redis};
use rules::WorkerId;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use store::submit::NewJob;
use store::wake::Topic;
use store::{Location, Options, Store};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use wire::{Assignment, Commit, Hello, Kind, Usage};

/// How long anything here may take before it counts as hung.
pub const DEADLINE: Duration = Duration::from_secs(60);

pub struct Scene {
    folder: TempDir,
    database: Option<Database>,
    pub url: String,
    /// Nobody else uses it.
    pub prefix: String,
}

impl Scene {
    /// On the Redis all tests share.
    pub fn new() -> Self {
        let url = std::env::var("VODMILL_TEST_REDIS_URL")
            .expect("no Redis to test with: run `make test`, or `scripts/with-services cargo test`");
        Scene::at(url)
    }

    pub fn at(url: String) -> Self {
        let prefix = format!("test-{:016x}:", rand::random::<u64>());
        Scene { folder: tempfile::tempdir().unwrap(), database: None, url, prefix }
    }

    /// With a database that carries hints itself.
    pub async fn on_postgres(self) -> Self {
        let database = Database::create();
        Store::migrate(&database.0.parse().unwrap(), Options::default()).await.unwrap();
        Scene { database: Some(database), ..self }
    }

    pub async fn redis(&self, mode: Mode) -> Redis {
        Redis::open(&self.url, &self.prefix, mode).await.unwrap()
    }

    pub async fn store(&self) -> Store {
        let options = Options { is_durable: false, connections: 4, ..Options::default() };
        let location = match &self.database {
            Some(database) => database.0.parse().unwrap(),
            None => Location::Sqlite(self.folder.path().join("db")),
        };
        Store::open(&location, options).await.unwrap()
    }

    /// A process whose worker can do `kind`. It listens when this returns.
    pub async fn process(&self, kind: &str, mode: Mode) -> Process {
        let (store, redis) = (self.store().await, self.redis(mode).await);
        let worker = register(&store, kind).await;
        let mut hints = store.wake().subscribe(Topic::Event);
        hints.mark_unchanged();
        let carrier = tokio::spawn({
            let (store, redis) = (store.clone(), redis.clone());
            async move { dispatch::carry(&redis, &store, mode).await }
        });
        within("it listens", hints.changed()).await.unwrap();
        Process { store, redis, worker, carrier }
    }

    /// Asks Redis by hand, as somebody else might.
    pub async fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> T {
        let client = redis::Client::open(self.url.as_str()).unwrap();
        let mut connection = client.get_multiplexed_async_connection().await.unwrap();
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query_async(&mut connection).await.unwrap()
    }

    pub fn stream(&self, priority: u8) -> String {
        format!("{}ready:{priority}", self.prefix)
    }

    /// How many hints are in all streams.
    pub async fn hints(&self) -> usize {
        let mut all = 0;
        for priority in 0..=10 {
            all += self.ask::<usize>(&["XLEN", &self.stream(priority)]).await;
        }
        all
    }
}

async fn register(store: &Store, kind: &str) -> WorkerId {
    let worker = WorkerId(uuid::Uuid::now_v7());
    let hello = Hello {
        worker,
        name: kind.into(),
        kind: Kind::Local,
        hostname: "here".into(),
        version: "1".into(),
        slots: 1,
        capabilities: kind.parse().unwrap(),
        metadata: Value::Null,
    };
    store.register_worker(&hello).await.unwrap();
    worker
}

pub fn job(segments: u32, priority: u8) -> NewJob {
    let stages = json!([{ "name": "work", "kind": "noop", "segments": segments }]);
    let spec = json!({ "name": "test", "priority": priority, "stage": stages });
    NewJob { spec: serde_json::from_value(spec).unwrap(), video: None, idempotency_key: None }
}

pub struct Process {
    pub store: Store,
    pub redis: Redis,
    pub worker: WorkerId,
    carrier: JoinHandle<()>,
}

impl Process {
    /// Waits for a hint, takes one task, and so on until it has had so many; which.
    pub fn works(&self, tasks: usize) -> tokio::sync::mpsc::UnboundedReceiver<Assignment> {
        let (sender, got) = tokio::sync::mpsc::unbounded_channel();
        let (store, worker) = (self.store.clone(), self.worker);
        let mut hints = store.wake().subscribe(Topic::Ready);
        hints.mark_unchanged();
        tokio::spawn(async move {
            let mut had = 0;
            while had < tasks {
                store.wake().wait(&mut hints).await;
                for task in store.claim(worker, 1).await.unwrap() {
                    had += 1;
                    let _ = sender.send(task);
                }
            }
        });
        got
    }

    /// Waits until somebody waits here.
    pub async fn waits(&self) {
        let mut waiting = self.store.wake().waiting();
        within("somebody waits", waiting.wait_for(|waiting| *waiting > 0)).await.unwrap();
    }

    pub fn looks(&self) -> u64 {
        self.store.wake().looks().borrow().looks
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.carrier.abort();
    }
}

pub fn commit(task: &Assignment) -> Commit {
    Commit {
        proof: task.proof,
        result: None,
        publication: None,
        arrival: None,
        usage: Usage::default(),
        steps: Vec::new(),
    }
}

pub async fn within<T>(what: &str, done: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, done).await.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Asks until it is so.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    within(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

/// A database on the PostgreSQL all tests share; removed when dropped.
struct Database(String);

impl Database {
    fn create() -> Self {
        let name = format!("test_{:016x}", rand::random::<u64>());
        psql(&format!("CREATE DATABASE {name}"));
        let server = postgres();
        Database(format!("{}/{name}", server.rsplit_once('/').unwrap().0))
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        psql(&format!("DROP DATABASE {} WITH (FORCE)", self.0.rsplit_once('/').unwrap().1));
    }
}

fn postgres() -> String {
    std::env::var("VODMILL_TEST_POSTGRES_URL")
        .expect("no PostgreSQL to test with: run `make test`, or `scripts/with-services cargo test`")
}

fn psql(sql: &str) {
    let output = Command::new("psql").args([&postgres(), "-XAtqc", sql]).output().unwrap();
    assert!(output.status.success(), "psql: {output:?}");
}

/// A Redis of one's own, to be stopped, killed and filled.
pub struct Server(TempDir);

impl Server {
    pub fn start(conf: &[&str]) -> Self {
        let server = Server(tempfile::Builder::new().prefix("vodmill-redis").tempdir().unwrap());
        server.run("start", conf);
        server
    }

    pub fn url(&self) -> String {
        self.run("url", &[])
    }

    pub fn run(&self, what: &str, more: &[&str]) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/redis");
        let output = Command::new(script).arg(what).arg(self.0.path()).args(more).output().unwrap();
        assert!(output.status.success(), "scripts/redis {what}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.run("stop", &["KILL"]);
    }
}
