//! The model as the checker sees it, and what is asked of the checker.

use crate::action::Action;
use crate::config::Config;
use crate::possible::possible;
use crate::properties;
use crate::step::perform;
use crate::world::World;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};
use std::collections::BTreeSet;

#[derive(Clone)]
pub struct Mill(pub Config);

impl Model for Mill {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.breach.is_none() {
            possible(&self.0, world, actions);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        perform(&self.0, world, &action)
    }

    fn format_action(&self, action: &Action) -> String {
        action.sentence(&self.0.jobs)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}

/// Walks every reachable world, and returns how many there are. Every property must hold.
pub fn check(config: Config) -> usize {
    let checker = Mill(config).checker().threads(2).spawn_bfs().join();
    let found = checker.discoveries();
    for property in properties::all() {
        match (property.expectation, found.contains_key(property.name)) {
            (Expectation::Always, true) => {
                shortest_trace(checker.model().0.clone(), property.name);
                panic!("{}: broken: {}", checker.model().0.name, property.name);
            }
            (Expectation::Sometimes, false) => panic!("{}: never: {}", checker.model().0.name, property.name),
            (Expectation::Always | Expectation::Sometimes | Expectation::Eventually, _) => {}
        }
    }
    checker.unique_state_count()
}

/// The shortest way to break `property`, or to an example of one that must sometimes hold, told as sentences.
///
/// The checker stops some worlds after its first finding and keeps the last, so it is asked again for a
/// shorter one until there is none.
pub fn shortest_trace(config: Config, property: &'static str) -> Option<Vec<Action>> {
    let mill = Mill(Config { merges_alike: false, ..config });
    let mut shortest: Option<Vec<Action>> = None;
    loop {
        let wanted = HasDiscoveries::AllOf(BTreeSet::from([property]));
        let checker = mill.clone().checker().finish_when(wanted);
        // A path of n actions ends at depth n + 1, and the checker stays above its target.
        let checker = match &shortest {
            Some(trace) => checker.target_max_depth(trace.len() + 1),
            None => checker,
        };
        match checker.spawn_bfs().join().discovery(property) {
            Some(path) => shortest = Some(path.into_actions()),
            None => break,
        }
    }
    if let Some(trace) = &shortest {
        let verdict = match mill.property(property).expectation {
            Expectation::Sometimes => "an example",
            Expectation::Always | Expectation::Eventually => "broken",
        };
        tell(&mill, verdict, property, trace);
    }
    shortest
}

pub fn tell(mill: &Mill, verdict: &str, property: &str, trace: &[Action]) {
    println!("\n{}: {verdict} after {} steps: {property}", mill.0.name, trace.len());
    for (at, action) in trace.iter().enumerate() {
        println!("{:>4}. {}", at + 1, mill.format_action(action));
    }
}
