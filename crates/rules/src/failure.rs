//! Why an execution ended without a commit, and what that means for its task.

/// Stored with the aborted execution; decides whether the task is tried again and whether the attempt counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// May succeed when tried again: a full disk, a crashed encoder, a lost network.
    Transient,
    /// Would fail again: a broken input, a program that is not there.
    Permanent,
    /// The worker gave the work back because it is shutting down; uses up no attempt.
    Drained,
    /// The worker fell silent, or its encoder stopped making progress.
    LeaseExpired,
    /// The job was cancelled or failed elsewhere; uses up no attempt.
    Withdrawn,
}

crate::words::words!("failure kind", Kind {
    Transient => "transient",
    Permanent => "permanent",
    Drained => "drained",
    LeaseExpired => "lease_expired",
    Withdrawn => "withdrawn",
});

impl Kind {
    /// Whether an execution that ended so uses up one of the task's attempts.
    pub const fn counts(self) -> bool {
        match self {
            Kind::Transient | Kind::Permanent | Kind::LeaseExpired => true,
            Kind::Drained | Kind::Withdrawn => false,
        }
    }
}
