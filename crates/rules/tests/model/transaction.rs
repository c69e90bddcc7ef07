//! One database transaction: what the rules decide is saved move by move, and audited.

use crate::action::Action;
use crate::audit::{self, Breach};
use crate::config::Config;
use crate::names;
use crate::world::{At, World};
use rules::execution::Status;
use rules::failure;
use rules::job::Outcome;
use rules::task::{Command, Event, Name, Refusal, State};

pub struct Transaction<'a> {
    config: &'a Config,
    action: &'a Action,
    before: &'a World,
    pub world: World,
    events: Vec<(At, Event)>,
    breach: Option<Breach>,
}

impl<'a> Transaction<'a> {
    pub fn begin(config: &'a Config, before: &'a World, action: &'a Action) -> Self {
        Transaction { config, action, before, world: before.clone(), events: vec![], breach: None }
    }

    /// Lets the rules decide. A commit publishes its output in the transaction that commits it.
    pub fn make(&mut self, at: At, command: &Command) -> Result<(), Refusal> {
        let row = self.world.at_mut(at);
        let change = self.config.flaw.decide(&row.task, command)?;
        let before = row.clone();
        row.task = change.task;
        if let Command::Commit { token } = command {
            row.effects.push(*token);
        }
        row.is_withdrawn = *command == Command::Withdraw && before.task.state.name() == Name::Error;
        let of_move = || audit::of_move(&change.event, &before, row, self.action);
        self.breach = self.breach.or_else(of_move);
        row.forget_growth();
        self.events.push((at, change.event));
        Ok(())
    }

    /// As [`Self::make`] for a failure that a process reports.
    pub fn fail(&mut self, at: At, command: &Command, from: usize) -> Result<(), Refusal> {
        self.make(at, command)?;
        let failure = self.events.last().and_then(|(_, event)| event.failure);
        let row = self.world.at_mut(at);
        self.breach = self.breach.or_else(|| audit::of_witness(command, failure, row, from));
        if failure == Some(failure::Kind::Unconfirmed) {
            row.doubted_by.insert(from);
        }
        Ok(())
    }

    /// As [`Self::make`] for a worker's word: the first one says that it has begun, whatever else it says.
    /// Both moves are made, or neither.
    pub fn make_begun(&mut self, at: At, command: &Command) -> Result<(), Refusal> {
        let (before, made, breach) = (self.world.at(at).clone(), self.events.len(), self.breach);
        let begun = match (&before.task.state, command.token()) {
            (State::Running { execution: Status::Leased, .. }, Some(token)) => {
                self.make(at, &Command::Start { token })
            }
            _ => Ok(()),
        };
        begun.and_then(|()| self.make(at, command)).inspect_err(|_| {
            *self.world.at_mut(at) = before;
            self.events.truncate(made);
            self.breach = breach;
        })
    }

    /// Closes the jobs that have ended, and has the auditor look at it all. None where nothing changed.
    pub fn commit(mut self) -> Option<World> {
        for job in 0..self.world.jobs.len() {
            self.close(job);
        }
        let of_all = || audit::of_all(self.config, self.before, &self.world, &self.events, self.action);
        self.world.breach = self.breach.or_else(of_all);
        if self.world == *self.before {
            return None;
        }
        if self.config.merges_alike {
            names::sort(&mut self.world);
        }
        names::number_tokens(&mut self.world);
        Some(self.world)
    }

    fn close(&mut self, job: usize) {
        let state = self.world.jobs[job].state(&self.config.jobs[job]);
        let outcome = Outcome::ALL.iter().find(|outcome| outcome.state() == state).copied();
        let was_open = self.world.jobs[job].outcome.is_none();
        if was_open && matches!(outcome, Some(Outcome::Failed | Outcome::Cancelled)) {
            let tasks: Vec<At> = self.world.jobs[job].tasks(job).map(|(at, _)| at).collect();
            for at in tasks {
                let _nothing_to_withdraw = self.make(at, &Command::Withdraw);
            }
        }
        self.world.jobs[job].outcome = outcome;
    }
}
