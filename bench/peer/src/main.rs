//! Drains no-op jobs with graphile_worker, set as in its own benchmark, and prints jobs per second.
//!
//!     peer DATABASE_URL JOBS batched|singly
//!
//! The database must be empty and is the caller's to remove. The clock runs from the worker's start until its table
//! of jobs is empty: everything is completed, and durably so.

use anyhow::{Context, bail};
use graphile_worker::{
    IntoTaskHandlerResult, JobSpec, LocalQueueConfig, RawJobSpec, TaskHandler, WorkerContext, WorkerOptions,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// As many connections as callers at a time.
const CALLERS: usize = 32;

const LEFT: &str = "SELECT EXISTS (SELECT 1 FROM graphile_worker._private_jobs)";

#[derive(Serialize, Deserialize)]
struct Noop {}

#[derive(Clone, Debug, Default)]
struct Handled(Arc<AtomicUsize>);

impl TaskHandler for Noop {
    const IDENTIFIER: &'static str = "noop";

    async fn run(self, context: WorkerContext) -> impl IntoTaskHandlerResult {
        if let Some(handled) = context.get_ext::<Handled>() {
            handled.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok::<(), String>(())
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, jobs, how] = args.as_slice() else { bail!("usage: peer DATABASE_URL JOBS batched|singly") };
    let jobs: usize = jobs.parse().context("JOBS is a number")?;
    let pool = PgPoolOptions::new().max_connections(CALLERS as u32).connect(url).await?;
    let handled = Handled::default();
    let worker = options(how)?.pg_pool(pool.clone()).add_extension(handled.clone()).init().await?;
    let worker = Arc::new(worker);
    add(&worker, jobs).await?;

    let begun = Instant::now();
    let running = tokio::spawn({
        let worker = worker.clone();
        async move { worker.run().await.map_err(|error| error.to_string()) }
    });
    drained(&pool, &handled, jobs).await?;
    let rate = jobs as f64 / begun.elapsed().as_secs_f64();

    worker.request_shutdown();
    running.await?.map_err(anyhow::Error::msg)?;
    println!("{rate:.0}");
    Ok(())
}

fn options(how: &str) -> anyhow::Result<WorkerOptions> {
    let options = WorkerOptions::default()
        .schema("graphile_worker")
        .poll_interval(Duration::from_millis(5))
        .listen_os_shutdown_signals(false)
        .define_job::<Noop>();
    match how {
        "batched" => Ok(options
            .concurrency(500)
            .complete_job_batch_delay(Duration::from_millis(5))
            .local_queue(LocalQueueConfig::default().with_size(5000))),
        "singly" => Ok(options.concurrency(CALLERS)),
        _ => bail!("`{how}` is neither `batched` nor `singly`"),
    }
}

async fn add(worker: &graphile_worker::Worker, jobs: usize) -> anyhow::Result<()> {
    let job = || RawJobSpec {
        identifier: Noop::IDENTIFIER.into(),
        payload: serde_json::json!({}),
        spec: JobSpec::default(),
    };
    let utils = worker.create_utils();
    for from in (0..jobs).step_by(10_000) {
        let batch: Vec<RawJobSpec> = (from..jobs.min(from + 10_000)).map(|_| job()).collect();
        utils.add_raw_jobs(&batch).await?;
    }
    Ok(())
}

/// Asks the database only when the handlers are through: asking costs.
async fn drained(pool: &PgPool, handled: &Handled, jobs: usize) -> anyhow::Result<()> {
    while handled.0.load(Ordering::Relaxed) < jobs {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    while sqlx::query_scalar::<_, bool>(LEFT).fetch_one(pool).await? {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
