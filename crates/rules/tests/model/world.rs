//! All there is at one moment: the database's rows, the workers' memories, and the words under way.
//!
//! Time stands still at [`NOW`]; a tick moves every stored time into the past instead, so that the world
//! stays finite. Tokens and worker ids are named afresh in each world, for only their equality means
//! anything.

use crate::audit::Breach;
use crate::config::{Config, Part, Shape};
use rules::job::{self, Facts, Outcome};
use rules::stage::{Progress, releasable};
use rules::task::{Next, State, Task};
use rules::worker::Worker;
use rules::{Fence, Millis, Token, WorkerId, execution, failure};
use std::collections::BTreeSet;

pub const NOW: Millis = Millis(1000);
/// Leases, backoffs and the patience with a silent worker are all one tick long.
pub const TICK: Millis = Millis(1);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct World {
    pub jobs: Vec<Job>,
    pub processes: Vec<Process>,
    /// Sorted; a word that arrives twice is one that stays under way when it arrives.
    pub mail: Vec<Letter>,
    /// What the step that led here did wrong.
    pub breach: Option<Breach>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Job {
    pub is_cancelled: bool,
    pub outcome: Option<Outcome>,
    pub stages: Vec<StageRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct StageRow {
    pub is_expanded: bool,
    pub is_released: bool,
    pub tasks: Vec<TaskRow>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaskRow {
    pub task: Task,
    /// Whose outputs are visible to the world.
    pub effects: Vec<Token>,
    /// Its error was withdrawn with the job and never judged, so it is not given up.
    pub is_withdrawn: bool,
    /// The workers that reported a permanent failure of it, and that no other confirmed.
    pub doubted_by: BTreeSet<usize>,
}

/// Where a task stands: job, stage, position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    pub job: usize,
    pub stage: usize,
    pub task: usize,
}

/// A worker process. Its place is taken by a new incarnation when it dies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Process {
    /// What the fleet knows of it.
    pub row: Worker,
    /// What it remembers.
    pub claim: Option<Claim>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    pub at: At,
    pub token: Token,
    pub step: Step,
}

/// How far a process is with its claim, as far as it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    Working,
    /// It has made up its mind, and says so until it hears an answer.
    Reporting(Word),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// Renews the lease of work that has got so far.
    Progress(i64),
    /// As progress, and says that the next execution can continue from more than before.
    Keep,
    Commit,
    Fail(failure::Kind),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Letter {
    pub at: At,
    pub word: Word,
    pub from: usize,
    pub token: Token,
}

impl World {
    pub fn new(config: &Config) -> Self {
        let job = |shape: &Shape| Job {
            is_cancelled: false,
            outcome: None,
            stages: shape.0.iter().map(|part| StageRow::new(part, config.max_attempts)).collect(),
        };
        World {
            jobs: config.jobs.iter().map(job).collect(),
            processes: vec![Process::new(); config.processes],
            mail: vec![],
            breach: None,
        }
    }

    pub fn tasks(&self) -> impl Iterator<Item = (At, &TaskRow)> {
        self.jobs.iter().enumerate().flat_map(|(job, rows)| rows.tasks(job))
    }

    pub fn at(&self, at: At) -> &TaskRow {
        &self.jobs[at.job].stages[at.stage].tasks[at.task]
    }

    pub fn at_mut(&mut self, at: At) -> &mut TaskRow {
        &mut self.jobs[at.job].stages[at.stage].tasks[at.task]
    }

    pub fn rows_mut(&mut self) -> impl Iterator<Item = &mut TaskRow> {
        self.jobs.iter_mut().flat_map(|job| &mut job.stages).flat_map(|stage| &mut stage.tasks)
    }

    /// A new incarnation takes the place of a process; what the old one leased belongs to the dead.
    pub fn replace(&mut self, process: usize) {
        for row in self.rows_mut() {
            if let State::Running { lease, .. } = &mut row.task.state
                && lease.worker == worker_id(process)
            {
                lease.worker = DEAD;
            }
        }
        self.processes[process] = Process::new();
    }

    /// One tick passes. A time no rule can tell from a later one stays where it is.
    pub fn tick(&mut self, config: &Config) {
        for row in self.rows_mut() {
            match &mut row.task.state {
                State::Running { lease, .. } => {
                    age(&mut lease.expires_at, Millis(0));
                    age(&mut lease.progressed_at, config.stall.unwrap_or_default());
                }
                State::Error { next: Next::RetryAt(at), .. } => age(at, Millis(0)),
                State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. } => {}
            }
        }
        if config.faults.fleet {
            for process in &mut self.processes {
                age(&mut process.row.registered_at, TICK);
                process.row.last_heartbeat.iter_mut().for_each(|at| age(at, TICK));
            }
        }
    }
}

fn age(time: &mut Millis, oldest: Millis) {
    *time = (*time - TICK).max(NOW - oldest);
}

impl Job {
    pub fn tasks(&self, job: usize) -> impl Iterator<Item = (At, &TaskRow)> {
        self.stages.iter().enumerate().flat_map(move |(stage, row)| {
            row.tasks.iter().enumerate().map(move |(task, row)| (At { job, stage, task }, row))
        })
    }

    pub fn state(&self, shape: &Shape) -> job::State {
        job::derive(self.facts(shape))
    }

    fn facts(&self, shape: &Shape) -> Facts {
        let rows = || self.stages.iter().zip(&shape.0);
        Facts {
            is_cancelled: self.is_cancelled,
            has_failed: rows()
                .any(|(row, part)| !part.is_optional && row.tasks.iter().any(TaskRow::is_given_up)),
            has_begun: self.tasks(0).any(|(_, row)| row.task.state.execution().is_some()),
            phase: rows()
                .filter(|(row, part)| !row.progress(part).is_finished())
                .map(|(_, part)| part.stage.phase)
                .min(),
        }
    }

    /// Whether its submission is still to come.
    pub fn is_new(&self) -> bool {
        self.outcome.is_none() && self.stages.iter().all(|stage| !stage.is_released)
    }

    pub fn releasable(&self, shape: &Shape) -> Vec<usize> {
        let stages: Vec<(&[usize], Progress)> = self
            .stages
            .iter()
            .zip(&shape.0)
            .map(|(row, part)| (part.stage.needs.as_slice(), row.progress(part)))
            .collect();
        releasable(&stages)
    }
}

impl StageRow {
    fn new(part: &Part, max_attempts: u32) -> Self {
        let mut row = StageRow { is_expanded: false, is_released: false, tasks: vec![] };
        if part.stage.expands.is_none() {
            row.expand(part, max_attempts);
        }
        row
    }

    pub fn expand(&mut self, part: &Part, max_attempts: u32) {
        let task = TaskRow {
            task: Task::new(max_attempts),
            effects: vec![],
            is_withdrawn: false,
            doubted_by: BTreeSet::new(),
        };
        self.tasks = vec![task; part.tasks];
        self.is_expanded = true;
    }

    pub fn progress(&self, part: &Part) -> Progress {
        let is_closed = |row: &TaskRow| row.is_settled() || (part.is_optional && row.is_given_up());
        Progress {
            is_expanded: self.is_expanded,
            is_released: self.is_released,
            open: self.tasks.iter().filter(|row| !is_closed(row)).count() as u32,
        }
    }
}

impl TaskRow {
    pub fn is_settled(&self) -> bool {
        self.task.state.execution() == Some(execution::Status::Done)
    }

    pub fn is_given_up(&self) -> bool {
        matches!(self.task.state, State::Error { next: Next::Final, .. }) && !self.is_withdrawn
    }

    /// What grows for ever, and rules only compare with less: it is checked as it grows, and then set back.
    pub fn forget_growth(&mut self) {
        self.task.fence = Fence(0);
        self.task.kept = 0;
    }
}

impl Process {
    pub fn new() -> Self {
        Process { row: Worker::register(NOW), claim: None }
    }
}

/// Whose leases are those of processes that have died.
pub const DEAD: WorkerId = WorkerId(uuid::Uuid::nil());

pub fn worker_id(process: usize) -> WorkerId {
    WorkerId(uuid::Uuid::from_u128(process as u128 + 1))
}
