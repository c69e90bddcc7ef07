//! Jobs that ask for nothing, and the ways to bring them to their end.

use super::raw::{CALLERS, parts};
use anyhow::ensure;
use rules::spec::Spec;
use rules::{Millis, WorkerId};
use serde_json::json;
use std::time::Duration;
use store::submit::NewJob;
use store::wake::Topic;
use store::{Location, Store};
use tokio_util::sync::CancellationToken;
use wire::{Answer, Assignment, Commit, Hello, Kind, Usage};

/// What all tasks here are: done by being committed.
const KIND: &str = "noop";

/// Segments of one job where it does not matter.
const PER_JOB: usize = 1000;

/// As in production, but for a lease that outlives every measure, and as many connections as the peer of
/// `bench/compare.sh` has.
pub fn options() -> store::Options {
    store::Options {
        lease: Millis::from_secs(24 * 3600),
        connections: CALLERS as u32,
        ..store::Options::default()
    }
}

pub async fn open(location: &Location) -> anyhow::Result<Store> {
    if matches!(location, Location::Postgres(_)) {
        Store::migrate(location, options()).await?;
    }
    Ok(Store::open(location, options()).await?)
}

pub async fn register(store: &Store) -> anyhow::Result<WorkerId> {
    let worker = WorkerId(uuid::Uuid::now_v7());
    let hello = Hello {
        worker,
        name: "bench".into(),
        kind: Kind::Local,
        hostname: "bench".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        slots: 1000,
        capabilities: KIND.parse()?,
        metadata: json!({}),
    };
    store.register_worker(&hello).await?;
    Ok(worker)
}

/// A job of one stage.
pub fn job(segments: usize) -> anyhow::Result<NewJob> {
    new_job(json!([{ "name": "noop", "kind": KIND, "segments": segments }]))
}

/// A job whose second stage, of one task, waits for all segments of the first.
pub fn fan_in(segments: u32) -> anyhow::Result<NewJob> {
    new_job(json!([
        { "name": "encode", "kind": KIND, "segments": segments },
        { "name": "package", "kind": KIND, "needs": ["encode"] },
    ]))
}

fn new_job(stages: serde_json::Value) -> anyhow::Result<NewJob> {
    let spec: Spec = serde_json::from_value(json!({ "name": "bench", "stage": stages }))?;
    Ok(NewJob { spec, video: None, idempotency_key: None })
}

/// Adds `tasks` READY tasks.
pub async fn fill(store: &Store, tasks: usize) -> anyhow::Result<()> {
    for part in parts(tasks, 10 * PER_JOB) {
        let jobs = parts(part, PER_JOB).map(job).collect::<anyhow::Result<Vec<_>>>()?;
        store.submit_all(&jobs).await?;
    }
    Ok(())
}

pub fn commit(assignment: &Assignment) -> Commit {
    Commit {
        proof: assignment.proof,
        result: None,
        publication: None,
        arrival: None,
        usage: Usage::default(),
        steps: Vec::new(),
    }
}

/// Commits all of these; one that is refused would make the figures worthless.
pub async fn commit_all(store: &Store, assignments: &[Assignment]) -> anyhow::Result<()> {
    let commits: Vec<Commit> = assignments.iter().map(commit).collect();
    let answers = store.commit(&commits).await?;
    ensure!(answers.iter().all(|answer| *answer == Answer::Accepted), "a commit was refused");
    Ok(())
}

/// Claims and commits `by` at a time until nothing is READY.
pub async fn drain(store: &Store, worker: WorkerId, by: u32) -> anyhow::Result<()> {
    loop {
        let claimed = store.claim(worker, by).await?;
        if claimed.is_empty() {
            return Ok(());
        }
        commit_all(store, &claimed).await?;
    }
}

/// Settles what is committed, without an orchestrator.
pub async fn settle(store: &Store) -> anyhow::Result<()> {
    while store.settle(1000).await?.found > 0 {}
    Ok(())
}

/// An orchestrator beside the measure, until dropped.
pub struct Orchestrator(CancellationToken);

impl Orchestrator {
    pub fn start(store: &Store) -> Self {
        let token = CancellationToken::new();
        tokio::spawn(orchestrator::run(store.clone(), orchestrator::Options::default(), token.clone()));
        Orchestrator(token)
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Returns when every job has ended and every message is delivered.
pub async fn idle(store: &Store) -> anyhow::Result<()> {
    let mut hints = store.wake().subscribe(Topic::Event);
    while !store.is_idle().await? {
        // Asking costs what is being measured: mostly it is told, when a job ends.
        let _ = tokio::time::timeout(Duration::from_millis(10), hints.changed()).await;
    }
    Ok(())
}
