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

/// All commands of one execution together, with what they printed. The last ones are kept: where work fails, they say why.
const STEPS_BYTES: usize = 512 << 10;

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
    let mut left = STEPS_BYTES;
    let fits = |step: &&StepRecord| match left.checked_sub(size(step)) {
        Some(less) => {
            left = less;
            true
        }
        None => false,
    };
    let kept = steps.iter().rev().take_while(fits).count();
    steps.split_off(steps.len() - kept)
}

fn size(step: &StepRecord) -> usize {
    let error = step.error.as_deref().unwrap_or_default();
    let texts = [step.kind.as_str(), &step.command, &step.stdout_tail, &step.stderr_tail, error];
    texts.map(str::len).iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_steps_are_kept_up_to_a_limit() {
        let printed = |tail: &str| StepRecord { stderr_tail: tail.repeat(OUTPUT), ..StepRecord::default() };
        let said: Vec<StepRecord> = ["a", "b", "c"].iter().cycle().take(20).map(|it| printed(it)).collect();

        let kept = steps(said.clone());

        assert_eq!(kept.len(), STEPS_BYTES / OUTPUT);
        assert_eq!(kept.last().map(|it| &it.stderr_tail), said.last().map(|it| &it.stderr_tail));
        assert_eq!(steps(said[..3].to_vec()).len(), 3);
    }
}
