//! Where a worker gets its work and takes its results.

use crate::{Answer, Assignment, Commit, Failure, Heartbeat, Hello, Progress, Renewal};
use rules::{WorkerId, worker};
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was decided, or it is not known whether it was: saying the same again is safe.
    #[error("the desk is away: {0}")]
    Away(String),
    /// Saying it again would not help.
    #[error("{0}")]
    Rejected(String),
}

type Result<T> = std::result::Result<T, Error>;

pub trait Desk: Send + Sync + 'static {
    fn register(&self, hello: &Hello) -> impl Future<Output = Result<()>> + Send;

    /// Says what the worker is doing; learns what it is to be: a draining or disabled one takes nothing new.
    fn heartbeat(&self, heartbeat: &Heartbeat) -> impl Future<Output = Result<worker::Status>> + Send;

    /// Whether a claim now would find anything. May be wrong either way; only a claim decides.
    fn has_work(&self, worker: WorkerId) -> impl Future<Output = Result<bool>> + Send;

    /// Leases up to `max` tasks, the most urgent first.
    fn claim(&self, worker: WorkerId, max: u32) -> impl Future<Output = Result<Vec<Assignment>>> + Send;

    /// Extends the leases of work that still makes progress; one answer for each, in order.
    fn renew(&self, renewals: &[Renewal]) -> impl Future<Output = Result<Vec<Answer>>> + Send;

    /// Says that work has begun and how far it is; also extends its lease.
    fn progress(&self, progress: &Progress) -> impl Future<Output = Result<Answer>> + Send;

    /// Makes a result real, once. The first word about an execution, this one or `progress`, also says that it began.
    fn commit(&self, commit: &Commit) -> impl Future<Output = Result<Answer>> + Send;

    fn fail(&self, failure: &Failure) -> impl Future<Output = Result<Answer>> + Send;

    /// Returns when there may be new work since `has_work` last said no. A hint: it may come late, or never.
    fn wait_for_work(&self) -> impl Future<Output = ()> + Send;

    /// Under which id the desk knows the worker, if not under the worker's own.
    fn known_as(&self) -> Option<WorkerId> {
        None
    }

    /// How often the desk wants to hear of the worker, if it has said so.
    fn heartbeat_interval(&self) -> Option<Duration> {
        None
    }

    /// Returns when the desk wants nothing more of this worker, with the reason for people: its key was revoked, it is
    /// too old, another process has taken its place. It gives back what it has and ends.
    fn dismissed(&self) -> impl Future<Output = String> + Send {
        std::future::pending()
    }
}
