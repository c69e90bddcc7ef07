//! The worker's loop as data (document 004): eleven phases, and what leads from one to the next.

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Startup,
    Connecting,
    Recovery,
    Polling,
    Backoff,
    Idle,
    Claiming,
    Processing,
    ReportingSuccess,
    ReportingFailure,
    ErrorWait,
}

crate::words::words!("worker phase", Phase {
    Startup => "Startup",
    Connecting => "Connecting",
    Recovery => "Recovery",
    Polling => "Polling",
    Backoff => "Backoff",
    Idle => "Idle",
    Claiming => "Claiming",
    Processing => "Processing",
    ReportingSuccess => "ReportingSuccess",
    ReportingFailure => "ReportingFailure",
    ErrorWait => "ErrorWait",
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trigger {
    /// The program has been set up.
    Started,
    /// The desk answers.
    Connected,
    /// What a predecessor left behind is cleaned up, or it was not time to look.
    Recovered,
    /// There is work to claim.
    TaskFound,
    NoTask,
    /// How long to be idle has been worked out.
    IntervalSet,
    /// The sleep is over, or something woke the worker.
    Woken,
    LeaseAcquired,
    /// Another was faster.
    ClaimLost,
    Succeeded,
    Failed,
    /// The desk has taken the report, or refused it for good.
    Reported,
    /// Anything unexpected: the desk is away.
    Broke,
    WaitedOut,
}

crate::words::words!("trigger", Trigger {
    Started => "started",
    Connected => "connected",
    Recovered => "recovered",
    TaskFound => "task found",
    NoTask => "no task",
    IntervalSet => "interval set",
    Woken => "woken",
    LeaseAcquired => "lease acquired",
    ClaimLost => "claim lost",
    Succeeded => "succeeded",
    Failed => "failed",
    Reported => "reported",
    Broke => "broke",
    WaitedOut => "waited out",
});

/// 004's table, with the `Claiming → Polling` its own table forgot. `Broke` leads from anywhere to ErrorWait.
pub const TRANSITIONS: &[(Phase, Trigger, Phase)] = &[
    (Phase::Startup, Trigger::Started, Phase::Connecting),
    (Phase::Connecting, Trigger::Connected, Phase::Recovery),
    (Phase::Recovery, Trigger::Recovered, Phase::Polling),
    (Phase::Polling, Trigger::TaskFound, Phase::Claiming),
    (Phase::Polling, Trigger::NoTask, Phase::Backoff),
    (Phase::Backoff, Trigger::IntervalSet, Phase::Idle),
    (Phase::Idle, Trigger::Woken, Phase::Connecting),
    (Phase::Claiming, Trigger::LeaseAcquired, Phase::Processing),
    (Phase::Claiming, Trigger::ClaimLost, Phase::Polling),
    (Phase::Processing, Trigger::Succeeded, Phase::ReportingSuccess),
    (Phase::Processing, Trigger::Failed, Phase::ReportingFailure),
    (Phase::ReportingSuccess, Trigger::Reported, Phase::Polling),
    (Phase::ReportingFailure, Trigger::Reported, Phase::Polling),
    (Phase::ErrorWait, Trigger::WaitedOut, Phase::Connecting),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[error("nothing leads from {0} by `{1}`")]
pub struct Refusal(pub Phase, pub Trigger);

pub fn next(phase: Phase, trigger: Trigger) -> Result<Phase, Refusal> {
    if trigger == Trigger::Broke {
        return Ok(Phase::ErrorWait);
    }
    TRANSITIONS
        .iter()
        .find(|(from, by, _)| (*from, *by) == (phase, trigger))
        .map(|&(_, _, to)| to)
        .ok_or(Refusal(phase, trigger))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_phase_is_reached_and_left() {
        for &phase in Phase::ALL {
            let left = TRANSITIONS.iter().any(|(from, _, _)| *from == phase);
            let reached = TRANSITIONS.iter().any(|(_, _, to)| *to == phase);
            assert!(left, "{phase} is never left");
            assert!(
                reached || matches!(phase, Phase::Startup | Phase::ErrorWait),
                "{phase} is never reached"
            );
        }
    }

    #[test]
    fn no_trigger_leads_two_ways() {
        for (at, (from, by, _)) in TRANSITIONS.iter().enumerate() {
            let again = TRANSITIONS[at + 1..].iter().any(|(f, b, _)| (f, b) == (from, by));
            assert!(!again, "{from} by {by}");
        }
    }
}
