//! Where a loop or a slot stands in document 004. Every move goes through [`rules::phase::next`].

use rules::phase::{Phase, Trigger, next};
use telemetry::metrics::PHASES_ENTERED;
use tracing::error;

#[derive(Debug)]
pub(crate) struct Cell(Phase);

impl Cell {
    pub const fn at(phase: Phase) -> Self {
        Cell(phase)
    }

    pub const fn phase(&self) -> Phase {
        self.0
    }

    /// A move the rules don't know is a mistake in this crate. The worker heals it as it heals everything: by
    /// waiting and connecting anew.
    pub fn step(&mut self, trigger: Trigger) {
        self.0 = next(self.0, trigger).unwrap_or_else(|refusal| {
            error!("a mistake in the worker's loop: {refusal}");
            debug_assert!(false, "{refusal}");
            Phase::ErrorWait
        });
        PHASES_ENTERED.count([self.0.as_str()]);
    }
}

/// What a worker shows of itself is the most active of its phases.
pub(crate) const fn activity(phase: Phase) -> u8 {
    match phase {
        Phase::Processing => 4,
        Phase::ReportingSuccess | Phase::ReportingFailure => 3,
        Phase::Claiming => 2,
        Phase::Startup
        | Phase::Connecting
        | Phase::Recovery
        | Phase::Polling
        | Phase::Backoff
        | Phase::Idle
        | Phase::ErrorWait => 1,
    }
}
