//! The store as a desk: workers in the same process, or with access to the database, speak to it directly.

use crate::batch::Batched;
use crate::wake::Topic;
use crate::{Error, Store};
use rules::{WorkerId, worker};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use wire::{Answer, Assignment, Commit, Desk, Failure, Heartbeat, Hello, Progress, Renewal};

/// A store behind the five verbs; single words of several slots are gathered into one transaction.
pub struct StoreDesk {
    store: Store,
    batched: Batched,
    /// Which hint was the newest when `has_work` last looked.
    hints: Mutex<watch::Receiver<u64>>,
}

impl Store {
    /// A desk for one worker. Needs a tokio runtime.
    pub fn desk(&self) -> StoreDesk {
        let hints = Mutex::new(self.wake.subscribe(Topic::Ready));
        StoreDesk { store: self.clone(), batched: Batched::new(self), hints }
    }
}

impl StoreDesk {
    fn hints(&self) -> MutexGuard<'_, watch::Receiver<u64>> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Desk for StoreDesk {
    async fn register(&self, hello: &Hello) -> Result<(), wire::Error> {
        Ok(self.store.register_worker(hello).await?)
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<worker::Status, wire::Error> {
        Ok(self.store.heartbeat(heartbeat).await?)
    }

    async fn has_work(&self, worker: WorkerId) -> Result<bool, wire::Error> {
        self.hints().mark_unchanged();
        match self.store.has_work(worker).await {
            Err(Error::Refused(_)) => Ok(false),
            other => Ok(other?),
        }
    }

    async fn claim(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>, wire::Error> {
        match self.store.claim(worker, max).await {
            Err(Error::Refused(_)) => Ok(Vec::new()),
            other => Ok(other?),
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Answer>, wire::Error> {
        Ok(self.store.renew(renewals).await?)
    }

    async fn progress(&self, progress: &Progress) -> Result<Answer, wire::Error> {
        self.batched.progress(progress.clone()).await.map_err(|error| said(&error))
    }

    async fn commit(&self, commit: &Commit) -> Result<Answer, wire::Error> {
        self.batched.commit(commit.clone()).await.map_err(|error| said(&error))
    }

    async fn fail(&self, failure: &Failure) -> Result<Answer, wire::Error> {
        self.batched.fail(failure.clone()).await.map_err(|error| said(&error))
    }

    async fn wait_for_work(&self) {
        let mut hints = self.hints().clone();
        self.store.wake.wait(&mut hints).await;
    }
}

impl From<Error> for wire::Error {
    fn from(error: Error) -> Self {
        said(&error)
    }
}

fn said(error: &Error) -> wire::Error {
    if error.is_unavailable() {
        wire::Error::Away(with_sources(error))
    } else {
        wire::Error::Rejected(with_sources(error))
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}
