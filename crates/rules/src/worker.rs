//! A worker as the fleet sees it (documents 001 and 003).

use crate::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Status {
    /// Registered, and has not yet said what it is doing.
    Active,
    Idle,
    Busy,
    /// Finishes what it has and takes nothing new.
    Draining,
    /// Has not been heard of for the offline threshold. Its leases expire by themselves, not by this.
    Offline,
    /// Switched off by a person, or suspended for what it reported; only a person switches it on again.
    Disabled,
}

crate::words::words!("worker status", Status {
    Active => "active",
    Idle => "idle",
    Busy => "busy",
    Draining => "draining",
    Offline => "offline",
    Disabled => "disabled",
});

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Worker {
    pub status: Status,
    pub registered_at: Millis,
    /// None until the first heartbeat; registration counts in its place (001, edge case 9).
    pub last_heartbeat: Option<Millis>,
    pub rejections: Rejections,
}

/// Reports of a worker that were rejected because they were wrong, in the window that began with the first of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rejections {
    pub count: u32,
    pub since: Option<Millis>,
}

impl Rejections {
    /// One more, in the window that is open or in a new one.
    fn another(self, window: Millis, now: Millis) -> Self {
        match self.since {
            Some(since) if now >= since && now < since + window => {
                Rejections { count: self.count.saturating_add(1), since: Some(since) }
            }
            _ => Rejections { count: 1, since: Some(now) },
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Command {
    /// The worker says what it is doing.
    Heartbeat {
        running: u32,
        /// It is shutting down.
        is_draining: bool,
    },
    /// The fleet looks whether it is still there; the heartbeat is judged in the very write that marks it.
    Check {
        threshold: Millis,
    },
    /// The worker's own last word.
    Leave,
    Drain,
    Disable,
    Enable,
    /// A report of the worker was rejected because it was wrong. At `limit` of them within `window` the worker is suspended:
    /// disabled. 0 means never.
    Reject {
        limit: u32,
        window: Millis,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    #[error("the worker was heard of recently")]
    Alive,
    #[error("the worker is disabled; enable it first")]
    Disabled,
    #[error("the worker is offline already")]
    Offline,
    #[error("the worker is not disabled or draining")]
    NothingToEnable,
    #[error("the worker is draining; it takes no new work")]
    Draining,
    #[error("another process speaks for this worker by now; give each worker a key of its own")]
    Superseded,
}

impl Worker {
    pub const fn register(now: Millis) -> Self {
        Worker {
            status: Status::Active,
            registered_at: now,
            last_heartbeat: None,
            rejections: Rejections { count: 0, since: None },
        }
    }

    fn to(&self, status: Status) -> Self {
        Worker { status, ..*self }
    }

    fn last_seen(&self) -> Millis {
        self.last_heartbeat.unwrap_or(self.registered_at)
    }

    /// Whether the worker may be given new work. One thought offline may: its asking proves the opposite.
    pub const fn may_claim(&self) -> Result<(), Refusal> {
        match self.status {
            Status::Active | Status::Idle | Status::Busy | Status::Offline => Ok(()),
            Status::Draining => Err(Refusal::Draining),
            Status::Disabled => Err(Refusal::Disabled),
        }
    }
}

impl Command {
    pub const fn name(self) -> &'static str {
        match self {
            Command::Heartbeat { .. } => "heartbeat",
            Command::Check { .. } => "check",
            Command::Leave => "leave",
            Command::Drain => "drain",
            Command::Disable => "disable",
            Command::Enable => "enable",
            Command::Reject { .. } => "reject",
        }
    }
}

pub fn decide(worker: &Worker, command: Command, now: Millis) -> Result<Worker, Refusal> {
    match (worker.status, command) {
        (status, Command::Heartbeat { running, is_draining }) => Ok(Worker {
            status: heard(status, running, is_draining),
            last_heartbeat: Some(now.max(worker.last_seen())),
            ..*worker
        }),

        (
            Status::Disabled,
            Command::Check { .. }
            | Command::Leave
            | Command::Drain
            | Command::Disable
            | Command::Reject { .. },
        ) => Err(Refusal::Disabled),
        (Status::Offline, Command::Check { .. } | Command::Leave | Command::Drain) => Err(Refusal::Offline),

        (_, Command::Check { threshold }) if now < worker.last_seen() + threshold => Err(Refusal::Alive),
        (_, Command::Check { .. } | Command::Leave) => Ok(worker.to(Status::Offline)),

        (_, Command::Drain) => Ok(worker.to(Status::Draining)),
        (_, Command::Disable) => Ok(worker.to(Status::Disabled)),

        (
            Status::Active | Status::Idle | Status::Busy | Status::Draining | Status::Offline,
            Command::Reject { limit, window },
        ) => {
            let rejections = worker.rejections.another(window, now);
            let is_suspended = limit > 0 && rejections.count >= limit;
            let status = if is_suspended { Status::Disabled } else { worker.status };
            Ok(Worker { rejections, ..worker.to(status) })
        }

        (Status::Disabled | Status::Draining, Command::Enable) => {
            Ok(Worker { rejections: Rejections::default(), ..worker.to(Status::Active) })
        }
        (Status::Active | Status::Idle | Status::Busy | Status::Offline, Command::Enable) => {
            Err(Refusal::NothingToEnable)
        }
    }
}

/// What a heartbeat makes of a status. A person's word (disabled, draining) outlasts it.
const fn heard(status: Status, running: u32, is_draining: bool) -> Status {
    match status {
        Status::Disabled => Status::Disabled,
        Status::Draining => Status::Draining,
        Status::Active | Status::Idle | Status::Busy | Status::Offline if is_draining => Status::Draining,
        Status::Active | Status::Idle | Status::Busy | Status::Offline => {
            if running > 0 {
                Status::Busy
            } else {
                Status::Idle
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: Command = Command::Check { threshold: Millis(300) };
    const HEARTBEAT: Command = Command::Heartbeat { running: 0, is_draining: false };

    #[test]
    fn one_that_never_sent_a_heartbeat_is_found_by_its_registration() {
        let silent = Worker::register(Millis(0));

        assert_eq!(decide(&silent, CHECK, Millis(299)), Err(Refusal::Alive));
        assert_eq!(decide(&silent, CHECK, Millis(300)).unwrap().status, Status::Offline);
    }

    #[test]
    fn a_heartbeat_during_the_check_wins() {
        let stale = Worker::register(Millis(0));

        let heard = decide(&stale, HEARTBEAT, Millis(301)).unwrap();

        assert_eq!(decide(&heard, CHECK, Millis(302)), Err(Refusal::Alive));
    }

    #[test]
    fn one_that_dies_while_draining_is_noticed_and_a_disabled_one_stays_disabled() {
        let draining = decide(&Worker::register(Millis(0)), Command::Drain, Millis(1)).unwrap();
        assert_eq!(decide(&draining, CHECK, Millis(400)).unwrap().status, Status::Offline);

        let disabled = decide(&Worker::register(Millis(0)), Command::Disable, Millis(1)).unwrap();
        assert_eq!(decide(&disabled, CHECK, Millis(400)), Err(Refusal::Disabled));
        assert_eq!(decide(&disabled, HEARTBEAT, Millis(2)).unwrap().status, Status::Disabled);
    }

    #[test]
    fn one_back_from_offline_goes_on_with_its_work() {
        let offline = decide(&Worker::register(Millis(0)), CHECK, Millis(400)).unwrap();

        let back =
            decide(&offline, Command::Heartbeat { running: 2, is_draining: false }, Millis(401)).unwrap();

        assert_eq!(back.status, Status::Busy);
        assert_eq!(offline.may_claim(), Ok(()));
    }

    #[test]
    fn one_whose_reports_are_rejected_again_and_again_is_suspended() {
        let reject = |worker: &Worker, at| {
            decide(worker, Command::Reject { limit: 3, window: Millis(100) }, Millis(at)).unwrap()
        };
        let twice = reject(&reject(&Worker::register(Millis(0)), 1), 50);
        assert_eq!((twice.status, twice.rejections.count), (Status::Active, 2));

        let suspended = reject(&twice, 100);
        assert_eq!(suspended.status, Status::Disabled);
        assert_eq!(decide(&suspended, HEARTBEAT, Millis(101)).unwrap().status, Status::Disabled);
        let enabled = decide(&suspended, Command::Enable, Millis(102)).unwrap();
        assert_eq!((enabled.status, enabled.rejections.count), (Status::Active, 0));

        let much_later = reject(&twice, 101);
        assert_eq!((much_later.status, much_later.rejections.count), (Status::Active, 1), "a new window");
        let never = decide(&twice, Command::Reject { limit: 0, window: Millis(100) }, Millis(60)).unwrap();
        assert_eq!(never.status, Status::Active);
    }
}
