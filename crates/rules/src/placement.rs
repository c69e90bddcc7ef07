//! Which worker may take which task, and when a CPU worker leaves it to a GPU worker (001 §2, made safe).

use crate::{Millis, worker::Status};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// What a worker can do, or what a task asks for: `command`, `gpu`, `codec:av1` …
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Capabilities(BTreeSet<String>);

/// The capability that makes a worker a GPU worker.
pub const GPU: &str = "gpu";

const MAX: usize = 32;

/// Kinds of work that need the server's own files or decide what is published. A remote worker never has them.
pub const SERVER_KINDS: [&str; 8] =
    ["ingest", "probe", "plan", "subtitles", "thumbnails", "package", "measure", "publish"];

/// A task of a job that names a pool asks for this and the pool's name.
const POOL: &str = "pool:";

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCapability {
    #[error("capability `{0}` is not usable; use 1 to 64 lower-case letters, digits, `-`, `_`, `.` and `:`")]
    Name(String),
    #[error("{0} capabilities are too many; {MAX} are allowed")]
    TooMany(usize),
    #[error("the pool name `{0}` is not usable; use 1 to 32 lower-case letters, digits, `-` and `_`")]
    Pool(String),
    #[error("`{0}` is work of the server's own; a remote worker cannot be allowed it")]
    ServerOnly(String),
    #[error("`{0}` is not a capability; register the worker with a pool instead")]
    PoolAsCapability(String),
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

    /// All but these.
    pub fn without<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut left = self.0.clone();
        for name in names {
            left.remove(name);
        }
        Capabilities(left)
    }

    pub fn has_gpu(&self) -> bool {
        self.0.contains(GPU)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    fn filter(&self, keep: impl Fn(&str) -> bool) -> Capabilities {
        Capabilities(self.0.iter().filter(|name| keep(name)).cloned().collect())
    }
}

/// The name of a group of remote workers that take only the jobs that name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pool(String);

impl Pool {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What a task of a job that names this pool asks for.
    pub fn capability(&self) -> String {
        format!("{POOL}{}", self.0)
    }
}

impl FromStr for Pool {
    type Err = BadCapability;

    fn from_str(name: &str) -> Result<Self, BadCapability> {
        let is_usable = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
        match (1..=32).contains(&name.len()) && name.chars().all(is_usable) {
            true => Ok(Pool(name.into())),
            false => Err(BadCapability::Pool(name.chars().take(64).collect())),
        }
    }
}

impl TryFrom<String> for Pool {
    type Error = BadCapability;

    fn try_from(name: String) -> Result<Self, BadCapability> {
        name.parse()
    }
}

impl From<Pool> for String {
    fn from(pool: Pool) -> String {
        pool.0
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What an admin allowed a remote worker when registering it: the upper bound of what it may be given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grant {
    /// None: whatever it declares, except [`SERVER_KINDS`].
    pub capabilities: Option<Capabilities>,
    /// It takes only jobs that name this pool. None: only jobs that name no pool.
    pub pool: Option<Pool>,
    /// It takes only jobs of these users. None: of every user.
    pub users: Option<BTreeSet<String>>,
}

impl Grant {
    /// Refuses what no remote worker can have.
    pub fn check(&self) -> Result<(), BadCapability> {
        let Some(capabilities) = &self.capabilities else { return Ok(()) };
        if let Some(name) = capabilities.iter().find(|name| SERVER_KINDS.contains(name)) {
            return Err(BadCapability::ServerOnly(name.into()));
        }
        match capabilities.iter().find(|name| name.starts_with(POOL)) {
            Some(name) => Err(BadCapability::PoolAsCapability(name.into())),
            None => Ok(()),
        }
    }

    /// The part of a worker's declared capabilities that this grant covers.
    pub fn narrow(&self, declared: &Capabilities) -> Capabilities {
        let is_granted = |name: &str| match &self.capabilities {
            Some(granted) => granted.0.contains(name),
            None => true,
        };
        declared.filter(|name| is_granted(name) && !SERVER_KINDS.contains(&name) && !name.starts_with(POOL))
    }
}

/// What a worker may be given.
#[derive(Debug, Clone)]
pub struct Eligibility {
    capabilities: Capabilities,
    /// It has the database: it belongs to every pool.
    is_local: bool,
    pool: Option<Pool>,
    users: Option<BTreeSet<String>>,
}

impl Eligibility {
    pub fn local(capabilities: Capabilities) -> Self {
        Eligibility { capabilities, is_local: true, pool: None, users: None }
    }

    pub fn remote(declared: &Capabilities, grant: Grant) -> Self {
        let capabilities = grant.narrow(declared);
        Eligibility { capabilities, is_local: false, pool: grant.pool, users: grant.users }
    }

    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The users it is restricted to.
    pub fn users(&self) -> Option<&BTreeSet<String>> {
        self.users.as_ref()
    }

    pub fn serves(&self, user: &str) -> bool {
        self.users.as_ref().is_none_or(|users| users.contains(user))
    }

    pub fn has_gpu(&self) -> bool {
        self.capabilities.has_gpu()
    }

    /// Whether it has what such a task asks for, wherever it may take it from.
    pub fn is_able(&self, asked: &Capabilities) -> bool {
        self.capabilities.satisfy(&asked.filter(|name| !name.starts_with(POOL)))
    }

    /// Whether it may take such a task: it is able to, and in the pool that the task's job names.
    pub fn may_take(&self, asked: &Capabilities) -> bool {
        let named = asked.iter().find_map(|name| name.strip_prefix(POOL));
        let is_in_pool = self.is_local || named == self.pool.as_ref().map(Pool::as_str);
        is_in_pool && self.is_able(asked)
    }

    /// What restricts it, for people.
    pub fn restriction(&self) -> Option<String> {
        let pool = self.pool.as_ref().map(|pool| format!("pool {pool}"));
        let users = self.users.as_ref().map(|users| {
            let names: Vec<&str> = users.iter().map(String::as_str).collect();
            format!("users {}", names.join(", "))
        });
        match (pool, users) {
            (None, None) => None,
            (Some(pool), Some(users)) => Some(format!("{pool}, {users}")),
            (pool, users) => pool.or(users),
        }
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
    pub eligibility: Eligibility,
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

/// Whether a task that a remote worker has failed can be left to another one that is there. If not, the same worker may try
/// it again.
pub fn can_be_left_to(
    lane: &Lane,
    user: &str,
    others: &[Peer],
    heartbeat_interval: Millis,
    now: Millis,
) -> bool {
    let is_there = |peer: &Peer| {
        let takes_work = matches!(peer.status, Status::Active | Status::Idle | Status::Busy);
        takes_work && peer.last_heartbeat.is_some_and(|at| now < at + heartbeat_interval + heartbeat_interval)
    };
    let may_take = |it: &Eligibility| it.serves(user) && it.may_take(&lane.asks);
    others.iter().any(|peer| is_there(peer) && may_take(&peer.eligibility))
}

/// A CPU worker defers to an *idle* GPU worker that *could take the task* and was heard of within two heartbeat
/// intervals; and never for longer than two intervals after the task became READY. `user` is the owner of the tasks.
pub fn access(
    lane: &Lane,
    user: &str,
    worker: &Eligibility,
    peers: &[Peer],
    heartbeat_interval: Millis,
    now: Millis,
) -> Access {
    let patience = heartbeat_interval + heartbeat_interval;
    let may_take = |it: &Eligibility| it.serves(user) && it.may_take(&lane.asks);
    let would_take = |peer: &Peer| {
        peer.status == Status::Idle
            && peer.eligibility.has_gpu()
            && may_take(&peer.eligibility)
            && peer.last_heartbeat.is_some_and(|at| now < at + patience)
    };
    if !may_take(worker) {
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
        Peer { status, eligibility: local(capabilities), last_heartbeat: Some(Millis(heartbeat)) }
    }

    fn local(capabilities: &str) -> Eligibility {
        Eligibility::local(caps(capabilities))
    }

    fn remote(declared: &str, grant: Grant) -> Eligibility {
        Eligibility::remote(&caps(declared), grant)
    }

    #[test]
    fn a_cpu_worker_leaves_fresh_tasks_to_an_idle_gpu_worker() {
        let peers = [gpu("encode,gpu", Status::Idle, 990)];

        let found = access(&lane("encode"), "ann", &local("encode"), &peers, INTERVAL, NOW);

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
            let found = access(&lane("encode"), "ann", &local("encode"), &peers, INTERVAL, NOW);
            assert_eq!(found, Access::Open, "{peers:?}");
        }
    }

    #[test]
    fn a_failed_task_is_left_to_another_that_is_there_and_could_do_it() {
        let peer = |capabilities, status, heartbeat| [gpu(capabilities, status, heartbeat)];
        let is_left = |others: &[Peer]| can_be_left_to(&lane("encode"), "ann", others, INTERVAL, NOW);

        assert!(is_left(&peer("encode", Status::Busy, 990)));
        for others in [
            peer("encode", Status::Busy, 940),
            peer("encode", Status::Draining, 990),
            peer("encode", Status::Disabled, 990),
            peer("audio", Status::Idle, 990),
        ] {
            assert!(!is_left(&others), "{others:?}");
        }
        assert!(!is_left(&[]));
    }

    #[test]
    fn a_gpu_worker_never_waits_and_nobody_takes_what_it_cannot_do() {
        let peers = [gpu("encode,gpu", Status::Idle, 990)];

        assert_eq!(access(&lane("encode"), "ann", &local("encode,gpu"), &peers, INTERVAL, NOW), Access::Open);
        assert_eq!(access(&lane("encode"), "ann", &local("gpu"), &peers, INTERVAL, NOW), Access::Closed);
    }

    #[test]
    fn capabilities_are_one_text_for_each_set() {
        assert_eq!(caps("gpu, encode,gpu").to_string(), "encode,gpu");
        assert!("GPU!".parse::<Capabilities>().is_err());
    }

    #[test]
    fn a_grant_is_the_upper_bound_of_what_a_remote_worker_declares() {
        let granted = Grant { capabilities: Some(caps("encode,libx264")), ..Grant::default() };
        let worker = remote("encode,libx264,audio,gpu,publish,pool:eu", granted);

        assert!(worker.may_take(&caps("encode,libx264")));
        for asked in ["audio", "encode,gpu", "publish"] {
            assert!(!worker.may_take(&caps(asked)), "{asked}");
        }
        let granted_what_it_lacks = Grant { capabilities: Some(caps("encode,audio")), ..Grant::default() };
        assert!(!remote("encode", granted_what_it_lacks).may_take(&caps("audio")));
    }

    #[test]
    fn without_a_list_it_gets_what_it_declares_except_what_is_the_servers() {
        let worker = remote("encode,noop,gpu,ingest,plan,package,measure,publish", Grant::default());

        assert!(worker.may_take(&caps("encode,gpu")) && worker.may_take(&caps("noop")));
        for kind in SERVER_KINDS {
            assert!(!worker.may_take(&caps(kind)), "{kind}");
            let granted = Grant { capabilities: Some(caps(kind)), ..Grant::default() };
            assert!(granted.check().is_err(), "{kind} cannot be granted");
            assert!(!remote(kind, granted).may_take(&caps(kind)), "{kind}");
            assert!(local(kind).may_take(&caps(kind)));
        }
    }

    #[test]
    fn a_pool_takes_the_jobs_that_name_it_and_no_others() {
        let eu = |text: &str| Grant { pool: Some(text.parse().unwrap()), ..Grant::default() };
        let (pooled, free) = (remote("encode", eu("eu")), remote("encode,pool:eu", Grant::default()));

        assert!(pooled.may_take(&caps("encode,pool:eu")));
        assert!(!pooled.may_take(&caps("encode,pool:us")) && !pooled.may_take(&caps("encode")));
        assert!(free.may_take(&caps("encode")));
        assert!(!free.may_take(&caps("encode,pool:eu")), "a pool cannot be declared by the worker");
        assert!(
            local("encode").may_take(&caps("encode,pool:eu")) && local("encode").may_take(&caps("encode"))
        );
        assert!("EU".parse::<Pool>().is_err() && "".parse::<Pool>().is_err());
    }

    #[test]
    fn one_bound_to_users_takes_only_their_tasks_and_nobody_waits_for_it() {
        let users = Some(BTreeSet::from(["ann".to_owned()]));
        let bound = remote("encode,gpu", Grant { users, ..Grant::default() });
        let find = |user| access(&lane("encode"), user, &bound, &[], INTERVAL, NOW);

        assert_eq!((find("ann"), find("bob")), (Access::Open, Access::Closed));
        let peers =
            [Peer { status: Status::Idle, eligibility: bound.clone(), last_heartbeat: Some(Millis(990)) }];
        let cpu = |user| access(&lane("encode"), user, &local("encode"), &peers, INTERVAL, NOW);
        assert_eq!((cpu("ann"), cpu("bob")), (Access::ReadyBefore(Millis(940)), Access::Open));
    }
}
