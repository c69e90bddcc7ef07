//! Group commit: many callers' words, one transaction. On a busy desk this is worth a factor of fifty.

use crate::error::Result;
use crate::{Error, Store};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use wire::{Answer, Commit, Failure, Progress};

/// How many words one transaction takes.
const MAX: usize = 500;

/// A store whose single words are gathered. While one transaction runs, the next one's words wait for it; nobody
/// waits for company on an idle system.
#[derive(Clone)]
pub struct Batched {
    commits: Queue<Commit>,
    failures: Queue<Failure>,
    progress: Queue<Progress>,
}

type Queue<W> = mpsc::Sender<(W, Caller)>;
type Caller = oneshot::Sender<Result<Answer, Arc<Error>>>;

impl Batched {
    /// Gathers words for `store` until the last clone is dropped.
    pub fn new(store: &Store) -> Self {
        let (commits, failures, progress) = (store.clone(), store.clone(), store.clone());
        Batched {
            commits: gather(move |words| {
                let store = commits.clone();
                async move { store.commit(&words).await }
            }),
            failures: gather(move |words| {
                let store = failures.clone();
                async move { store.fail(&words).await }
            }),
            progress: gather(move |words| {
                let store = progress.clone();
                async move { store.progress(&words).await }
            }),
        }
    }

    pub async fn commit(&self, commit: Commit) -> Result<Answer, Arc<Error>> {
        say(&self.commits, commit).await
    }

    pub async fn fail(&self, failure: Failure) -> Result<Answer, Arc<Error>> {
        say(&self.failures, failure).await
    }

    pub async fn progress(&self, progress: Progress) -> Result<Answer, Arc<Error>> {
        say(&self.progress, progress).await
    }
}

fn gather<W, F>(save: impl Fn(Vec<W>) -> F + Send + 'static) -> Queue<W>
where
    W: Send + 'static,
    F: Future<Output = Result<Vec<Answer>>> + Send,
{
    let (sender, mut waiting) = mpsc::channel(2 * MAX);
    tokio::spawn(async move {
        let mut words = Vec::new();
        while waiting.recv_many(&mut words, MAX).await > 0 {
            let (batch, callers): (Vec<W>, Vec<_>) = words.drain(..).unzip();
            match save(batch).await {
                Ok(answers) => tell(callers, answers.into_iter().map(Ok)),
                Err(error) => {
                    let error = Arc::new(error);
                    tell(callers, std::iter::repeat_with(|| Err(error.clone())));
                }
            }
        }
    });
    sender
}

/// A caller that has gone away meanwhile misses only the answer.
fn tell(callers: Vec<Caller>, answers: impl Iterator<Item = Result<Answer, Arc<Error>>>) {
    for (caller, answer) in callers.into_iter().zip(answers) {
        let _ = caller.send(answer);
    }
}

async fn say<W>(queue: &Queue<W>, word: W) -> Result<Answer, Arc<Error>> {
    let gone = || Arc::new(Error::Unavailable(sqlx::Error::PoolClosed));
    let (caller, answer) = oneshot::channel();
    queue.send((word, caller)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}
