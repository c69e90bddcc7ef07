//! What a claim of 100 costs behind a backlog, and with a history behind the backlog.

use super::figure::{Figure, median, ms};
use super::load;
use super::place;
use super::queue::Bench;
use std::time::Instant;
use store::Location;

const BATCH: usize = 100;

pub async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let mut ready = 0;
    for backlog in bench.sizes.backlogs.clone() {
        bench.says(format!("adding tasks up to a backlog of {backlog}"));
        load::fill(&bench.store, backlog - ready).await?;
        ready = backlog;
        claims(bench, &format!("claim_behind_{backlog}"), &format!("{backlog} READY")).await?;
    }
    let history = bench.sizes.history;
    if history > 0 {
        bench.says(format!("finishing the backlog, for a history of {history}"));
        load::drain(&bench.store, bench.worker, 1000).await?;
        load::settle(&bench.store).await?;
        load::fill(&bench.store, 1000).await?;
        claims(bench, "claim_after_history", &format!("1000 READY, {history} just finished")).await?;
        if let Location::Postgres(server) = &bench.location {
            bench.says("vacuuming, as PostgreSQL does by itself every minute");
            place::tell(server, "VACUUM task".into()).await?;
            claims(bench, "claim_after_vacuum", &format!("1000 READY, {history} finished, vacuumed")).await?;
        }
    }
    Ok(())
}

/// Claims, each followed by the end of what was claimed and as many new tasks: the backlog stays what it is.
async fn claims(bench: &mut Bench, key: &str, behind: &str) -> anyhow::Result<()> {
    let (mut claims, mut takes) = (Vec::new(), Vec::new());
    let job = load::job(BATCH)?;
    for at in 0..bench.sizes.backlog_claims {
        bench.says(format!("claiming with {behind}, {at}"));
        let begun = Instant::now();
        let claimed = bench.store.claim(bench.worker, BATCH as u32).await?;
        claims.push(ms(begun.elapsed()));

        bench.raw.insert(BATCH).await?;
        let begun = Instant::now();
        bench.raw.take(BATCH).await?;
        takes.push(ms(begun.elapsed()));

        load::commit_all(&bench.store, &claimed).await?;
        load::settle(&bench.store).await?;
        bench.store.submit(&job).await?;
    }
    let figure = Figure::new(key, format!("claim of {BATCH}, {behind}"), median(&claims), "ms");
    bench.push(figure.beside(format!("bare claim and delete of {BATCH}"), median(&takes)));
    Ok(())
}
