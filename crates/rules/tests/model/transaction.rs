//! One database transaction: what the rules decide is saved together with its events, and audited at the end.

use crate::action::Action;
use crate::config::Config;
use crate::world::{At, World};
use crate::{audit, names};
use rules::job::Outcome;
use rules::task::{Command, Event, Refusal};

pub struct Transaction<'a> {
    config: &'a Config,
    before: &'a World,
    pub world: World,
    events: Vec<(At, Event)>,
}

impl<'a> Transaction<'a> {
    pub fn begin(config: &'a Config, before: &'a World) -> Self {
        Transaction { config, before, world: before.clone(), events: vec![] }
    }

    /// Lets the rules decide. A commit publishes its output in the transaction that commits it.
    pub fn say(&mut self, at: At, command: &Command) -> Result<(), Refusal> {
        let row = self.world.at_mut(at);
        let change = self.config.flaw.decide(&row.task, command)?;
        row.task = change.task;
        if let Command::Commit { token } = command {
            row.effects.push(*token);
        }
        self.events.push((at, change.event));
        Ok(())
    }

    /// As [`Self::say`], to those tasks of a job to which it applies.
    pub fn say_to_all(&mut self, job: usize, command: &Command) {
        let tasks: Vec<At> = self.world.jobs[job].tasks(job).map(|(at, _)| at).collect();
        for at in tasks {
            let _: Result<(), Refusal> = self.say(at, command);
        }
    }

    /// Closes the jobs that have ended, and has the auditor look at it all.
    pub fn commit(mut self, action: &Action) -> World {
        for job in 0..self.world.jobs.len() {
            self.close(job);
        }
        self.world.breach = audit::find_breach(self.config, self.before, &self.world, &self.events, action);
        for (at, _) in &self.events {
            self.world.at_mut(*at).forget_fence();
        }
        if self.config.merges_alike {
            names::sort(&mut self.world);
        }
        names::number_tokens(&mut self.world);
        self.world
    }

    fn close(&mut self, job: usize) {
        let state = self.world.jobs[job].state(&self.config.jobs[job]);
        let outcome = Outcome::ALL.iter().find(|outcome| outcome.state() == state).copied();
        if self.world.jobs[job].outcome.is_none()
            && matches!(outcome, Some(Outcome::Failed | Outcome::Cancelled))
        {
            self.say_to_all(job, &Command::Withdraw);
        }
        self.world.jobs[job].outcome = outcome;
    }
}
