//! A desk in memory. What it accepts is decided by `rules`; it can be away, hang, lie and lose answers.

mod answers;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rules::execution;
use rules::lease::Terms;
use rules::task::{Command, Refusal, State, Task, decide};
use rules::worker::Status;
use rules::{JobId, Millis, TaskId, Token, WorkerId, failure};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use wire::{Answer, Assignment, Error, Proof};

pub const LEASE: Millis = Millis(30_000);

/// No test needs so many words: a worker that says them spins.
const TOO_MANY_WORDS: usize = 20_000;

#[derive(Clone)]
pub struct FakeDesk {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<Desk>,
    /// Grows with each change of the state.
    version: watch::Sender<u64>,
    /// Grows with each new task.
    hints: watch::Sender<u64>,
    began: Instant,
}

/// What the desk knows, and how it behaves.
#[derive(Default)]
pub struct Desk {
    pub tasks: BTreeMap<TaskId, Entry>,
    pub said: Vec<(Instant, Said)>,
    pub is_known: bool,
    /// How many there were when it last said that there is no work.
    known_hints: u64,

    /// Nobody answers.
    pub is_away: bool,
    /// Claims wait until it is false again.
    pub holds_claims: bool,
    /// Answers `has_work` never.
    pub hangs: bool,
    /// Takes the next commit, but its answer gets lost.
    pub loses_commit: bool,
    /// Renewals get lost until a commit got through.
    pub renews_in_vain: bool,
    /// Takes no commit.
    pub commits_in_vain: bool,
    /// Says that there is work, whatever there is.
    pub always_has_work: bool,
    pub always_hints: bool,
    pub never_hints: bool,
    /// What it answers to a heartbeat, if not what the rules say.
    pub status: Option<Status>,
    pub refuses_renewals: Option<Refusal>,
    pub rejects_workers: bool,
    pub rejects_results: bool,
}

pub struct Entry {
    pub task: Task,
    pub kind: String,
    pub payload: Value,
    pub stall_ms: Option<i64>,
    pub timeout_ms: Option<i64>,
    pub result: Option<Value>,
}

/// What a worker said, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    Register(String),
    Heartbeat {
        phase: rules::phase::Phase,
        running: u32,
        is_draining: bool,
        is_leaving: bool,
    },
    HasWork,
    Claim {
        max: u32,
        got: usize,
    },
    Renew(usize),
    Progress(TaskId, Option<u16>),
    Commit(TaskId, Answer),
    Fail(TaskId, failure::Kind, String, Answer),
    /// While the desk was away.
    InVain,
    /// Not said by the worker, but to it: there may be work.
    Hint,
}

impl FakeDesk {
    pub fn new() -> Self {
        let (version, hints) = (watch::channel(0).0, watch::channel(0).0);
        FakeDesk {
            shared: Arc::new(Shared { state: Mutex::default(), version, hints, began: Instant::now() }),
        }
    }

    /// Reads or changes what the desk knows.
    pub fn with<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> T {
        let result = change(&mut self.shared.state.lock().unwrap());
        self.shared.version.send_modify(|version| *version += 1);
        result
    }

    pub fn submit(&self, kind: &str, payload: Value) -> TaskId {
        self.submit_limited(kind, payload, None, None)
    }

    pub fn submit_limited(
        &self,
        kind: &str,
        payload: Value,
        stall_ms: Option<i64>,
        timeout_ms: Option<i64>,
    ) -> TaskId {
        let now = self.now();
        let id = self.with(|desk| {
            let id = TaskId::new(JobId(1), desk.tasks.len() as i64);
            let task = decide(&Task::new(3), &Command::Advance, now).unwrap().task;
            let kind = kind.into();
            desk.tasks.insert(id, Entry { task, kind, payload, stall_ms, timeout_ms, result: None });
            id
        });
        self.shared.hints.send_modify(|hints| *hints += 1);
        id
    }

    /// Moves a task as the orchestrator would.
    pub fn orchestrate(&self, id: TaskId, command: &Command) {
        let now = self.now();
        self.with(|desk| {
            let entry = desk.tasks.get_mut(&id).unwrap();
            entry.task = decide(&entry.task, command, now).unwrap().task;
        });
    }

    pub fn is_lease_live(&self, id: TaskId) -> bool {
        let now = self.now();
        let is_live = |state: &State| matches!(state, State::Running { lease, .. } if lease.is_live(now));
        self.with(|desk| is_live(&desk.tasks[&id].task.state))
    }

    /// Waits for `holds`; panics with what was said last if it never does.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Desk) -> bool) {
        let mut version = self.shared.version.subscribe();
        let wait = async {
            while !holds(&self.shared.state.lock().unwrap()) {
                version.changed().await.unwrap();
            }
        };
        if tokio::time::timeout(std::time::Duration::from_secs(3600), wait).await.is_err() {
            let said = self.said();
            panic!("waited in vain for {what}; last words: {:?}", &said[said.len().saturating_sub(30)..]);
        }
    }

    pub async fn until_said(&self, said: impl Fn(&Said) -> bool) {
        self.until("a word", |desk| desk.said.iter().any(|(_, word)| said(word))).await;
    }

    pub async fn until_done(&self, id: TaskId) {
        self.until("a commit", |desk| desk.is_done(id)).await;
    }

    pub fn said(&self) -> Vec<Said> {
        self.with(|desk| desk.said.iter().map(|(_, said)| said.clone()).collect())
    }

    pub fn count(&self, said: impl Fn(&Said) -> bool) -> usize {
        self.said().iter().filter(|word| said(word)).count()
    }

    fn now(&self) -> Millis {
        Millis(self.shared.began.elapsed().as_millis() as i64)
    }

    fn hear(&self, said: Said) {
        self.with(|desk| {
            desk.said.push((Instant::now(), said));
            assert!(desk.said.len() < TOO_MANY_WORDS, "the worker spins");
        });
    }

    fn here(&self) -> Result<(), Error> {
        if self.with(|desk| desk.is_away) {
            self.hear(Said::InVain);
            return Err(Error::Away("switched off by the test".into()));
        }
        Ok(())
    }

    fn known(&self) -> Result<(), Error> {
        self.here()?;
        match self.with(|desk| desk.is_known) {
            true => Ok(()),
            false => Err(Error::Rejected("who are you?".into())),
        }
    }

    fn decide(&self, proof: Proof, commands: &[Command]) -> Answer {
        let now = self.now();
        self.with(|desk| {
            let Some(entry) = desk.tasks.get_mut(&proof.task) else {
                return Answer::Refused(Refusal::NotRunning);
            };
            let mut task = entry.task.clone();
            for command in commands {
                task = match decide(&task, command, now) {
                    Ok(change) => change.task,
                    Err(Refusal::Execution(execution::Refusal::AlreadyStarted)) => task,
                    Err(Refusal::CommittedByYou) => return Answer::AlreadyAccepted,
                    Err(refusal) => return Answer::Refused(refusal),
                };
            }
            entry.task = task;
            Answer::Accepted
        })
    }
}

impl Desk {
    pub fn is_done(&self, id: TaskId) -> bool {
        matches!(self.tasks[&id].task.state, State::Done { .. })
    }

    fn claim(&mut self, worker: WorkerId, max: usize, now: Millis) -> Vec<Assignment> {
        let ready = self.tasks.iter_mut().filter(|(_, entry)| entry.is_ready());
        ready.take(max).map(|(id, entry)| entry.claim(*id, worker, now)).collect()
    }
}

impl Entry {
    fn is_ready(&self) -> bool {
        matches!(self.task.state, State::Ready { .. })
    }

    fn claim(&mut self, id: TaskId, worker: WorkerId, now: Millis) -> Assignment {
        let token = Token(id.0 * 1000 + self.task.fence.0 + 1);
        // The worker's own limit comes first, so that it can say what happened.
        let deadline = self.timeout_ms.map(|timeout| now + Millis(timeout) + LEASE);
        let terms = Terms { length: LEASE, stall: self.stall_ms.map(Millis), deadline };
        self.task = decide(&self.task, &Command::Claim { worker, token, terms }, now).unwrap().task;
        Assignment {
            proof: Proof { task: id, fence: self.task.fence, token, worker },
            job: id.job(),
            stage: "test".into(),
            kind: self.kind.clone(),
            payload: self.payload.clone(),
            segment: id.ordinal(),
            input: None,
            results: Default::default(),
            attempt: self.task.attempts,
            max_attempts: self.task.max_attempts,
            lease_ms: LEASE.0,
            timeout_ms: self.timeout_ms,
            stall_ms: self.stall_ms,
            traceparent: None,
        }
    }
}
