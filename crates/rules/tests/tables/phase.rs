use crate::machine::{Describe, Group};
use crate::page::NOTHING;
use rules::phase::{Phase, Refusal, Trigger, next};

pub struct Machine;

impl Describe for Machine {
    type State = Phase;
    type Command = Trigger;
    type Refusal = Refusal;

    const TITLE: &'static str = "Worker's loop";
    const FIRST: &'static str = "Startup";
    const INTRODUCTION: &'static str = "
What a worker process is doing, after document 004 (the state machine of the worker module). Not stored as a
truth: each heartbeat reports the phase, to be shown and counted. `Claiming → Polling` stands in 004's list
and is missing from its table; here it is a move. A dot: nothing leads from there by that.";

    fn states() -> Vec<(String, Phase)> {
        Phase::ALL.iter().map(|phase| (phase.to_string(), *phase)).collect()
    }

    fn commands() -> Vec<Group<Trigger>> {
        vec![(
            "What leads from one phase to the next:",
            Trigger::ALL.iter().map(|trigger| (trigger.to_string(), *trigger)).collect(),
        )]
    }

    fn decide(phase: &Phase, trigger: &Trigger) -> Result<Phase, Refusal> {
        next(*phase, *trigger)
    }

    fn word(phase: &Phase) -> String {
        phase.to_string()
    }

    fn verb(trigger: &Trigger) -> String {
        trigger.to_string()
    }

    fn refusal(_: &Refusal) -> String {
        NOTHING.into()
    }
}
