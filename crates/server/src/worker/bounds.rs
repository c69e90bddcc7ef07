//! What a worker says of itself and its work, cut to what people can read and cleaned of what a terminal would obey.

use wire::StepRecord;
use wire::http::Description;
use wire::text::{clean, clean_name};

const NAME: usize = 200;
const MESSAGE: usize = 8 << 10;
const COMMAND: usize = 32 << 10;
const OUTPUT: usize = 64 << 10;

/// Of one worker process; with more machines come more keys.
const MOST_SLOTS: u32 = 64;

/// Commands of one execution; those after them are dropped.
const MOST_STEPS: usize = 500;

pub fn step(text: &str) -> String {
    clean_name(text, NAME)
}

pub fn message(text: &str) -> String {
    clean(text, MESSAGE)
}

pub fn description(said: &Description) -> Description {
    Description {
        hostname: clean_name(&said.hostname, NAME),
        version: clean_name(&said.version, NAME),
        slots: said.slots.min(MOST_SLOTS),
        ..said.clone()
    }
}

pub fn steps(mut steps: Vec<StepRecord>) -> Vec<StepRecord> {
    steps.truncate(MOST_STEPS);
    for step in &mut steps {
        step.kind = clean_name(&step.kind, NAME);
        step.command = clean(&step.command, COMMAND);
        step.stdout_tail = clean(&step.stdout_tail, OUTPUT);
        step.stderr_tail = clean(&step.stderr_tail, OUTPUT);
        step.error = step.error.as_deref().map(message);
    }
    steps
}
