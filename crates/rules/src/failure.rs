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
    /// Where files are kept did not answer or had no room; uses up no attempt, up to [`MOST_SPARED`] times.
    StorageAway,
    /// The worker fell silent, or its encoder stopped making progress.
    LeaseExpired,
    /// The job was cancelled or failed elsewhere; uses up no attempt.
    Withdrawn,
}

/// With the usual backoff, about eight hours.
pub const MOST_SPARED: u32 = 100;

crate::words::words!("failure kind", Kind {
    Transient => "transient",
    Permanent => "permanent",
    Drained => "drained",
    StorageAway => "storage_away",
    LeaseExpired => "lease_expired",
    Withdrawn => "withdrawn",
});

impl Kind {
    /// What a word in a database means. One that a later version wrote is read as what promises least: the task may be tried
    /// again while attempts are left, and nothing is taken for a commit, for an end or for spared.
    pub fn read(word: &str) -> Kind {
        word.parse().unwrap_or(Kind::Transient)
    }

    /// Whether an execution that ended so uses up one of the task's attempts.
    pub const fn counts(self) -> bool {
        match self {
            Kind::Transient | Kind::Permanent | Kind::LeaseExpired => true,
            Kind::Drained | Kind::StorageAway | Kind::Withdrawn => false,
        }
    }

    /// What a worker's word comes to, after so many executions that used up no attempt: a task is not given back for the
    /// storage's sake for ever.
    pub const fn after(self, spared: u32) -> Kind {
        match self {
            Kind::StorageAway if spared >= MOST_SPARED => Kind::Transient,
            kind => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_a_later_version_is_worth_another_try() {
        assert_eq!(Kind::read("quota_gone"), Kind::Transient);
        assert!(Kind::ALL.iter().all(|kind| Kind::read(kind.as_str()) == *kind));
    }
}
