//! What can happen next in a given world.

use crate::action::{Action, Duty};
use crate::config::Config;
use crate::world::{NOW, Process, Step, TICK, Word, World};
use rules::task::Name;
use rules::worker::{self, Status};
use rules::{failure, job};

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
        let is_lost = config.flaw.takes_for_dead(&row.task);
        let is_known = |duty: &Duty| is_lost || !matches!(duty, Duty::LoseWorker(_));
        let is_accepted =
            |duty: &Duty| is_known(duty) && config.flaw.decide(&row.task, &duty.command()).is_ok();
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
    if config.faults.keeps {
        words.push(Word::Keep);
    }
    match step {
        Step::Reporting(word) => words.push(word),
        Step::Working => {
            words.push(Word::Commit);
            if config.faults.failure {
                words.extend([Word::Fail(failure::Kind::Transient), Word::Fail(failure::Kind::Permanent)]);
            }
            if config.faults.storage {
                words.extend([failure::Kind::StorageAway, failure::Kind::Rejected].map(Word::Fail));
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
