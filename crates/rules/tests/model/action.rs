//! Everything that can happen next. Each action is one transaction, one word, or one misfortune.
//!
//! The orchestrator keeps nothing in memory, so "it did half of its duties and crashed" is simply "it has not yet
//! done the others".

use crate::config::{Config, Shape};
use crate::world::{At, Letter, NOW, Process, Step, TICK, Word, World};
use rules::task::{Command, Name, Role};
use rules::worker::{self, Status};
use rules::{failure, job};

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
    Retry,
    Settle,
    Judge,
}

impl Duty {
    const ALL: [Duty; 4] = [Duty::Recover, Duty::Retry, Duty::Settle, Duty::Judge];

    pub fn command(self) -> Command {
        match self {
            Duty::Recover => Command::Recover,
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
            Word::Progress(_) => f.write_str("progress"),
            Word::Commit => f.write_str("commit"),
            Word::Fail(kind) => write!(f, "fail ({kind})"),
        }
    }
}

/// What can happen in this world.
pub fn possible(config: &Config, world: &World, to: &mut Vec<Action>) {
    to.push(Action::Tick);
    orchestrator(config, world, to);
    person(config, world, to);
    for (process, memory) in world.processes.iter().enumerate() {
        working(config, world, process, memory, to);
        if config.faults.crash || memory.row.status == Status::Draining {
            to.push(Action::Restart { process });
        }
        fleet(config, process, memory, to);
    }
    for &letter in &world.mail {
        to.push(Action::Deliver { letter, stays: false });
        if config.faults.duplicate {
            to.push(Action::Deliver { letter, stays: true });
        }
        if config.faults.loss {
            to.push(Action::Lose { letter });
        }
    }
}

fn orchestrator(config: &Config, world: &World, to: &mut Vec<Action>) {
    let new = world.jobs.iter().enumerate().filter(|(_, rows)| rows.is_new());
    to.extend(new.map(|(job, _)| Action::Submit { job }));
    for (at, row) in world.tasks() {
        let is_accepted = |duty: &Duty| config.flaw.decide(&row.task, &duty.command()).is_ok();
        let duties = Duty::ALL.into_iter().filter(is_accepted);
        to.extend(duties.map(|duty| Action::Duty { at, duty }));
    }
}

fn person(config: &Config, world: &World, to: &mut Vec<Action>) {
    if !config.faults.person {
        return;
    }
    let submitted = world.jobs.iter().zip(&config.jobs).enumerate().filter(|(_, (rows, _))| !rows.is_new());
    for (job, (rows, shape)) in submitted {
        let is_accepted = |command| job::decide(rows.state(shape), command).is_ok();
        if is_accepted(job::Command::Cancel) {
            to.push(Action::Cancel { job });
        }
        if is_accepted(job::Command::Retry) {
            to.push(Action::Rerun { job });
        }
    }
}

fn working(config: &Config, world: &World, process: usize, memory: &Process, to: &mut Vec<Action>) {
    let Some(claim) = &memory.claim else {
        if memory.row.may_claim().is_ok() {
            for (at, _) in world.tasks().filter(|(_, row)| row.task.state.name() == Name::Ready) {
                to.push(Action::Claim { process, at, is_heard: true });
                if config.faults.loss {
                    to.push(Action::Claim { process, at, is_heard: false });
                }
            }
        }
        return;
    };
    let is_under_way = |word: &Word| world.mail.iter().any(|l| l.token == claim.token && l.word == *word);
    if world.mail.len() < config.mail {
        let words = words(config, memory, claim.step).into_iter().filter(|word| !is_under_way(word));
        to.extend(words.map(|word| Action::Say { process, word }));
    }
}

/// What a process may say of its claim. Once it has made up its mind, it says the same until it is heard.
fn words(config: &Config, memory: &Process, step: Step) -> Vec<Word> {
    let mut words = vec![Word::Progress(0)];
    if config.stall.is_some() {
        words.push(Word::Progress(1));
    }
    match step {
        Step::Reporting(word) => words.push(word),
        Step::Working => {
            words.push(Word::Commit);
            if config.faults.failure {
                words.extend([Word::Fail(failure::Kind::Transient), Word::Fail(failure::Kind::Permanent)]);
            }
            if memory.row.status == Status::Draining {
                words.push(Word::Fail(failure::Kind::Drained));
            }
        }
    }
    words
}

fn fleet(config: &Config, process: usize, memory: &Process, to: &mut Vec<Action>) {
    let running = u32::from(memory.claim.is_some());
    let is_due = |command: &worker::Command| match command {
        worker::Command::Drain => config.faults.drain,
        _ => config.faults.fleet,
    };
    let commands = [
        worker::Command::Drain,
        worker::Command::Heartbeat { running, is_draining: false },
        worker::Command::Heartbeat { running, is_draining: true },
        worker::Command::Check { threshold: TICK },
        worker::Command::Leave,
        worker::Command::Disable,
        worker::Command::Enable,
    ];
    let is_accepted = |command: &worker::Command| worker::decide(&memory.row, *command, NOW).is_ok();
    let commands = commands.into_iter().filter(is_due).filter(is_accepted);
    to.extend(commands.map(|command| Action::Fleet { process, command }));
}
