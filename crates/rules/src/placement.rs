//! Which worker may take which task, and when a CPU worker leaves it to a GPU worker (001 §2, made safe).

use crate::{Millis, worker::Status};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a worker can do, or what a task asks for: `command`, `gpu`, `codec:av1` …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Capabilities(BTreeSet<String>);

/// The capability that makes a worker a GPU worker.
pub const GPU: &str = "gpu";

const MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCapability {
    #[error("capability `{0}` is not usable; use 1 to 64 lower-case letters, digits, `-`, `_`, `.` and `:`")]
    Name(String),
    #[error("{0} capabilities are too many; {MAX} are allowed")]
    TooMany(usize),
}

impl Capabilities {
    pub fn new<I: IntoIterator<Item = impl Into<String>>>(names: I) -> Result<Self, BadCapability> {
        let names: BTreeSet<String> = names.into_iter().map(Into::into).collect();
        if names.len() > MAX {
            return Err(BadCapability::TooMany(names.len()));
        }
        let usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.:".contains(c);
        match names.iter().find(|name| !(1..=64).contains(&name.len()) || !name.chars().all(usable)) {
            Some(bad) => Err(BadCapability::Name(bad.chars().take(64).collect())),
            None => Ok(Capabilities(names)),
        }
    }

    pub fn satisfy(&self, asked: &Capabilities) -> bool {
        asked.0.is_subset(&self.0)
    }

    pub fn has_gpu(&self) -> bool {
        self.0.contains(GPU)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Comma-separated and sorted: one text for each set.
impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Capabilities {
    type Err = BadCapability;

    fn from_str(text: &str) -> Result<Self, BadCapability> {
        Capabilities::new(text.split(',').map(str::trim).filter(|name| !name.is_empty()))
    }
}

/// Tasks of equal demands form a lane; a claim looks only into the lanes its worker can serve.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane {
    pub asks: Capabilities,
    /// A GPU would do it better, and a CPU can.
    pub prefers_gpu: bool,
}

/// Another worker, as a CPU worker that is about to claim sees it.
#[derive(Debug, Clone)]
pub struct Peer {
    pub status: Status,
    pub capabilities: Capabilities,
    pub last_heartbeat: Option<Millis>,
}

/// What a worker finds when it looks into a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It cannot do such tasks.
    Closed,
    /// Only those READY since before this time: the younger ones are left to an idle GPU worker.
    ReadyBefore(Millis),
    Open,
}

/// A CPU worker defers to an *idle* GPU worker that *could take the task* and was heard of within two heartbeat
/// intervals; and never for longer than two intervals after the task became READY.
pub fn access(
    lane: &Lane,
    worker: &Capabilities,
    peers: &[Peer],
    heartbeat_interval: Millis,
    now: Millis,
) -> Access {
    let patience = heartbeat_interval + heartbeat_interval;
    let would_take = |peer: &Peer| {
        peer.status == Status::Idle
            && peer.capabilities.has_gpu()
            && peer.capabilities.satisfy(&lane.asks)
            && peer.last_heartbeat.is_some_and(|at| now < at + patience)
    };
    if !worker.satisfy(&lane.asks) {
        Access::Closed
    } else if lane.prefers_gpu && !worker.has_gpu() && peers.iter().any(would_take) {
        Access::ReadyBefore(now - patience)
    } else {
        Access::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Millis = Millis(30);
    const NOW: Millis = Millis(1000);

    fn caps(text: &str) -> Capabilities {
        text.parse().unwrap()
    }

    fn lane(asks: &str) -> Lane {
        Lane { asks: caps(asks), prefers_gpu: true }
    }

    fn gpu(capabilities: &str, status: Status, heartbeat: i64) -> Peer {
        Peer { status, capabilities: caps(capabilities), last_heartbeat: Some(Millis(heartbeat)) }
    }

    #[test]
    fn a_cpu_worker_leaves_fresh_tasks_to_an_idle_gpu_worker() {
        let peers = [gpu("encode,gpu", Status::Idle, 990)];

        let found = access(&lane("encode"), &caps("encode"), &peers, INTERVAL, NOW);

        assert_eq!(found, Access::ReadyBefore(Millis(940)), "and takes them after two intervals");
    }

    #[test]
    fn it_does_not_wait_for_one_that_is_busy_silent_or_unable() {
        let cases = [
            gpu("encode,gpu", Status::Busy, 990),
            gpu("encode,gpu", Status::Draining, 990),
            gpu("encode,gpu", Status::Disabled, 990),
            gpu("encode,gpu", Status::Idle, 940),
            gpu("gpu", Status::Idle, 990),
            gpu("encode", Status::Idle, 990),
            Peer { last_heartbeat: None, ..gpu("encode,gpu", Status::Idle, 0) },
        ];
        for peer in cases {
            let peers = [peer];
            let found = access(&lane("encode"), &caps("encode"), &peers, INTERVAL, NOW);
            assert_eq!(found, Access::Open, "{peers:?}");
        }
    }

    #[test]
    fn a_gpu_worker_never_waits_and_nobody_takes_what_it_cannot_do() {
        let peers = [gpu("encode,gpu", Status::Idle, 990)];

        assert_eq!(access(&lane("encode"), &caps("encode,gpu"), &peers, INTERVAL, NOW), Access::Open);
        assert_eq!(access(&lane("encode"), &caps("gpu"), &peers, INTERVAL, NOW), Access::Closed);
    }

    #[test]
    fn capabilities_are_one_text_for_each_set() {
        assert_eq!(caps("gpu, encode,gpu").to_string(), "encode,gpu");
        assert!("GPU!".parse::<Capabilities>().is_err());
    }
}
