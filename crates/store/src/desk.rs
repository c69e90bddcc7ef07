//! The store is a desk: workers in the same process, or with access to the database, speak to it directly.

use crate::wake::Topic;
use crate::{Error, Store};
use rules::{WorkerId, worker};
use wire::{Answer, Assignment, Commit, Desk, Failure, Heartbeat, Hello, Progress, Renewal};

impl Desk for Store {
    async fn register(&self, hello: &Hello) -> Result<(), wire::Error> {
        Ok(self.register_worker(hello).await?)
    }

    async fn heartbeat(&self, heartbeat: &Heartbeat) -> Result<worker::Status, wire::Error> {
        Ok(Store::heartbeat(self, heartbeat).await?)
    }

    async fn has_work(&self, worker: WorkerId) -> Result<bool, wire::Error> {
        match Store::has_work(self, worker).await {
            Err(Error::Refused(_)) => Ok(false),
            other => Ok(other?),
        }
    }

    async fn claim(&self, worker: WorkerId, max: u32) -> Result<Vec<Assignment>, wire::Error> {
        match Store::claim(self, worker, max).await {
            Err(Error::Refused(_)) => Ok(Vec::new()),
            other => Ok(other?),
        }
    }

    async fn renew(&self, renewals: &[Renewal]) -> Result<Vec<Answer>, wire::Error> {
        Ok(Store::renew(self, renewals).await?)
    }

    async fn progress(&self, progress: &Progress) -> Result<Answer, wire::Error> {
        only(Store::progress(self, std::slice::from_ref(progress)).await?)
    }

    async fn commit(&self, commit: &Commit) -> Result<Answer, wire::Error> {
        only(Store::commit(self, std::slice::from_ref(commit)).await?)
    }

    async fn fail(&self, failure: &Failure) -> Result<Answer, wire::Error> {
        only(Store::fail(self, std::slice::from_ref(failure)).await?)
    }

    async fn wait_for_work(&self) {
        let mut hints = self.wake.subscribe(Topic::Ready);
        // A closed channel would mean that the store is gone, and with it all work.
        let _ = hints.changed().await;
    }
}

fn only(answers: Vec<Answer>) -> Result<Answer, wire::Error> {
    answers.into_iter().next().ok_or_else(|| wire::Error::Rejected("the store gave no answer".into()))
}

impl From<Error> for wire::Error {
    fn from(error: Error) -> Self {
        if error.is_unavailable() {
            wire::Error::Away(with_sources(&error))
        } else {
            wire::Error::Rejected(with_sources(&error))
        }
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}
