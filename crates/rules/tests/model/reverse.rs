//! "From every reachable world each job can still end" — a question the checker has no words for. All
//! reachable worlds are found going forwards; then, going backwards from the worlds in which the job has
//! ended, those from which the ordinary course of things leads there. What is left over is stuck.

use crate::action::Action;
use crate::config::{Config, Shape};
use crate::hash::hash;
use crate::mill::{Mill, tell};
use crate::world::{Job, World};
use rules::job::Outcome;
use rules::task::{Next, State};
use stateright::Model;
use std::collections::{HashMap, VecDeque};

pub const CAN_END: &str = "INV_004: each job can still end";
pub const CAN_COMPLETE: &str = "each job that has attempts left can still complete";

/// How many worlds there are; or the way into one in which some job is stuck, and what it can no longer do.
pub fn check(config: Config) -> Result<usize, (&'static str, Vec<Action>)> {
    let mill = Mill(config);
    let graph = Graph::explore(&mill);
    for broken in [CAN_END, CAN_COMPLETE] {
        for job in 0..mill.0.jobs.len() {
            if let Some(stuck) = graph.first_stuck(job, broken) {
                let trace = graph.way_to(&mill, stuck);
                tell(&mill, "broken", broken, &trace);
                return Err((broken, trace));
            }
        }
    }
    Ok(graph.worlds.len())
}

struct Graph {
    /// In the order in which they were found, nearest first.
    worlds: Vec<Node>,
    /// From, to; only the ordinary course of things.
    steps: Vec<(u32, u32)>,
}

struct Node {
    /// Where it was found from, and by which of the actions possible there.
    found_from: u32,
    by: u16,
    jobs: Vec<Facts>,
}

#[derive(Clone, Copy)]
struct Facts {
    has_ended: bool,
    has_completed: bool,
    has_hope: bool,
}

impl Graph {
    fn explore(mill: &Mill) -> Graph {
        let start = World::new(&mill.0);
        let mut known = HashMap::from([(hash(&start), 0)]);
        let mut graph = Graph { worlds: vec![Node::new(mill, &start, 0, 0)], steps: vec![] };
        let mut waiting = VecDeque::from([(0, start)]);
        let mut actions = Vec::new();
        while let Some((from, world)) = waiting.pop_front() {
            mill.actions(&world, &mut actions);
            for (by, action) in actions.drain(..).enumerate() {
                let Some(next) = mill.next_state(&world, action) else { continue };
                let to = *known.entry(hash(&next)).or_insert_with(|| {
                    let new = graph.worlds.len() as u32;
                    graph.worlds.push(Node::new(mill, &next, from, by as u16));
                    waiting.push_back((new, next));
                    new
                });
                if action.is_ordinary(&world) {
                    graph.steps.push((from, to));
                }
            }
        }
        graph
    }

    fn first_stuck(&self, job: usize, promise: &str) -> Option<usize> {
        let facts = |world: usize| self.worlds[world].jobs[job];
        if promise == CAN_END {
            let leads = self.leading_to(|facts| facts[job].has_ended);
            (0..leads.len()).find(|&world| !leads[world])
        } else {
            let leads = self.leading_to(|facts| facts[job].has_completed);
            (0..leads.len()).find(|&world| facts(world).has_hope && !leads[world])
        }
    }

    /// Which worlds can come to one that is wanted.
    fn leading_to(&self, is_wanted: impl Fn(&[Facts]) -> bool) -> Vec<bool> {
        let mut leads: Vec<bool> = self.worlds.iter().map(|node| is_wanted(&node.jobs)).collect();
        let mut waiting: Vec<u32> = (0..leads.len() as u32).filter(|&world| leads[world as usize]).collect();
        let (starts, sources) = self.sources_by_target();
        while let Some(to) = waiting.pop() {
            let to = to as usize;
            for &from in &sources[starts[to]..starts[to + 1]] {
                if !std::mem::replace(&mut leads[from as usize], true) {
                    waiting.push(from);
                }
            }
        }
        leads
    }

    /// All sources, ordered by target, and where each target's begin.
    fn sources_by_target(&self) -> (Vec<usize>, Vec<u32>) {
        let mut starts = vec![0; self.worlds.len() + 1];
        for (_, to) in &self.steps {
            starts[*to as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut free = starts.clone();
        let mut sources = vec![0; self.steps.len()];
        for (from, to) in &self.steps {
            sources[free[*to as usize]] = *from;
            free[*to as usize] += 1;
        }
        (starts, sources)
    }

    fn way_to(&self, mill: &Mill, world: usize) -> Vec<Action> {
        let mut choices = Vec::new();
        let mut at = world;
        while at != 0 {
            choices.push(self.worlds[at].by);
            at = self.worlds[at].found_from as usize;
        }
        let mut world = World::new(&mill.0);
        let mut way = Vec::new();
        for choice in choices.into_iter().rev() {
            let mut actions = Vec::new();
            mill.actions(&world, &mut actions);
            let action = actions[choice as usize];
            way.push(action);
            world = mill.next_state(&world, action).expect("it did when it was explored");
        }
        way
    }
}

impl Node {
    fn new(mill: &Mill, world: &World, found_from: u32, by: u16) -> Self {
        let jobs = world.jobs.iter().zip(&mill.0.jobs).map(|(job, shape)| Facts::of(job, shape)).collect();
        Node { found_from, by, jobs }
    }
}

impl Facts {
    fn of(job: &Job, shape: &Shape) -> Self {
        let is_required = |stage: usize| !shape.0[stage].is_optional;
        let can_run_again = |state: &State, has_attempts: bool| match state {
            State::New | State::Ready { .. } | State::Done { .. } => true,
            State::Running { .. } => has_attempts,
            State::Error { next, .. } => matches!(next, Next::RetryAt(_)),
        };
        let mut required = job.tasks(0).filter(|(at, _)| is_required(at.stage)).map(|(_, row)| &row.task);
        Facts {
            has_ended: job.outcome.is_some(),
            has_completed: job.outcome == Some(Outcome::Completed),
            has_hope: job.outcome.is_none()
                && required.all(|task| can_run_again(&task.state, task.attempts < task.max_attempts)),
        }
    }
}
