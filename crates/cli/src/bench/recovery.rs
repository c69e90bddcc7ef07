//! A fleet is gone, all its leases run out at once: how soon is everything READY again?

use super::figure::{Figure, median, ms};
use super::load;
use super::queue::Bench;
use super::raw::parts;
use anyhow::ensure;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Instant;
use store::{Clock, Options, Store};

/// As many as the orchestrator takes at once.
const BATCH: usize = 500;

pub async fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let leases = bench.sizes.leases;
    bench.says(format!("letting {leases} leases expire"));
    load::fill(&bench.store, leases).await?;
    let mut left = leases;
    while left > 0 {
        left -= bench.store.claim(bench.worker, 1000).await?.len();
    }
    let later = tomorrow(bench).await?;
    let begun = Instant::now();
    let mut recovered = 0;
    let (mut ours, mut marks) = (Vec::new(), Vec::new());
    while recovered < leases {
        let begun = Instant::now();
        let batch = later.recover(BATCH as i64).await?.len();
        ensure!(batch > 0, "only {recovered} of {leases} leases were recovered");
        ours.push(ms(begun.elapsed()) / batch as f64);
        recovered += batch;
    }
    let total = begun.elapsed();
    for part in parts(leases, BATCH) {
        let begun = Instant::now();
        bench.raw.mark(part).await?;
        marks.push(ms(begun.elapsed()) / part as f64);
    }
    bench.push(Figure::new("recovery_total", format!("recovery of {leases} leases"), ms(total), "ms"));
    let each = Figure::new("recovery_each", "recovery of a lease", 1000.0 * median(&ours), "µs");
    bench.push(each.beside(format!("update of {BATCH}, each"), 1000.0 * median(&marks)));
    load::drain(&bench.store, bench.worker, 1000).await?;
    load::settle(&bench.store).await
}

/// The same database a day and a bit later, when every lease has expired.
async fn tomorrow(bench: &Bench) -> anyhow::Result<Store> {
    let now = bench.store.now().await?;
    let expired = now + bench.store.options().lease + rules::Millis::from_secs(60);
    let clock = Clock::Manual(Arc::new(AtomicI64::new(expired.0)));
    Ok(Store::open(&bench.location, Options { clock, ..load::options() }).await?)
}
