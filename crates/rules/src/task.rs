//! The unit that is leased: a stage of a job, or one segment of a stage (document 000).
//!
//! [`decide`] is the only place where a task or its current execution changes state. Workers move
//! `READY→RUNNING→DONE|ERROR`; every other move is the orchestrator's ([`Command::role`]).

use crate::backoff::{Backoff, Jitter};
use crate::execution::{self, Status};
use crate::lease::{Ended, Lease, Terms};
use crate::{Fence, Millis, Token, WorkerId, failure};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Task {
    pub state: State,
    /// That of the latest execution; 0 before the first.
    pub fence: Fence,
    /// Executions that count against `max_attempts`: all but those whose [`failure::Kind`] does not.
    pub attempts: u32,
    pub max_attempts: u32,
    /// Durable progress: how much its executions have left for the next one to continue from, in a unit of the work's own
    /// (a download counts bytes). It only grows, so an execution that begins again from nothing earns nothing by it.
    pub kept: i64,
}

/// A state carries what exists only in that state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum State {
    /// Exists, but its prerequisites are not met, or its job has ended without it.
    New,
    /// Can be claimed now.
    Ready {
        since: Millis,
    },
    /// A worker holds a lease; `execution` is `LEASED` or `IN_PROGRESS`.
    Running {
        lease: Lease,
        execution: Status,
    },
    /// One execution, the holder of `token`, committed; it is `COMMITTED` or, settled, `DONE`.
    Done {
        token: Token,
        execution: Status,
    },
    Error {
        failure: failure::Kind,
        next: Next,
    },
}

/// What follows an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Next {
    /// The retry policy makes the task READY again at this time.
    RetryAt(Millis),
    /// No attempt is left, or the error is permanent; the orchestrator has yet to judge what it means for the job.
    Unjudged,
    Final,
}

/// [`State`] without its data: the word that is stored and shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Name {
    New,
    Ready,
    Running,
    Done,
    Error,
}

crate::words::words!("task state", Name {
    New => "NEW",
    Ready => "READY",
    Running => "RUNNING",
    Done => "DONE",
    Error => "ERROR",
});

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Command {
    /// Prerequisites are met.
    Advance,
    /// The backoff is over.
    Retry,
    /// The lease has expired.
    Recover,
    /// The worker that holds the lease is known to be dead, so the lease need not run out first.
    LoseWorker {
        death: Death,
        backoff: Backoff,
        jitter: Jitter,
    },
    /// The commit is final: what it entails has been set in motion.
    Settle,
    /// The final error has been taken into account for the job.
    Judge,
    /// The job was cancelled or has failed elsewhere.
    Withdraw,
    /// A person retries a failed job: the task begins with a fresh set of attempts.
    Rerun,

    Claim {
        worker: WorkerId,
        token: Token,
        terms: Terms,
    },
    Start {
        token: Token,
    },
    Renew {
        token: Token,
        progress: i64,
        /// How much the execution has left for the next one; none where it would begin again.
        kept: Option<i64>,
        length: Millis,
    },
    Commit {
        token: Token,
    },
    Fail {
        token: Token,
        kind: failure::Kind,
        /// Executions of this task before that used up no attempt.
        spared: u32,
        witness: failure::Witness,
        backoff: Backoff,
        jitter: Jitter,
    },
}

/// How a worker process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Death {
    /// It died, and nobody can say of what: its work is a suspect, and the death uses up an attempt.
    Unexplained,
    /// A person ended the process, whatever it was doing: its work is given back.
    ByPerson,
}

impl Death {
    pub const fn failure(self) -> failure::Kind {
        match self {
            Death::Unexplained => failure::Kind::WorkerLost,
            Death::ByPerson => failure::Kind::Drained,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    Orchestrator,
    Worker,
}

crate::words::words!("role", Role { Orchestrator => "orchestrator", Worker => "worker" });

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("the task is not ready to be claimed")]
    NotReady,
    #[error("the task is not running; its lease was recovered, given back or withdrawn")]
    NotRunning,
    #[error("another execution holds the lease now")]
    StaleToken,
    #[error("the lease has expired")]
    LeaseExpired,
    #[error("the lease is still live")]
    LeaseLive,
    #[error("the work has made no progress for longer than it may")]
    Stalled,
    #[error(
        "the work has run for longer than it may; the setting encode_timeout_hours, or the timeout_ms of its stage, limits it"
    )]
    Overdue,
    #[error("this execution has committed already")]
    CommittedByYou,
    #[error("another execution has committed already")]
    CommittedByOther,
    #[error("the backoff is not over")]
    NotDue,
    #[error("the task has no error that this applies to")]
    NoError,
    #[error("the task was advanced already")]
    Advanced,
    #[error("the result cannot be used; the task has failed with the reason")]
    BadResult,
    #[error("there is nothing to withdraw")]
    NothingToWithdraw,
    #[error("{0}")]
    Execution(#[from] execution::Refusal),
}

/// A move that was allowed: what the task is now, and what the audit says of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Change {
    pub task: Task,
    pub event: Event,
}

/// One row of the audit log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event {
    pub command: &'static str,
    pub role: Role,
    pub from: Name,
    pub to: Name,
    /// What happened to the current execution, if anything. `(None, _)`: it came into being.
    pub execution: Option<(Option<Status>, Status)>,
    /// Why the execution was aborted, where it was.
    pub failure: Option<failure::Kind>,
}

impl State {
    pub const fn name(&self) -> Name {
        match self {
            State::New => Name::New,
            State::Ready { .. } => Name::Ready,
            State::Running { .. } => Name::Running,
            State::Done { .. } => Name::Done,
            State::Error { .. } => Name::Error,
        }
    }

    /// The status of the execution this state speaks of.
    pub const fn execution(&self) -> Option<Status> {
        match self {
            State::Running { execution, .. } | State::Done { execution, .. } => Some(*execution),
            State::New | State::Ready { .. } | State::Error { .. } => None,
        }
    }
}

impl Command {
    pub const fn name(&self) -> &'static str {
        match self {
            Command::Advance => "advance",
            Command::Retry => "retry",
            Command::Recover => "recover",
            Command::LoseWorker { .. } => "lose_worker",
            Command::Settle => "settle",
            Command::Judge => "judge",
            Command::Withdraw => "withdraw",
            Command::Rerun => "rerun",
            Command::Claim { .. } => "claim",
            Command::Start { .. } => "start",
            Command::Renew { .. } => "renew",
            Command::Commit { .. } => "commit",
            Command::Fail { .. } => "fail",
        }
    }

    /// Who may say this. Nobody else has a way to.
    pub const fn role(&self) -> Role {
        match self {
            Command::Advance
            | Command::Retry
            | Command::Recover
            | Command::LoseWorker { .. }
            | Command::Settle
            | Command::Judge
            | Command::Withdraw
            | Command::Rerun => Role::Orchestrator,
            Command::Claim { .. }
            | Command::Start { .. }
            | Command::Renew { .. }
            | Command::Commit { .. }
            | Command::Fail { .. } => Role::Worker,
        }
    }

    /// The token the speaker proves its claim with.
    pub const fn token(&self) -> Option<Token> {
        match self {
            Command::Start { token }
            | Command::Renew { token, .. }
            | Command::Commit { token }
            | Command::Fail { token, .. } => Some(*token),
            _ => None,
        }
    }
}

impl Task {
    pub const fn new(max_attempts: u32) -> Self {
        Task { state: State::New, fence: Fence(0), attempts: 0, max_attempts, kept: 0 }
    }

    /// Executions that used up no attempt, without the one that is current.
    pub fn spared(&self) -> u32 {
        u32::try_from(self.fence.0 - i64::from(self.attempts)).unwrap_or(0)
    }

    fn to(&self, state: State) -> Self {
        Task { state, ..self.clone() }
    }
}

/// Decides one move.
pub fn decide(task: &Task, command: &Command, now: Millis) -> Result<Change, Refusal> {
    decide_with(task, command, now, &Checks::default())
}

/// The checks a commit rests on. They can be taken away one by one, in tests only, to prove that the model
/// checker notices.
#[derive(Debug, Clone)]
pub struct Checks {
    token: bool,
    lease_at_commit: bool,
    one_commit: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Checks { token: true, lease_at_commit: true, one_commit: true }
    }
}

#[doc(hidden)]
impl Checks {
    /// For the model's own tests: every word is taken for the current holder's, and a commit for the first.
    pub fn without_fence() -> Self {
        Checks { token: false, one_commit: false, ..Checks::default() }
    }

    /// For the model's own tests: a commit is accepted from a lease that has run out.
    pub fn without_lease_at_commit() -> Self {
        Checks { lease_at_commit: false, ..Checks::default() }
    }
}

#[doc(hidden)]
pub fn decide_with(task: &Task, command: &Command, now: Millis, checks: &Checks) -> Result<Change, Refusal> {
    if checks.token {
        check_token(&task.state, command)?;
    }
    let (next, failure) = match (&task.state, command) {
        (State::New, Command::Advance) => (task.to(State::Ready { since: now }), None),
        (_, Command::Advance) => return Err(Refusal::Advanced),

        (State::Ready { .. }, Command::Claim { worker, token, terms }) => {
            (claim(task, *worker, *token, *terms, now), None)
        }
        (_, Command::Claim { .. }) => return Err(Refusal::NotReady),

        (State::Running { lease, execution }, Command::Start { .. }) => {
            let execution = execution::decide(*execution, execution::Command::Start)?;
            (task.to(State::Running { lease: lease.clone(), execution }), None)
        }
        (State::Running { lease, execution }, Command::Renew { progress, kept, length, .. }) => {
            let mut lease = lease.renew(*progress, *length, now).map_err(Refusal::from)?;
            let kept = kept.unwrap_or_default().max(task.kept);
            lease.has_kept |= kept > task.kept;
            (Task { kept, ..task.to(State::Running { lease, execution: *execution }) }, None)
        }
        (State::Running { lease, execution }, Command::Commit { token }) => {
            if checks.lease_at_commit {
                check_live(lease, now)?;
            }
            let execution = execution::decide(*execution, execution::Command::Commit)?;
            (task.to(State::Done { token: *token, execution }), None)
        }
        (State::Running { lease, .. }, Command::Fail { kind, spared, witness, backoff, jitter, .. }) => {
            check_live(lease, now)?;
            let kind = kind.after(*spared, *witness);
            let delay = |failures| backoff.delay(failures, *jitter);
            (fail(task, kind, *spared, delay, now), Some(kind))
        }
        (State::Done { token, .. }, Command::Commit { .. }) if !checks.one_commit => {
            (task.to(State::Done { token: *token, execution: Status::Committed }), None)
        }
        (
            State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. },
            Command::Start { .. } | Command::Renew { .. } | Command::Commit { .. } | Command::Fail { .. },
        ) => return Err(Refusal::NotRunning),

        (State::Running { lease, .. }, Command::Recover) if lease.is_live(now) => {
            return Err(Refusal::LeaseLive);
        }
        (State::Running { lease, .. }, Command::Recover) => {
            let kind = failure::Kind::LeaseExpired.after_loss(lease.has_kept, task.spared());
            (recover(task, kind, now), Some(kind))
        }
        (_, Command::Recover) => return Err(Refusal::NotRunning),

        (State::Running { lease, .. }, Command::LoseWorker { death, backoff, jitter }) => {
            let kind = death.failure().after_loss(lease.has_kept, task.spared());
            (fail(task, kind, 0, |failures| backoff.delay(failures, *jitter), now), Some(kind))
        }
        (_, Command::LoseWorker { .. }) => return Err(Refusal::NotRunning),

        (State::Done { token, execution }, Command::Settle) => {
            let execution = execution::decide(*execution, execution::Command::Settle)?;
            (task.to(State::Done { token: *token, execution }), None)
        }
        (_, Command::Settle) => return Err(Refusal::Execution(execution::Refusal::NotCommitted)),

        (State::Error { next: Next::RetryAt(at), .. }, Command::Retry) if now < *at => {
            return Err(Refusal::NotDue);
        }
        (State::Error { next: Next::RetryAt(_), .. }, Command::Retry) => {
            (task.to(State::Ready { since: now }), None)
        }
        (_, Command::Retry) => return Err(Refusal::NoError),

        (State::Error { failure, next: Next::Unjudged }, Command::Judge) => {
            (task.to(State::Error { failure: *failure, next: Next::Final }), None)
        }
        (_, Command::Judge) => return Err(Refusal::NoError),

        (State::Error { next: Next::Unjudged | Next::Final, .. }, Command::Rerun) => {
            (Task { attempts: 0, ..task.to(State::Ready { since: now }) }, None)
        }
        (_, Command::Rerun) => return Err(Refusal::NoError),

        (State::Ready { .. }, Command::Withdraw) => (task.to(State::New), None),
        (State::Running { .. }, Command::Withdraw) => (withdraw(task), Some(failure::Kind::Withdrawn)),
        (State::Error { failure, next: Next::RetryAt(_) | Next::Unjudged }, Command::Withdraw) => {
            (task.to(State::Error { failure: *failure, next: Next::Final }), None)
        }
        (State::New | State::Done { .. } | State::Error { next: Next::Final, .. }, Command::Withdraw) => {
            return Err(Refusal::NothingToWithdraw);
        }
    };
    Ok(Change { event: event(task, &next, command, failure), task: next })
}

/// A worker's word counts only with the token of the current execution. After a commit, it is told whose it was.
fn check_token(state: &State, command: &Command) -> Result<(), Refusal> {
    let Some(token) = command.token() else { return Ok(()) };
    match state {
        State::Running { lease, .. } if lease.token != token => Err(Refusal::StaleToken),
        State::Done { token: committed, .. } if *committed == token => Err(Refusal::CommittedByYou),
        State::Done { .. } => Err(Refusal::CommittedByOther),
        State::Running { .. } | State::New | State::Ready { .. } | State::Error { .. } => Ok(()),
    }
}

fn check_live(lease: &Lease, now: Millis) -> Result<(), Refusal> {
    if lease.is_live(now) { Ok(()) } else { Err(Refusal::LeaseExpired) }
}

fn claim(task: &Task, worker: WorkerId, token: Token, terms: Terms, now: Millis) -> Task {
    Task {
        state: State::Running { lease: Lease::grant(worker, token, terms, now), execution: Status::Leased },
        fence: Fence(task.fence.0 + 1),
        attempts: task.attempts + 1,
        ..task.clone()
    }
}

fn fail(task: &Task, kind: failure::Kind, spared: u32, delay: impl Fn(u32) -> Millis, now: Millis) -> Task {
    let next = match kind {
        failure::Kind::Permanent => Next::Unjudged,
        failure::Kind::Unconfirmed | failure::Kind::Rejected | failure::Kind::Withdrawn => Next::RetryAt(now),
        failure::Kind::Drained => Next::RetryAt(now + after_release(spared, delay)),
        failure::Kind::Interrupted => Next::RetryAt(now + delay(task.attempts)),
        failure::Kind::StorageAway | failure::Kind::DiskFull => {
            Next::RetryAt(now + delay(spared.saturating_add(1)))
        }
        failure::Kind::Transient | failure::Kind::LeaseExpired | failure::Kind::WorkerLost
            if task.attempts < task.max_attempts =>
        {
            Next::RetryAt(now + delay(task.attempts))
        }
        failure::Kind::Transient | failure::Kind::LeaseExpired | failure::Kind::WorkerLost => Next::Unjudged,
    };
    Task { attempts: counted(task, kind), ..task.to(State::Error { failure: kind, next }) }
}

fn after_release(spared: u32, delay: impl Fn(u32) -> Millis) -> Millis {
    match spared.checked_sub(failure::FREE_RELEASES) {
        None => Millis(0),
        Some(more) => delay(more.saturating_add(1)),
    }
}

/// The last attempt is not begun at once: the store sees to it that few tasks that may have killed their workers use
/// theirs at the same time.
fn recover(task: &Task, kind: failure::Kind, now: Millis) -> Task {
    let attempts = counted(task, kind);
    let state = match task.max_attempts.saturating_sub(attempts) {
        0 => State::Error { failure: kind, next: Next::Unjudged },
        1 => State::Error { failure: kind, next: Next::RetryAt(now) },
        _ => State::Ready { since: now },
    };
    Task { attempts, ..task.to(state) }
}

fn withdraw(task: &Task) -> Task {
    Task { attempts: counted(task, failure::Kind::Withdrawn), ..task.to(State::New) }
}

/// Claiming counted the attempt; an end that was not the work's fault takes it back.
fn counted(task: &Task, kind: failure::Kind) -> u32 {
    if kind.counts() { task.attempts } else { task.attempts.saturating_sub(1) }
}

fn event(before: &Task, after: &Task, command: &Command, failure: Option<failure::Kind>) -> Event {
    let execution = match (before.state.execution(), after.state.execution()) {
        (from, Some(to)) if from != Some(to) => Some((from, to)),
        (Some(from), None) => Some((Some(from), Status::Aborted)),
        _ => None,
    };
    let (from, to) = (before.state.name(), after.state.name());
    Event { command: command.name(), role: command.role(), from, to, execution, failure }
}

impl From<Ended> for Refusal {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Stalled => Refusal::Stalled,
            Ended::Overdue => Refusal::Overdue,
        }
    }
}
