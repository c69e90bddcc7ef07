//! What runs beside a program that works on a database: hints to and from Redis, news to it, and who leads.

use crate::settings::Settings;
use dispatch::{Redis, herald, lead};
use store::Store;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub struct Beside {
    pub redis: Option<Redis>,
    ending: CancellationToken,
    tasks: JoinSet<()>,
}

impl Beside {
    /// Carries hints by Redis, where there is one. The database's own are carried by [`store::wake::Wake::run`].
    pub async fn start(settings: &Settings, store: &Store) -> anyhow::Result<Self> {
        let (redis, mode) = (settings.redis().await?, settings.queue_mode());
        let mut beside = Beside { redis, ending: CancellationToken::new(), tasks: JoinSet::new() };
        if let Some(redis) = beside.redis.clone() {
            let (store, ending) = (store.clone(), beside.ending.clone());
            beside.tasks.spawn(async move {
                tokio::select! {
                    () = dispatch::carry(&redis, &store, mode) => {}
                    () = ending.cancelled() => {}
                }
            });
        }
        Ok(beside)
    }

    /// Stands for the lead of what the clock brings, and for who tells the news; whether it leads. Until the first
    /// answer it does.
    pub fn orchestrates(&mut self, store: &Store) -> watch::Receiver<bool> {
        let (leads, is_leader) = watch::channel(true);
        let (redis, ending) = (self.redis.clone(), self.ending.clone());
        self.tasks.spawn(lead::stand("orchestrator", redis, store.clone(), leads, ending));
        if let Some(redis) = self.redis.clone() {
            self.tasks.spawn(herald::run(redis, store.clone(), self.ending.clone()));
        }
        is_leader
    }

    /// Gives back what it holds.
    pub async fn end(mut self) {
        self.ending.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}
