//! How long work waits on a system that has nothing else to do.

use super::figure::{Figure, ms, quantile};
use super::load::{self, Orchestrator};
use super::queue::Bench;
use rules::WorkerId;
use std::time::Instant;
use store::Store;
use store::wake::Topic;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use wire::Assignment;

/// Tasks in one commit while a fan-in fills up.
const COMMITS: usize = 100;

/// Passed over: connections are made and statements prepared.
const WARM_UP: usize = 3;

/// A worker that sleeps until it is told of work.
struct Sleeper {
    store: Store,
    worker: WorkerId,
    hints: watch::Receiver<u64>,
}

impl Sleeper {
    fn new(store: &Store, worker: WorkerId) -> Self {
        Sleeper { store: store.clone(), worker, hints: store.wake().subscribe(Topic::Ready) }
    }

    /// Sleeps until a hint leads to a task; when it had it.
    fn sleep(mut self) -> JoinHandle<anyhow::Result<(Instant, Vec<Assignment>)>> {
        tokio::spawn(async move {
            loop {
                self.hints.changed().await?;
                let claimed = self.store.claim(self.worker, 1).await?;
                if !claimed.is_empty() {
                    return Ok((Instant::now(), claimed));
                }
            }
        })
    }
}

/// From submission to start.
pub async fn wake(bench: &mut Bench) -> anyhow::Result<()> {
    let store = bench.store.clone();
    let (waits, inserts) = waits(bench, &store, "waking up").await?;
    push(bench, "wake", "submission to start", &waits, &inserts);
    if !store.is_postgres() {
        return Ok(());
    }
    let other = load::open(&bench.location).await?;
    let carriers = [store, other.clone()].map(|store| tokio::spawn(async move { store.wake().run().await }));
    let (waits, inserts) = waits_of(bench, &other).await?;
    carriers.iter().for_each(JoinHandle::abort);
    push(bench, "wake_notify", "submission to start, by NOTIFY", &waits, &inserts);
    Ok(())
}

async fn waits_of(bench: &Bench, sleeper: &Store) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    // The listener says so by a hint of its own.
    sleeper.wake().subscribe(Topic::Ready).changed().await?;
    waits(bench, sleeper, "waking up by NOTIFY").await
}

/// Waits of a worker on `sleeper` for what is submitted elsewhere, and of bare inserts between them.
async fn waits(bench: &Bench, sleeper: &Store, what: &str) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let job = load::job(1)?;
    let (mut waits, mut inserts) = (Vec::new(), Vec::new());
    for at in 0..WARM_UP + bench.sizes.wakes {
        bench.says(format!("{what}, {at}"));
        let woken = Sleeper::new(sleeper, bench.worker).sleep();
        let begun = Instant::now();
        bench.store.submit(&job).await?;
        let (started, claimed) = woken.await??;
        waits.push(ms(started - begun));

        let begun = Instant::now();
        bench.raw.insert(1).await?;
        inserts.push(ms(begun.elapsed()));
        load::commit_all(&bench.store, &claimed).await?;
        load::settle(&bench.store).await?;
    }
    Ok((waits.split_off(WARM_UP), inserts.split_off(WARM_UP)))
}

/// From the answer to the last segment's commit to the start of the next stage, an orchestrator between them.
pub async fn fan_in(bench: &mut Bench) -> anyhow::Result<()> {
    let _orchestrator = Orchestrator::start(&bench.store);
    let (mut waits, mut inserts) = (Vec::new(), Vec::new());
    for at in 0..1 + bench.sizes.fan_ins {
        bench.says(format!("fan-in, {at}"));
        waits.push(fan_in_once(bench).await?);
        let begun = Instant::now();
        bench.raw.insert(1).await?;
        inserts.push(ms(begun.elapsed()));
    }
    let (waits, inserts) = (waits.split_off(1), inserts.split_off(1));
    let name = format!("{}-segment fan-in to next stage", bench.sizes.fan_in_segments);
    push(bench, "fan_in", &name, &waits, &inserts);
    Ok(())
}

async fn fan_in_once(bench: &Bench) -> anyhow::Result<f64> {
    let store = &bench.store;
    store.submit(&load::fan_in(bench.sizes.fan_in_segments)?).await?;
    let segments = store.claim(bench.worker, 1000).await?;
    let woken = Sleeper::new(store, bench.worker).sleep();
    for batch in segments.chunks(COMMITS) {
        load::commit_all(store, batch).await?;
    }
    let committed = Instant::now();
    let (started, package) = woken.await??;
    load::commit_all(store, &package).await?;
    load::idle(store).await?;
    Ok(ms(started.saturating_duration_since(committed)))
}

fn push(bench: &mut Bench, key: &str, name: &str, waits: &[f64], inserts: &[f64]) {
    for (suffix, share) in [("p50", 0.5), ("p99", 0.99)] {
        let wait = quantile(waits, share);
        let figure = Figure::new(format!("{key}_{suffix}"), format!("{name}, {suffix}"), wait, "ms");
        bench.push(figure.beside(format!("insert of 1, {suffix}"), quantile(inserts, share)));
    }
}
