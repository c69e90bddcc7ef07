//! Tasks from READY to settled with the whole contract: claimed, committed, settled by an orchestrator, every move
//! audited, every job ended. The doctor looks at the end.

use super::figure::{Figure, median};
use super::load::{self, Orchestrator};
use super::queue::Bench;
use super::raw::CALLERS;
use anyhow::ensure;
use rules::WorkerId;
use std::time::Instant;
use store::Store;
use store::batch::Batched;
use tokio::task::JoinSet;
use wire::Answer;

const BATCH: u32 = 1000;
/// Enough to keep both cores of a small machine at work while one waits for the disk; more wait for each other.
const DRAINERS: usize = 4;

pub async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let (store, worker, sizes) = (bench.store.clone(), bench.worker, bench.sizes.clone());
    let _orchestrator = Orchestrator::start(&store);
    let (mut tasks, mut jobs, mut singles) = (Vec::new(), Vec::new(), Vec::new());
    let (mut raw, mut raw_singles) = (Vec::new(), Vec::new());
    for round in 0..sizes.rounds {
        bench.says(format!("draining, round {}", round + 1));
        load::fill(&store, sizes.drained).await?;
        tasks.push(drain(&store, worker, sizes.drained, BATCH).await?);
        raw.push(bench.raw.drain(sizes.drained, BATCH as usize, DRAINERS).await?);

        store.submit_all(&vec![load::job(1)?; sizes.drained_jobs]).await?;
        jobs.push(drain(&store, worker, sizes.drained_jobs, BATCH).await?);

        load::fill(&store, sizes.drained_singly).await?;
        singles.push(drain_singly(&store, worker, sizes.drained_singly).await?);
        raw_singles.push(bench.raw.drain(sizes.drained_singly, 1, CALLERS).await?);
    }
    bench.says("looking for anything lost");
    check(&store).await?;

    let (raw, raw_singles) = (median(&raw), median(&raw_singles));
    let take = format!("bare claim and delete of {BATCH}");
    let figure = |key: &str, name: &str, unit, rates: &[f64]| Figure::new(key, name, median(rates), unit);
    bench.push(figure("drain", "end to end, in batches", "tasks/s", &tasks).beside(take.clone(), raw));
    bench.push(figure("drain_jobs", "end to end, jobs of one task", "jobs/s", &jobs).beside(take, raw));
    let name = format!("end to end, {CALLERS} callers with one each");
    let take = format!("bare claim and delete of 1 by {CALLERS}");
    bench.push(figure("drain_singly", &name, "tasks/s", &singles).beside(take, raw_singles));
    Ok(())
}

/// Tasks a second until every job has ended.
async fn drain(store: &Store, worker: WorkerId, tasks: usize, by: u32) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut draining = JoinSet::new();
    for _ in 0..DRAINERS {
        let store = store.clone();
        draining.spawn(async move { load::drain(&store, worker, by).await });
    }
    all(draining).await?;
    load::idle(store).await?;
    Ok(tasks as f64 / begun.elapsed().as_secs_f64())
}

/// As [`drain`], for callers that know of one task at a time, as slots do.
async fn drain_singly(store: &Store, worker: WorkerId, tasks: usize) -> anyhow::Result<f64> {
    let batched = Batched::new(store);
    let begun = Instant::now();
    let mut draining = JoinSet::new();
    for _ in 0..CALLERS {
        draining.spawn(call(batched.clone(), worker));
    }
    all(draining).await?;
    load::idle(store).await?;
    Ok(tasks as f64 / begun.elapsed().as_secs_f64())
}

async fn call(batched: Batched, worker: WorkerId) -> anyhow::Result<()> {
    while let Some(assignment) = batched.claim(worker).await? {
        let answer = batched.commit(load::commit(&assignment)).await?;
        ensure!(answer == Answer::Accepted, "a commit was refused");
    }
    Ok(())
}

async fn all(mut running: JoinSet<anyhow::Result<()>>) -> anyhow::Result<()> {
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

async fn check(store: &Store) -> anyhow::Result<()> {
    let report = store.examine().await?;
    match report.findings.first() {
        None => Ok(()),
        Some(finding) => anyhow::bail!("{}: {} [{}]", finding.subject, finding.what, finding.check),
    }
}
