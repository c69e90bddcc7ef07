//! Why an execution may not go on.

use std::sync::{Arc, OnceLock};

use rules::lease;
use rules::task::Refusal;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The lease is somebody else's, or nobody's: there is no one to report to.
    Lost(Refusal),
    /// The work itself stands still or takes too long.
    Ended(lease::Ended),
    /// The worker is shutting down.
    Drained,
}

impl From<Refusal> for Reason {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Stalled => Reason::Ended(lease::Ended::Stalled),
            Refusal::Overdue => Reason::Ended(lease::Ended::Overdue),
            other => Reason::Lost(other),
        }
    }
}

/// Ends one execution; the first reason stands. Clones are one and the same.
#[derive(Debug, Clone)]
pub(crate) struct Stop {
    token: CancellationToken,
    reason: Arc<OnceLock<Reason>>,
}

impl Stop {
    pub fn new(token: CancellationToken) -> Self {
        Stop { token, reason: Arc::default() }
    }

    pub fn stop(&self, reason: Reason) {
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    pub fn reason(&self) -> Option<Reason> {
        self.reason.get().copied()
    }

    pub async fn asked(&self) {
        self.token.cancelled().await;
    }
}
