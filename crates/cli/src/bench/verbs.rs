//! Submitting, claiming and committing, each alone, beside the engine's insert, take and update of as many rows.

use super::figure::{Figure, median};
use super::load;
use super::queue::Bench;
use std::time::Instant;

/// Tasks in one call.
const BATCHES: [usize; 3] = [1, 100, 1000];

pub async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    submit(bench).await?;
    for (batch, calls) in BATCHES.into_iter().zip(bench.sizes.calls) {
        claim_and_commit(bench, batch, calls).await?;
    }
    Ok(())
}

async fn submit(bench: &mut Bench) -> anyhow::Result<()> {
    let [singles, hundreds, thousands] = bench.sizes.calls;
    let store = bench.store.clone();
    let (mut one, mut many, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    let (mut raw_one, mut raw_many, mut raw_tasks) = (Vec::new(), Vec::new(), Vec::new());
    let (single, hundred, thousand) = (load::job(1)?, vec![load::job(1)?; 100], load::job(1000)?);
    for round in 0..bench.sizes.rounds {
        bench.says(format!("submitting, round {}", round + 1));
        one.push(rate(singles, 1, async || Ok(store.submit(&single).await.map(drop)?)).await?);
        raw_one.push(rate(singles, 1, async || bench.raw.insert(1).await).await?);
        many.push(rate(hundreds, 100, async || Ok(store.submit_all(&hundred).await.map(drop)?)).await?);
        raw_many.push(rate(hundreds, 100, async || bench.raw.insert(100).await).await?);
        tasks.push(rate(thousands, 1000, async || Ok(store.submit(&thousand).await.map(drop)?)).await?);
        raw_tasks.push(rate(thousands, 1000, async || bench.raw.insert(1000).await).await?);
        load::drain(&store, bench.worker, 1000).await?;
        load::settle(&store).await?;
    }
    let figure = |key: &str, name: &str, unit, ours: &[f64], raw: &[f64], batch: usize| {
        Figure::new(key, name, median(ours), unit).beside(format!("insert of {batch}"), median(raw))
    };
    bench.push(figure("submit_1", "submit, a job at a time", "jobs/s", &one, &raw_one, 1));
    bench.push(figure("submit_jobs_100", "submit, 100 jobs at a time", "jobs/s", &many, &raw_many, 100));
    bench.push(figure("submit_tasks_1000", "submit, a job of 1,000", "tasks/s", &tasks, &raw_tasks, 1000));
    Ok(())
}

async fn claim_and_commit(bench: &mut Bench, batch: usize, calls: usize) -> anyhow::Result<()> {
    let (store, worker) = (bench.store.clone(), bench.worker);
    let (mut claims, mut commits) = (Vec::new(), Vec::new());
    let (mut takes, mut marks) = (Vec::new(), Vec::new());
    for round in 0..bench.sizes.rounds {
        bench.says(format!("claiming and committing by {batch}, round {}", round + 1));
        load::fill(&store, batch * calls).await?;
        bench.raw.insert(batch * calls).await?;

        let mut claimed = Vec::new();
        let claim = async || {
            claimed.push(store.claim(worker, batch as u32).await?);
            Ok(())
        };
        claims.push(rate(calls, batch, claim).await?);
        takes.push(rate(calls, batch, async || bench.raw.take(batch).await.map(drop)).await?);

        let mut left = claimed.iter();
        let commit = async || match left.next() {
            Some(assignments) => load::commit_all(&store, assignments).await,
            None => Ok(()),
        };
        commits.push(rate(calls, batch, commit).await?);
        marks.push(rate(calls, batch, async || bench.raw.mark(batch).await).await?);
        load::settle(&store).await?;
    }
    let claim = Figure::new(
        format!("claim_{batch}"),
        format!("claim, {batch} at a time"),
        median(&claims),
        "tasks/s",
    );
    bench.push(claim.beside(format!("bare claim and delete of {batch}"), median(&takes)));
    let commit = Figure::new(
        format!("commit_{batch}"),
        format!("commit, {batch} at a time"),
        median(&commits),
        "tasks/s",
    );
    bench.push(commit.beside(format!("update of {batch}"), median(&marks)));
    Ok(())
}

/// How many a second, when each call does `batch`.
async fn rate(
    calls: usize,
    batch: usize,
    mut call: impl AsyncFnMut() -> anyhow::Result<()>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    for _ in 0..calls {
        call().await?;
    }
    Ok((calls * batch) as f64 / begun.elapsed().as_secs_f64())
}
