//! Group commit: many callers' words, one transaction. On a busy desk this is worth a factor of fifty.

use crate::error::Result;
use crate::{Error, Store};
use rules::WorkerId;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use wire::{Answer, Assignment, Commit, Failure, Progress};

/// How many words one transaction takes.
const MAX: usize = 500;

/// A store whose single words are gathered. While one transaction runs, the next one's words wait for it; nobody
/// waits for company on an idle system.
#[derive(Clone)]
pub struct Batched {
    commits: Queue<Commit>,
    failures: Queue<Failure>,
    progress: Queue<Progress>,
    claims: Queue<WorkerId, Option<Assignment>>,
}

type Queue<W, A = Answer> = mpsc::Sender<(W, Caller<A>)>;
type Caller<A> = oneshot::Sender<Result<A, Arc<Error>>>;

impl Batched {
    /// Gathers words for `store` until the last clone is dropped.
    pub fn new(store: &Store) -> Self {
        Batched {
            commits: gather(store, |store, words: Vec<_>| async move { store.commit(&words).await }),
            failures: gather(store, |store, words: Vec<_>| async move { store.fail(&words).await }),
            progress: gather(store, |store, words: Vec<_>| async move { store.progress(&words).await }),
            claims: gather(store, |store, workers: Vec<_>| async move { claim(&store, &workers).await }),
        }
    }

    /// Leases one task to `worker`, if there is one.
    pub async fn claim(&self, worker: WorkerId) -> Result<Option<Assignment>, Arc<Error>> {
        say(&self.claims, worker).await
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

/// One task for each who asks, as far as there are any; one claim for each worker.
async fn claim(store: &Store, workers: &[WorkerId]) -> Result<Vec<Option<Assignment>>> {
    let mut wanted: HashMap<WorkerId, u32> = HashMap::new();
    for worker in workers {
        *wanted.entry(*worker).or_default() += 1;
    }
    let mut claimed = HashMap::new();
    for (worker, max) in wanted {
        let assignments = match store.claim(worker, max).await {
            // It is to take nothing, or nobody knows it; others may, and keep what they were given.
            Err(Error::Refused(_) | Error::NotFound(_)) => Vec::new(),
            other => other?,
        };
        claimed.insert(worker, assignments.into_iter());
    }
    Ok(workers.iter().map(|worker| claimed.get_mut(worker).and_then(Iterator::next)).collect())
}

/// While one transaction waits for the disk, PostgreSQL can work on the next; SQLite has one writer.
fn gather<W, A, F>(store: &Store, save: impl Fn(Store, Vec<W>) -> F + Send + Sync + 'static) -> Queue<W, A>
where
    W: Send + 'static,
    A: Send + 'static,
    F: Future<Output = Result<Vec<A>>> + Send,
{
    let (sender, waiting) = mpsc::channel::<(W, Caller<A>)>(2 * MAX);
    let (waiting, save) = (Arc::new(Mutex::new(waiting)), Arc::new(save));
    for _ in 0..if store.is_postgres() { 2 } else { 1 } {
        let (store, waiting, save) = (store.clone(), waiting.clone(), save.clone());
        tokio::spawn(async move {
            loop {
                let mut words = Vec::new();
                if waiting.lock().await.recv_many(&mut words, MAX).await == 0 {
                    break;
                }
                let (batch, callers): (Vec<W>, Vec<_>) = words.into_iter().unzip();
                match save(store.clone(), batch).await {
                    Ok(answers) => tell(callers, answers.into_iter().map(Ok)),
                    Err(error) => {
                        let error = Arc::new(error);
                        tell(callers, std::iter::repeat_with(|| Err(error.clone())));
                    }
                }
            }
        });
    }
    sender
}

/// A caller that has gone away meanwhile misses only the answer; a task leased for it is recovered in time.
fn tell<A>(callers: Vec<Caller<A>>, answers: impl Iterator<Item = Result<A, Arc<Error>>>) {
    for (caller, answer) in callers.into_iter().zip(answers) {
        let _ = caller.send(answer);
    }
}

async fn say<W, A>(queue: &Queue<W, A>, word: W) -> Result<A, Arc<Error>> {
    let gone = || Arc::new(Error::Unavailable(sqlx::Error::PoolClosed));
    let (caller, answer) = oneshot::channel();
    queue.send((word, caller)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())?
}
