//! `vodmill bench wake`: who tells workers of work, and what it costs: nobody (they poll), PostgreSQL by NOTIFY, Redis; and
//! Redis that is struck.

use super::figure::{self, Figure, ms, quantile};
use super::load::{self, Orchestrator};
use super::place::Place;
use super::processor;
use super::strike::{Blow, Line};
use crate::Done;
use crate::settings::{Settings, Usage};
use dispatch::{Mode, Redis};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::wake::Topic;
use store::{Location, Store};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Measure how work is told of: by polling, by NOTIFY and by Redis, also while Redis fails
///
/// Needs PostgreSQL and --redis-url. Uses a database of its own, made beside the one of --database-url and removed at the
/// end, and names in Redis of its own. Workers are simulated: they claim and commit as real ones do, and work on nothing.
#[derive(clap::Args)]
pub struct Args {
    /// Submissions that one idle worker waits for, of each kind; of polling, and while Redis fails, a tenth
    #[arg(long, value_name = "N", default_value_t = 300)]
    samples: usize,
    /// Simulated workers
    #[arg(long, value_name = "N", default_value_t = 200)]
    workers: usize,
    /// Among so many processes, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 20)]
    processes: usize,
    /// Jobs in the queue before the workers begin
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    jobs: usize,
    /// Jobs that come one by one to a fleet that waits
    #[arg(long, value_name = "N", default_value_t = 500)]
    singles: usize,
    /// A Redis without a password that may be filled up, for nobody else uses it. Without it, how a full Redis delays is not
    /// measured
    #[arg(long, value_name = "URL")]
    spare_redis_url: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Who tells of work.
#[derive(Clone, Copy, PartialEq)]
enum Teller {
    Nobody,
    Notify,
    Redis,
    /// Redis, and NOTIFY while it is away.
    Hybrid,
}

impl Teller {
    const ALL: [Teller; 3] = [Teller::Nobody, Teller::Notify, Teller::Redis];

    fn key(self) -> &'static str {
        match self {
            Teller::Nobody => "poll",
            Teller::Notify => "notify",
            Teller::Redis => "redis",
            Teller::Hybrid => "hybrid",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Teller::Nobody => "polling",
            Teller::Notify => "NOTIFY",
            Teller::Redis => "Redis",
            Teller::Hybrid => "Redis or NOTIFY",
        }
    }
}

/// Between looks of an idle worker, as `worker::Options` has them.
const SHORTEST_POLL: Duration = Duration::from_millis(50);
const LONGEST_POLL: Duration = Duration::from_secs(1);

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let (database, redis) = (settings.database_url.as_deref(), settings.redis_url.as_deref());
        let (Some(database), Some(redis)) = (database.filter(|url| url.starts_with("postgres")), redis)
        else {
            return Err(
                Usage("name a PostgreSQL with --database-url and a Redis with --redis-url".into()).into()
            );
        };
        let place = Place::make(Some(database)).await?;
        Store::migrate(&place.location, load::options()).await?;
        let measured = self.measure(&place.location, redis).await;
        place.remove().await?;
        let figures = measured?;
        if self.json {
            figure::print_json("postgres", &figures)?;
        } else {
            figure::print(&figures);
        }
        Ok(Done::Yes)
    }

    async fn measure(&self, location: &Location, redis: &str) -> anyhow::Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for teller in Teller::ALL {
            let world = World { location, redis, teller, prefix: prefix() };
            figures.extend(self.latency(&world).await?);
        }
        for teller in [Teller::Redis, Teller::Hybrid] {
            for blow in Blow::ALL {
                let redis = if blow == Blow::Full { self.spare_redis_url.as_deref() } else { Some(redis) };
                if let Some(redis) = redis {
                    figures.extend(self.struck(location, redis, teller, blow).await?);
                }
            }
        }
        for teller in [Teller::Notify, Teller::Redis] {
            let world = World { location, redis, teller, prefix: prefix() };
            figures.extend(self.fleet(&world).await?);
        }
        Ok(figures)
    }

    /// From submission to claim by the one worker there is, which waits in another process.
    async fn latency(&self, world: &World<'_>) -> anyhow::Result<Vec<Figure>> {
        let office = world.host().await?;
        let (mut fleet, mut claims) = Fleet::start(world, 1, 1).await?;
        let samples = if world.teller == Teller::Nobody {
            self.samples.div_ceil(10)
        } else {
            self.samples
        };
        warm_up(&office.store, &mut claims).await?;
        let waits = singles(&office.store, &mut claims, samples).await?;
        fleet.end().await;
        let name = format!("submission to claim, {}", world.teller.name());
        Ok(quantiles(&format!("wake_{}", world.teller.key()), &name, &waits))
    }

    /// As [`Args::latency`], from the moment on at which Redis is struck.
    async fn struck(
        &self,
        location: &Location,
        redis: &str,
        teller: Teller,
        blow: Blow,
    ) -> anyhow::Result<Vec<Figure>> {
        let line = Line::to(redis).await?;
        let world = World { location, redis: line.url(), teller, prefix: prefix() };
        let office = world.host().await?;
        let (mut fleet, mut claims) = Fleet::start(&world, 1, 1).await?;
        warm_up(&office.store, &mut claims).await?;
        line.strike(blow).await?;
        let waits = singles(&office.store, &mut claims, self.samples.div_ceil(10)).await;
        line.heal().await?;
        fleet.end().await;
        let name = format!("submission to claim, mode {}, {}", teller.key(), blow.name());
        Ok(quantiles(&format!("struck_{}_{}", teller.key(), blow.key()), &name, &waits?))
    }

    async fn fleet(&self, world: &World<'_>) -> anyhow::Result<Vec<Figure>> {
        let office = world.host().await?;
        let _orchestrator = Orchestrator::start(&office.store);
        let jobs = vec![load::job(1)?; self.jobs.min(1000)];
        for _ in 0..self.jobs / jobs.len().max(1) {
            office.store.submit_all(&jobs).await?;
        }
        let (mut fleet, mut claims) = Fleet::start(world, self.workers, self.processes).await?;
        let (spent, began) = (processor::spent(), Instant::now());
        for _ in 0..self.jobs / jobs.len().max(1) * jobs.len() {
            claims.recv().await;
        }
        let backlog = began.elapsed();
        let backlog_spent = processor::spent() - spent;
        load::idle(&office.store).await?;

        warm_up(&office.store, &mut claims).await?;
        let (spent, looks) = (processor::spent(), fleet.looks());
        let waits = singles(&office.store, &mut claims, self.singles).await?;
        let spent = processor::spent() - spent;
        let looks = fleet.looks() - looks;
        load::idle(&office.store).await?;
        fleet.end().await;

        let (key, by) = (world.teller.key(), world.teller.name());
        let (done, came) = (self.jobs as f64, self.singles.max(1) as f64);
        let mut figures = vec![
            figure(
                key,
                "backlog",
                format!("{} queued jobs, {} workers, {by}", self.jobs, self.workers),
                done / backlog.as_secs_f64(),
                "claims/s",
            ),
            figure(
                key,
                "backlog_processor",
                format!("processor time for 1,000 of them, {by}"),
                backlog_spent / done * 1000.0,
                "s",
            ),
        ];
        let name = format!("submission to claim, {} workers idle, {by}", self.workers);
        figures.extend(quantiles(&format!("fleet_{key}"), &name, &waits));
        figures.push(figure(key, "looks", format!("looks for each of these, {by}"), looks as f64 / came, ""));
        let name = format!("processor time for 1,000 of these, {by}");
        figures.push(figure(key, "singles_processor", name, spent / came * 1000.0, "s"));
        Ok(figures)
    }
}

fn figure(key: &str, what: &str, name: String, value: f64, unit: &'static str) -> Figure {
    Figure::new(format!("{what}_{key}"), name, value, unit)
}

fn quantiles(key: &str, name: &str, waits: &[f64]) -> Vec<Figure> {
    let of = |(suffix, share)| {
        Figure::new(format!("{key}_{suffix}"), format!("{name}, {suffix}"), quantile(waits, share), "ms")
    };
    [("p50", 0.5), ("p99", 0.99)].map(of).into()
}

/// Passed over: connections are made and statements prepared.
async fn warm_up(office: &Store, claims: &mut mpsc::UnboundedReceiver<Instant>) -> anyhow::Result<()> {
    singles(office, claims, 5).await.map(drop)
}

/// Submits jobs one by one, each when the one before is claimed and everybody waits again; how long each waited.
async fn singles(
    office: &Store,
    claims: &mut mpsc::UnboundedReceiver<Instant>,
    count: usize,
) -> anyhow::Result<Vec<f64>> {
    let job = load::job(1)?;
    let mut waits = Vec::new();
    for _ in 0..count {
        // At no particular moment of anybody's poll.
        tokio::time::sleep(SHORTEST_POLL.mul_f64(rand::random_range(0.0..1.0))).await;
        let submitted = Instant::now();
        office.submit(&job).await?;
        let claimed = claims.recv().await.unwrap_or_else(Instant::now);
        waits.push(ms(claimed.saturating_duration_since(submitted)));
    }
    Ok(waits)
}

/// Names in Redis of our own.
fn prefix() -> String {
    format!("bench-{:x}:", rand::random::<u64>())
}

struct World<'a> {
    location: &'a Location,
    redis: &'a str,
    teller: Teller,
    prefix: String,
}

impl World<'_> {
    /// A process of its own, as far as it can be one in this.
    async fn host(&self) -> anyhow::Result<Host> {
        let options = store::Options { connections: 4, ..load::options() };
        let store = Store::open(self.location, options).await?;
        let mut carriers = JoinSet::new();
        let mut listening = store.wake().subscribe(Topic::Event);
        listening.mark_unchanged();
        match self.teller {
            Teller::Nobody => {}
            Teller::Notify => {
                let store = store.clone();
                carriers.spawn(async move { store.wake().run().await });
            }
            Teller::Redis => self.carry_by_redis(&store, Mode::Redis, &mut carriers).await?,
            Teller::Hybrid => {
                self.carry_by_redis(&store, Mode::Hybrid, &mut carriers).await?;
                let store = store.clone();
                carriers.spawn(async move { store.wake().run().await });
            }
        }
        if self.teller != Teller::Nobody {
            // Who carries says by a hint that it listens.
            listening.changed().await?;
        }
        Ok(Host { store, _carriers: carriers })
    }

    async fn carry_by_redis(
        &self,
        store: &Store,
        mode: Mode,
        carriers: &mut JoinSet<()>,
    ) -> anyhow::Result<()> {
        let (store, redis) = (store.clone(), Redis::open(self.redis, &self.prefix, mode).await?);
        carriers.spawn(async move { dispatch::carry(&redis, &store, mode).await });
        Ok(())
    }
}

struct Host {
    store: Store,
    /// Until dropped.
    _carriers: JoinSet<()>,
}

/// Simulated workers, spread over processes.
struct Fleet {
    hosts: Vec<Host>,
    workers: JoinSet<anyhow::Result<()>>,
}

impl Fleet {
    /// Also says when each task was claimed.
    async fn start(
        world: &World<'_>,
        workers: usize,
        processes: usize,
    ) -> anyhow::Result<(Self, mpsc::UnboundedReceiver<Instant>)> {
        let (sender, claims) = mpsc::unbounded_channel();
        let mut fleet = Fleet { hosts: Vec::new(), workers: JoinSet::new() };
        for _ in 0..processes.max(1) {
            fleet.hosts.push(world.host().await?);
        }
        let began = Arc::new(AtomicU64::new(0));
        for number in 0..workers {
            let store = fleet.hosts[number % fleet.hosts.len()].store.clone();
            fleet.workers.spawn(work(store, sender.clone(), began.clone()));
        }
        while began.load(Ordering::Relaxed) < workers as u64 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok((fleet, claims))
    }

    fn looks(&self) -> u64 {
        self.hosts.iter().map(|host| host.store.wake().looks().borrow().looks).sum()
    }

    async fn end(&mut self) {
        self.workers.shutdown().await;
        for host in self.hosts.drain(..) {
            host.store.close().await;
        }
    }
}

/// Claims one task after another, and waits as a worker does where there is none.
async fn work(
    store: Store,
    claims: mpsc::UnboundedSender<Instant>,
    began: Arc<AtomicU64>,
) -> anyhow::Result<()> {
    let worker = load::register(&store).await?;
    let mut hints = store.wake().subscribe(Topic::Ready);
    let mut poll = SHORTEST_POLL;
    began.fetch_add(1, Ordering::Relaxed);
    loop {
        hints.mark_unchanged();
        let claimed = store.claim(worker, 1).await?;
        if claimed.is_empty() {
            let wait = poll.mul_f64(rand::random_range(0.75..1.25));
            let _ = tokio::time::timeout(wait, store.wake().wait(&mut hints)).await;
            poll = (poll * 2).min(LONGEST_POLL);
            continue;
        }
        poll = SHORTEST_POLL;
        let at = Instant::now();
        load::commit_all(&store, &claimed).await?;
        // Only now: who is told may end this worker, and nobody would commit what it had.
        let _ = claims.send(at);
    }
}
