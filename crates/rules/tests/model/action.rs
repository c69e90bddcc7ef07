//! Everything that can happen. Each action is one transaction, one word, or one misfortune.
//!
//! The orchestrator keeps nothing in memory, so "it did half of its duties and crashed" is simply "it has not
//! yet done the others".

use crate::config::Shape;
use crate::world::{At, Letter, TICK, Word, World};
use rules::backoff::{Backoff, Jitter};
use rules::task::{Command, Death, Role};
use rules::worker::{self, Status};

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Action {
    /// Longer than a lease, a backoff, and the patience with a silent worker.
    Tick,

    /// Adds the job, and releases what is due at once.
    Submit {
        job: usize,
    },
    Duty {
        at: At,
        duty: Duty,
    },

    Cancel {
        job: usize,
    },
    Rerun {
        job: usize,
    },

    /// Not heard: the answer gets lost, and nobody knows the token.
    Claim {
        process: usize,
        at: At,
        is_heard: bool,
    },
    Say {
        process: usize,
        word: Word,
    },
    /// The process dies, and a new incarnation takes its place.
    Restart {
        process: usize,
    },

    /// Stays: the word will arrive again, and its sender hears no answer this time.
    Deliver {
        letter: Letter,
        stays: bool,
    },
    Lose {
        letter: Letter,
    },

    Fleet {
        process: usize,
        command: worker::Command,
    },
}

/// What the orchestrator does to a single task.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Duty {
    Recover,
    /// Its worker process is known to have died.
    LoseWorker(Death),
    Retry,
    Settle,
    Judge,
}

impl Duty {
    pub const ALL: [Duty; 6] = [
        Duty::Recover,
        Duty::LoseWorker(Death::Unexplained),
        Duty::LoseWorker(Death::ByPerson),
        Duty::Retry,
        Duty::Settle,
        Duty::Judge,
    ];

    pub fn command(self) -> Command {
        match self {
            Duty::Recover => Command::Recover,
            Duty::LoseWorker(death) => {
                let backoff = Backoff { initial: TICK, max: TICK };
                Command::LoseWorker { death, backoff, jitter: Jitter(500) }
            }
            Duty::Retry => Command::Retry,
            Duty::Settle => Command::Settle,
            Duty::Judge => Command::Judge,
        }
    }
}

impl Action {
    /// Who moves tasks by this action. A person's wish is carried out by the orchestrator.
    pub fn role(&self) -> Option<Role> {
        match self {
            Action::Submit { .. } | Action::Duty { .. } | Action::Cancel { .. } | Action::Rerun { .. } => {
                Some(Role::Orchestrator)
            }
            Action::Claim { .. } | Action::Deliver { .. } => Some(Role::Worker),
            Action::Tick
            | Action::Say { .. }
            | Action::Restart { .. }
            | Action::Lose { .. }
            | Action::Fleet { .. } => None,
        }
    }

    /// Whether this is the ordinary course of things: no misfortune, and nobody's change of mind.
    pub fn is_ordinary(&self, world: &World) -> bool {
        match self {
            Action::Tick | Action::Submit { .. } | Action::Duty { .. } | Action::Say { .. } => true,
            Action::Claim { is_heard, .. } => *is_heard,
            Action::Deliver { stays, .. } => !stays,
            // One that has drained is started again; one that was disabled is enabled again.
            Action::Restart { process } => {
                let process = &world.processes[*process];
                process.claim.is_none() && process.row.status == Status::Draining
            }
            Action::Fleet { command, .. } => *command == worker::Command::Enable,
            Action::Cancel { .. } | Action::Rerun { .. } | Action::Lose { .. } => false,
        }
    }

    pub fn sentence(&self, jobs: &[Shape]) -> String {
        match self {
            Action::Tick => "time passes, longer than a lease".into(),
            Action::Submit { job } => format!("job {job} is submitted"),
            Action::Duty { at, duty } => {
                let verb = match duty {
                    Duty::Recover => "recovers",
                    Duty::LoseWorker(Death::Unexplained) => "counts the death of the worker of",
                    Duty::LoseWorker(Death::ByPerson) => "takes back from a worker that a person ended",
                    Duty::Retry => "retries",
                    Duty::Settle => "settles",
                    Duty::Judge => "judges",
                };
                format!("the orchestrator {verb} {}", name(jobs, *at))
            }
            Action::Cancel { job } => format!("a person cancels job {job}"),
            Action::Rerun { job } => format!("a person retries job {job}"),
            Action::Claim { process, at, is_heard: true } => {
                format!("worker {process} claims {}", name(jobs, *at))
            }
            Action::Claim { process, at, is_heard: false } => {
                format!("worker {process} claims {}, and the answer gets lost", name(jobs, *at))
            }
            Action::Say { process, word } => format!("worker {process} says `{word}`"),
            Action::Restart { process } => format!("worker {process} dies and is started again"),
            Action::Deliver { letter, stays } => {
                let again = if *stays { ", and will arrive again" } else { "" };
                let task = name(jobs, letter.at);
                format!("`{}` of worker {} for {task} arrives{again}", letter.word, letter.from)
            }
            Action::Lose { letter } => format!("`{}` of worker {} gets lost", letter.word, letter.from),
            Action::Fleet { process, command } => format!("worker {process}: {command:?}"),
        }
    }
}

fn name(jobs: &[Shape], at: At) -> String {
    format!("{}-{} of job {}", jobs[at.job].0[at.stage].stage.name, at.task, at.job)
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Word::Keep => f.write_str("keep"),
            Word::Progress(_) => f.write_str("progress"),
            Word::Commit => f.write_str("commit"),
            Word::Fail(kind) => write!(f, "fail ({kind})"),
        }
    }
}
