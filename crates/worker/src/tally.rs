//! What became of the executions.

use std::sync::atomic::{AtomicU64, Ordering};

/// How an execution ended, as its worker saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    Failed,
    GivenBack,
    Lost,
}

impl Fate {
    pub const fn as_str(self) -> &'static str {
        match self {
            Fate::Done => "done",
            Fate::Failed => "failed",
            Fate::GivenBack => "given_back",
            Fate::Lost => "lost",
        }
    }
}

/// What a worker has done in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    pub done: u64,
    pub failed: u64,
    /// Unfinished when the worker ended, or for want of the storage; no attempt was used up.
    pub given_back: u64,
    /// The lease was lost, or its last word never reached the desk; somebody else does it.
    pub lost: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Tally([AtomicU64; 4]);

impl Tally {
    pub fn count(&self, fate: Fate) {
        self.0[fate as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub fn summary(&self) -> Summary {
        let of = |fate: Fate| self.0[fate as usize].load(Ordering::Relaxed);
        Summary {
            done: of(Fate::Done),
            failed: of(Fate::Failed),
            given_back: of(Fate::GivenBack),
            lost: of(Fate::Lost),
        }
    }
}
