//! One request for work (document 003): a pure function of its tasks and their executions (002).

use crate::JobId;

/// What a person sees. Working states are named for the earliest stage that is not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    Pending,
    Validating,
    Planning,
    DownloadingInputs,
    Processing,
    UploadingOutputs,
    Completed,
    Failed,
    Cancelled,
}

crate::words::words!("job state", State {
    Pending => "pending",
    Validating => "validating",
    Planning => "planning",
    DownloadingInputs => "downloading_inputs",
    Processing => "processing",
    UploadingOutputs => "uploading_outputs",
    Completed => "completed",
    Failed => "failed",
    Cancelled => "cancelled",
});

/// The part of a job's life a stage belongs to; ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Validating,
    Planning,
    DownloadingInputs,
    Processing,
    UploadingOutputs,
}

crate::words::words!("phase", Phase {
    Validating => "validating",
    Planning => "planning",
    DownloadingInputs => "downloading_inputs",
    Processing => "processing",
    UploadingOutputs => "uploading_outputs",
});

/// How a job ended. Stored, for an index; written in the transaction that ended it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled,
}

crate::words::words!("outcome", Outcome {
    Completed => "completed",
    Failed => "failed",
    Cancelled => "cancelled",
});

/// All that a job's state depends on, counted from its tasks and executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Facts {
    /// A person cancelled it before it ended.
    pub is_cancelled: bool,
    /// A task it cannot do without has failed for good.
    pub has_failed: bool,
    /// Some execution is live or committed.
    pub has_begun: bool,
    /// The earliest phase with an unfinished stage; none when all are finished.
    pub phase: Option<Phase>,
}

/// The job's state. Loss of the only execution, before any commit, makes it `pending` again (002).
pub const fn derive(facts: Facts) -> State {
    match facts {
        Facts { is_cancelled: true, .. } => State::Cancelled,
        Facts { has_failed: true, .. } => State::Failed,
        Facts { phase: None, .. } => State::Completed,
        Facts { has_begun: false, .. } => State::Pending,
        Facts { phase: Some(phase), .. } => phase.state(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// Work of this phase is the earliest unfinished.
    Enter(Phase),
    /// The only execution was lost before any commit.
    Lose,
    Complete,
    Fail,
    Cancel,
    /// A person asks for a new attempt at a failed job.
    Retry,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("the job is {0}, which is final")]
    Ended(State),
    #[error("the job is {0}; only a failed job can be retried")]
    NotFailed(State),
    #[error("job {0}, which is newer, has made this video since; make it again instead")]
    Outdated(JobId),
    #[error("the job cannot go back from {0} to {1}")]
    Backwards(State, Phase),
    #[error("the job has not begun")]
    NotBegun,
}

impl State {
    pub const fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Cancelled)
    }

    pub const fn phase(self) -> Option<Phase> {
        match self {
            State::Validating => Some(Phase::Validating),
            State::Planning => Some(Phase::Planning),
            State::DownloadingInputs => Some(Phase::DownloadingInputs),
            State::Processing => Some(Phase::Processing),
            State::UploadingOutputs => Some(Phase::UploadingOutputs),
            State::Pending | State::Completed | State::Failed | State::Cancelled => None,
        }
    }
}

impl Phase {
    pub const fn state(self) -> State {
        match self {
            Phase::Validating => State::Validating,
            Phase::Planning => State::Planning,
            Phase::DownloadingInputs => State::DownloadingInputs,
            Phase::Processing => State::Processing,
            Phase::UploadingOutputs => State::UploadingOutputs,
        }
    }
}

impl Outcome {
    pub const fn state(self) -> State {
        match self {
            Outcome::Completed => State::Completed,
            Outcome::Failed => State::Failed,
            Outcome::Cancelled => State::Cancelled,
        }
    }
}

/// 003's table. A job without work in a phase passes over it; `failed` is final but for a person's retry.
pub fn decide(state: State, command: Command) -> Result<State, Refusal> {
    match (state, command) {
        (State::Failed, Command::Retry) => Ok(State::Pending),
        (_, Command::Retry) => Err(Refusal::NotFailed(state)),
        (State::Completed | State::Failed | State::Cancelled, _) => Err(Refusal::Ended(state)),

        (_, Command::Cancel) => Ok(State::Cancelled),
        (_, Command::Fail) => Ok(State::Failed),

        (_, Command::Enter(phase)) if state.phase() > Some(phase) => Err(Refusal::Backwards(state, phase)),
        (_, Command::Enter(phase)) => Ok(phase.state()),

        (State::Pending, Command::Lose) => Err(Refusal::NotBegun),
        (_, Command::Lose) => Ok(State::Pending),
        // Also from pending: a job may have nothing to do, or do without all of it.
        (_, Command::Complete) => Ok(State::Completed),
    }
}
