//! Why an execution ended without a commit, and what that means for its task.

/// Stored with the aborted execution; decides whether the task is tried again and whether the attempt counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// May succeed when tried again: a crashed encoder, a lost network.
    Transient,
    /// Would fail again: a broken input, a program that is not there.
    Permanent,
    /// A remote worker calls it permanent, and nobody has confirmed that: another worker tries it. Uses up no attempt.
    Unconfirmed,
    /// The server compared the result of a remote worker with the source, and it is something else: another worker tries it.
    /// Uses up no attempt, up to [`MOST_REJECTED`] times.
    Rejected,
    /// The worker gave the work back because it is shutting down; uses up no attempt, up to [`MOST_SPARED`] times.
    Drained,
    /// Where files are kept did not answer or had no room; uses up no attempt, up to [`MOST_SPARED`] times.
    StorageAway,
    /// The worker's own disk was full; uses up no attempt, up to [`MOST_SPARED`] times.
    DiskFull,
    /// The worker fell silent, or its encoder stopped making progress.
    LeaseExpired,
    /// The worker process died while it held the lease. The work may have killed it, so it uses up an attempt.
    WorkerLost,
    /// The worker died or fell silent, and its execution left durable progress that the next one continues from; uses up
    /// no attempt, up to [`MOST_SPARED`] times.
    Interrupted,
    /// The job was cancelled or failed elsewhere; uses up no attempt.
    Withdrawn,
}

/// With the usual backoff, about eight hours.
pub const MOST_SPARED: u32 = 100;

/// Uncounted executions of a task after which one that is given back is tried again at once: fleets restart one worker after
/// another. After that the usual backoff follows, so that no worker claims and releases a task in a loop.
pub const FREE_RELEASES: u32 = 10;

/// Uncounted executions of a task after which a rejected result uses up an attempt: if the comparison were wrong, the job
/// has to end.
pub const MOST_REJECTED: u32 = 5;

crate::words::words!("failure kind", Kind {
    Transient => "transient",
    Permanent => "permanent",
    Unconfirmed => "unconfirmed",
    Rejected => "rejected",
    Drained => "drained",
    StorageAway => "storage_away",
    DiskFull => "disk_full",
    LeaseExpired => "lease_expired",
    WorkerLost => "worker_lost",
    Interrupted => "interrupted",
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
            Kind::Transient | Kind::Permanent | Kind::LeaseExpired | Kind::WorkerLost => true,
            Kind::Unconfirmed
            | Kind::Rejected
            | Kind::Drained
            | Kind::StorageAway
            | Kind::DiskFull
            | Kind::Interrupted
            | Kind::Withdrawn => false,
        }
    }

    /// Whether the work may have taken its worker with it: the process died, or was not heard of again.
    pub const fn is_of_the_worker(self) -> bool {
        match self {
            Kind::LeaseExpired | Kind::WorkerLost => true,
            Kind::Transient
            | Kind::Permanent
            | Kind::Unconfirmed
            | Kind::Rejected
            | Kind::Drained
            | Kind::StorageAway
            | Kind::DiskFull
            | Kind::Interrupted
            | Kind::Withdrawn => false,
        }
    }

    /// What the loss of a worker comes to, after so many executions that used up no attempt. `has_kept`: the execution left
    /// more durable progress than those before it.
    pub const fn after_loss(self, has_kept: bool, spared: u32) -> Kind {
        if self.is_of_the_worker() && has_kept && spared < MOST_SPARED {
            Kind::Interrupted
        } else {
            self
        }
    }

    /// What a worker's word comes to, after so many executions that used up no attempt: a task is not given back for want
    /// of storage or disk for ever, and a remote worker alone does not decide that work is hopeless.
    pub const fn after(self, spared: u32, witness: Witness) -> Kind {
        match (self, witness) {
            (Kind::Drained | Kind::StorageAway | Kind::DiskFull, _) if spared >= MOST_SPARED => {
                Kind::Transient
            }
            (Kind::Rejected, _) if spared >= MOST_REJECTED => Kind::Transient,
            (Kind::Permanent, Witness::Remote(Doubt::Nobody)) => Kind::Unconfirmed,
            (Kind::Permanent, Witness::Remote(Doubt::Itself)) => Kind::Transient,
            (kind, _) => kind,
        }
    }
}

/// Who reports a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Witness {
    /// A worker with the database: its word is the server's own.
    Server,
    /// A remote worker. Another one has to confirm a permanent failure.
    Remote(Doubt),
}

/// Which remote worker has reported a permanent failure of the task before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Doubt {
    Nobody,
    /// Only the worker that reports now. It cannot confirm itself: its report uses up an attempt, so the job ends also where
    /// no other worker can do the task.
    Itself,
    Another,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_remote_worker_alone_does_not_make_a_failure_permanent() {
        let after = |witness| Kind::Permanent.after(0, witness);

        assert_eq!(after(Witness::Server), Kind::Permanent);
        assert_eq!(after(Witness::Remote(Doubt::Nobody)), Kind::Unconfirmed);
        assert_eq!(after(Witness::Remote(Doubt::Itself)), Kind::Transient);
        assert_eq!(after(Witness::Remote(Doubt::Another)), Kind::Permanent);
        assert_eq!(Kind::Rejected.after(MOST_REJECTED - 1, Witness::Server), Kind::Rejected);
        assert_eq!(Kind::Rejected.after(MOST_REJECTED, Witness::Server), Kind::Transient);
        assert_eq!(Kind::Transient.after(0, Witness::Remote(Doubt::Nobody)), Kind::Transient);
        assert_eq!(Kind::Drained.after(MOST_SPARED - 1, Witness::Server), Kind::Drained);
        assert_eq!(Kind::Drained.after(MOST_SPARED, Witness::Server), Kind::Transient);
    }

    #[test]
    fn a_lost_worker_that_left_durable_progress_is_spared_up_to_a_limit() {
        for lost in [Kind::WorkerLost, Kind::LeaseExpired] {
            assert_eq!(lost.after_loss(true, MOST_SPARED - 1), Kind::Interrupted);
            assert_eq!(lost.after_loss(true, MOST_SPARED), lost);
            assert_eq!(lost.after_loss(false, 0), lost);
        }
        assert_eq!(Kind::Drained.after_loss(true, 0), Kind::Drained);
    }

    #[test]
    fn a_word_of_a_later_version_is_worth_another_try() {
        assert_eq!(Kind::read("quota_gone"), Kind::Transient);
        assert!(Kind::ALL.iter().all(|kind| Kind::read(kind.as_str()) == *kind));
    }
}
