//! One attempt at a task: the durable record everything else is derived from (document 002).

/// The source of truth. `COMMITTED` is the one boundary at which an effect becomes real.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// A worker owns the lease and has not begun.
    Leased,
    /// The worker has begun.
    InProgress,
    /// The outcome is decided and published; what follows it may still be outstanding.
    Committed,
    /// What followed the commit is settled too.
    Done,
    /// Ended without effect.
    Aborted,
}

crate::words::words!("execution status", Status {
    Leased => "LEASED",
    InProgress => "IN_PROGRESS",
    Committed => "COMMITTED",
    Done => "DONE",
    Aborted => "ABORTED",
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    Start,
    Commit,
    Settle,
    Abort,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("the execution has not been started")]
    NotStarted,
    #[error("the execution has been started already")]
    AlreadyStarted,
    #[error("the execution is committed")]
    Committed,
    #[error("the execution is not committed")]
    NotCommitted,
    #[error("the execution has ended")]
    Ended,
}

impl Status {
    /// Whether the execution still holds its task's lease.
    pub const fn is_live(self) -> bool {
        match self {
            Status::Leased | Status::InProgress => true,
            Status::Committed | Status::Done | Status::Aborted => false,
        }
    }

    /// Whether the execution's effect is real, now and for ever.
    pub const fn is_committed(self) -> bool {
        match self {
            Status::Committed | Status::Done => true,
            Status::Leased | Status::InProgress | Status::Aborted => false,
        }
    }
}

pub const fn decide(status: Status, command: Command) -> Result<Status, Refusal> {
    match (status, command) {
        (Status::Leased, Command::Start) => Ok(Status::InProgress),
        (Status::InProgress, Command::Start) => Err(Refusal::AlreadyStarted),

        (Status::InProgress, Command::Commit) => Ok(Status::Committed),
        (Status::Leased, Command::Commit) => Err(Refusal::NotStarted),

        (Status::Leased | Status::InProgress, Command::Abort) => Ok(Status::Aborted),

        (Status::Committed, Command::Settle) => Ok(Status::Done),
        (Status::Leased | Status::InProgress, Command::Settle) => Err(Refusal::NotCommitted),

        (Status::Committed, Command::Start | Command::Commit | Command::Abort) => Err(Refusal::Committed),
        (Status::Done | Status::Aborted, _) => Err(Refusal::Ended),
    }
}
