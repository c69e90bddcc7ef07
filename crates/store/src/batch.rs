//! Group commit: many callers' words, one transaction. On a busy desk this is worth a factor of fifty.

use crate::error::Result;
use crate::{Error, Store};
use rules::WorkerId;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use wire::{Answer, Assignment, Commit, Failure, Progress};

/// How many words one transaction takes.
const MAX: usize = 500;

/// While one transaction runs, the next begins with so many words: fewer cost as much, and wait for the first to end.
const COMPANY: usize = 16;

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

/// While one transaction waits for the disk, PostgreSQL can work on the next, of enough words; SQLite has one writer.
fn gather<W, A, F>(store: &Store, save: impl Fn(Store, Vec<W>) -> F + Send + Sync + 'static) -> Queue<W, A>
where
    W: Send + 'static,
    A: Send + 'static,
    F: Future<Output = Result<Vec<A>>> + Send,
{
    let (sender, waiting) = mpsc::channel::<(W, Caller<A>)>(2 * MAX);
    let (waiting, save) = (Arc::new(Mutex::new(waiting)), Arc::new(save));
    let running = watch::Sender::new(0);
    for _ in 0..if store.is_postgres() { 2 } else { 1 } {
        let (store, waiting, save) = (store.clone(), waiting.clone(), save.clone());
        let running = running.clone();
        tokio::spawn(async move {
            loop {
                let words = next(&mut *waiting.lock().await, running.subscribe()).await;
                if words.is_empty() {
                    break;
                }
                let _runs = Runs::new(&running);
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

/// The words of the next transaction; none when nobody is left to say any.
async fn next<T>(waiting: &mut mpsc::Receiver<T>, mut running: watch::Receiver<usize>) -> Vec<T> {
    let mut words = Vec::new();
    let mut heard = waiting.recv_many(&mut words, MAX).await;
    while heard > 0 && words.len() < COMPANY && *running.borrow_and_update() > 0 {
        let room = MAX - words.len();
        tokio::select! {
            more = waiting.recv_many(&mut words, room) => heard = more,
            _ = running.changed() => {}
        }
    }
    words
}

/// A transaction that runs.
struct Runs<'a>(&'a watch::Sender<usize>);

impl<'a> Runs<'a> {
    fn new(running: &'a watch::Sender<usize>) -> Self {
        running.send_modify(|count| *count += 1);
        Runs(running)
    }
}

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;

    /// What is gathered of `words` words beside `running` transactions, without waiting.
    async fn gathered(words: usize, running: &watch::Sender<usize>) -> Option<usize> {
        let (sender, mut waiting) = mpsc::channel(MAX);
        for word in 0..words {
            sender.send(word).await.unwrap();
        }
        tokio::select! {
            biased;
            words = next(&mut waiting, running.subscribe()) => Some(words.len()),
            () = std::future::ready(()) => None,
        }
    }

    #[tokio::test]
    async fn few_words_wait_for_company_only_while_a_transaction_runs() {
        assert_eq!(gathered(1, &watch::Sender::new(0)).await, Some(1));
        assert_eq!(gathered(COMPANY - 1, &watch::Sender::new(1)).await, None);
        assert_eq!(gathered(COMPANY, &watch::Sender::new(1)).await, Some(COMPANY));
    }

    #[tokio::test]
    async fn words_go_on_when_the_transaction_has_ended() {
        let (sender, mut waiting) = mpsc::channel(MAX);
        let running = watch::Sender::new(0);
        let runs = Runs::new(&running);
        sender.send("word").await.unwrap();
        let mut words = pin!(next(&mut waiting, running.subscribe()));
        tokio::select! {
            biased;
            _ = &mut words => panic!("it waits for company"),
            () = std::future::ready(()) => {}
        }

        drop(runs);

        assert_eq!(words.await, ["word"]);
    }

    #[tokio::test]
    async fn the_last_words_wait_for_nobody() {
        let (sender, mut waiting) = mpsc::channel(MAX);
        let running = watch::Sender::new(1);
        sender.send("last").await.unwrap();
        drop(sender);

        assert_eq!(next(&mut waiting, running.subscribe()).await, ["last"]);
        assert!(next(&mut waiting, running.subscribe()).await.is_empty());
    }
}
