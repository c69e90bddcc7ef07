//! An orchestrator with a webhook, and somebody who gives it something to tell.

use orchestrator::webhook;
use rules::backoff::Backoff;
use rules::placement::Capabilities;
use rules::{Millis, WorkerId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::alert::Kind;
use store::submit::NewJob;
use store::{Location, Store};
use tempfile::TempDir;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;
use wire::{Commit, Hello, Usage};

pub const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

pub struct Scene {
    store: Store,
    folder: TempDir,
    _running: DropGuard,
}

impl Scene {
    pub async fn new(url: &str, change: impl FnOnce(&mut webhook::Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store =
            Store::open(&Location::Sqlite(folder.path().join("db")), Default::default()).await.unwrap();
        let wanted = HashMap::from([(Kind::WorkerStartup, Millis(0))]);
        store.ask_for_alerts(&wanted).await.unwrap();
        let mut webhook = webhook::Options::new(url.into());
        webhook.secret = Some(SECRET.parse().unwrap());
        webhook.allow_private = true;
        webhook.backoff = Backoff { initial: Millis(20), max: Millis(100) };
        webhook.timeout = Duration::from_secs(40);
        change(&mut webhook);
        let options = orchestrator::Options {
            poll: Duration::from_millis(20),
            webhook: Some(webhook),
            ..orchestrator::Options::default()
        };
        let shutdown = CancellationToken::new();
        tokio::spawn(orchestrator::run(store.clone(), options, shutdown.clone()));
        Scene { store, folder, _running: shutdown.drop_guard() }
    }

    /// Something to be told of.
    pub async fn start_worker(&self) -> String {
        let hello = Hello {
            worker: WorkerId(Uuid::new_v4()),
            name: "one".into(),
            kind: wire::Kind::Local,
            hostname: "here".into(),
            version: "1".into(),
            slots: 1,
            capabilities: "noop".parse::<Capabilities>().unwrap(),
            metadata: serde_json::Value::Null,
        };
        self.store.register_worker(&hello).await.unwrap();
        hello.worker.to_string()
    }

    /// Commits a task whose effect is a line in the file that is returned.
    pub async fn commit_with_effect(&self) -> PathBuf {
        let file = self.folder.path().join("lines");
        let stage = serde_json::json!({ "name": "work", "kind": "noop", "effect": { "append": file } });
        let spec = serde_json::json!({ "name": "test", "stage": [stage] });
        let job = NewJob { spec: serde_json::from_value(spec).unwrap(), video: None, idempotency_key: None };
        self.store.submit(&job).await.unwrap();
        let worker = self.any_worker().await;
        let task = self.store.claim(worker, 1).await.unwrap().remove(0);
        let commit = Commit {
            proof: task.proof,
            result: None,
            publication: None,
            arrival: None,
            usage: Usage::default(),
            steps: Vec::new(),
        };
        self.store.commit(&[commit]).await.unwrap();
        file
    }

    async fn any_worker(&self) -> WorkerId {
        self.store.workers(true).await.unwrap()[0].id.parse().unwrap()
    }

    pub async fn rows<T: store::db::Row>(&self, sql: &'static str) -> Vec<T> {
        self.store.db().read().await.unwrap().query(sql).all().await.unwrap()
    }

    /// Until the statement finds something.
    pub async fn until(&self, what: &str, sql: &'static str) {
        in_time(what, async || !self.rows::<(i64,)>(sql).await.is_empty()).await;
    }

    pub async fn until_delivered(&self) {
        self.until(
            "it is delivered",
            "SELECT id FROM outbox WHERE delivered_at IS NOT NULL AND error IS NULL",
        )
        .await;
    }
}

pub async fn in_time(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
