//! Looks at one transaction from outside: is each difference between two worlds explained by one event, and
//! is each event a move the documents allow? The table here is written by hand, from 000 and 002, and knows
//! nothing of the rules' code.

use crate::action::Action;
use crate::config::Config;
use crate::world::{At, DEAD, Job, NOW, TaskRow, World};
use rules::execution::Status::{self, Aborted, Committed, Done, InProgress, Leased};
use rules::failure;
use rules::job;
use rules::task::Name::{self, Error, New, Ready, Running};
use rules::task::Role::{self, Orchestrator, Worker};
use rules::task::{Command, Event, State, Task};

/// What can be wrong with a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Breach {
    IllegalMove,
    WrongRole,
    Unaudited,
    CommitLost,
    CommitWithoutLease,
    LiveLeaseTaken,
    Miscounted,
    JobAgainstItsTable,
    ClaimedWhileClosed,
    FailedByOneRemoteWord,
}

type Move = (&'static str, Role, Name, Name, Option<(Option<Status>, Status)>);

/// Who may move a task from where to where, and what that does to its execution.
const LEGAL: &[Move] = &[
    ("advance", Orchestrator, New, Ready, None),
    ("claim", Worker, Ready, Running, Some((None, Leased))),
    ("start", Worker, Running, Running, Some((Some(Leased), InProgress))),
    ("renew", Worker, Running, Running, None),
    ("commit", Worker, Running, Name::Done, Some((Some(InProgress), Committed))),
    ("fail", Worker, Running, Error, Some((Some(Leased), Aborted))),
    ("fail", Worker, Running, Error, Some((Some(InProgress), Aborted))),
    ("settle", Orchestrator, Name::Done, Name::Done, Some((Some(Committed), Done))),
    ("recover", Orchestrator, Running, Ready, Some((Some(Leased), Aborted))),
    ("recover", Orchestrator, Running, Ready, Some((Some(InProgress), Aborted))),
    ("recover", Orchestrator, Running, Error, Some((Some(Leased), Aborted))),
    ("recover", Orchestrator, Running, Error, Some((Some(InProgress), Aborted))),
    ("lose_worker", Orchestrator, Running, Error, Some((Some(Leased), Aborted))),
    ("lose_worker", Orchestrator, Running, Error, Some((Some(InProgress), Aborted))),
    ("retry", Orchestrator, Error, Ready, None),
    ("judge", Orchestrator, Error, Error, None),
    ("rerun", Orchestrator, Error, Ready, None),
    ("withdraw", Orchestrator, Ready, New, None),
    ("withdraw", Orchestrator, Running, New, Some((Some(Leased), Aborted))),
    ("withdraw", Orchestrator, Running, New, Some((Some(InProgress), Aborted))),
    ("withdraw", Orchestrator, Error, Error, None),
];

/// One remote worker never makes a failure permanent, however often it reports it.
pub fn of_witness(
    command: &Command,
    failure: Option<failure::Kind>,
    row: &TaskRow,
    from: usize,
) -> Option<Breach> {
    let is_remote = matches!(command, Command::Fail { witness: failure::Witness::Remote(_), .. });
    let is_permanent = failure == Some(failure::Kind::Permanent);
    let is_confirmed = row.doubted_by.iter().any(|&worker| worker != from);
    (is_remote && is_permanent && !is_confirmed).then_some(Breach::FailedByOneRemoteWord)
}

/// What is wrong with one move.
pub fn of_move(event: &Event, before: &TaskRow, after: &TaskRow, action: &Action) -> Option<Breach> {
    illegal(event, before, after, action)
        .or_else(|| miscounted(event, &before.task, &after.task))
        .or_else(|| commit_lost(before, after))
}

/// What is wrong with a transaction as a whole.
pub fn of_all(
    config: &Config,
    before: &World,
    after: &World,
    events: &[(At, Event)],
    action: &Action,
) -> Option<Breach> {
    unexplained(config, before, after, events, action)
        .or_else(|| before.tasks().find_map(|(at, row)| commit_lost(row, after.at(at))))
        .or_else(|| jobs_against_their_table(config, before, after, action))
        .or_else(|| claimed_while_closed(before, action))
}

fn illegal(event: &Event, before: &TaskRow, after: &TaskRow, action: &Action) -> Option<Breach> {
    let told: Move = (event.command, event.role, event.from, event.to, event.execution);
    let names = (before.task.state.name(), after.task.state.name());
    let lease_was_live = match &before.task.state {
        State::Running { lease, .. } => lease.is_live(NOW),
        State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. } => false,
    };
    if action.role() != Some(event.role) {
        Some(Breach::WrongRole)
    } else if !LEGAL.contains(&told) {
        Some(Breach::IllegalMove)
    } else if (event.from, event.to) != names || event.execution != what_became_of_it(before, after) {
        Some(Breach::Unaudited)
    } else if event.command == "commit" && !(lease_was_live && is_word_of_holder(action, &before.task)) {
        Some(Breach::CommitWithoutLease)
    } else if (event.command == "recover" && lease_was_live)
        || (event.command == "lose_worker" && !is_of_the_dead(&before.task))
    {
        Some(Breach::LiveLeaseTaken)
    } else {
        None
    }
}

fn what_became_of_it(before: &TaskRow, after: &TaskRow) -> Option<(Option<Status>, Status)> {
    match (before.task.state.execution(), after.task.state.execution()) {
        (old, Some(new)) if old != Some(new) => Some((old, new)),
        (Some(old), None) => Some((Some(old), Aborted)),
        (Some(_) | None, _) => None,
    }
}

fn is_word_of_holder(action: &Action, task: &Task) -> bool {
    match (action, &task.state) {
        (Action::Deliver { letter, .. }, State::Running { lease, .. }) => letter.token == lease.token,
        _ => false,
    }
}

fn is_of_the_dead(task: &Task) -> bool {
    matches!(&task.state, State::Running { lease, .. } if lease.worker == DEAD)
}

/// A claim counts an attempt and raises the fence; only work given back or withdrawn takes the attempt back, or a lost
/// worker's that left durable progress, and only a person's retry begins a new count.
fn miscounted(event: &Event, before: &Task, after: &Task) -> Option<Breach> {
    let ended_without_counting = matches!(
        event.failure,
        Some(
            failure::Kind::Unconfirmed
                | failure::Kind::Rejected
                | failure::Kind::Drained
                | failure::Kind::StorageAway
                | failure::Kind::DiskFull
                | failure::Kind::Interrupted
                | failure::Kind::Withdrawn
        )
    );
    let attempts = match event.command {
        "claim" => before.attempts + 1,
        "rerun" => 0,
        _ if ended_without_counting => before.attempts - 1,
        _ => before.attempts,
    };
    let has_kept = matches!(&before.state, State::Running { lease, .. } if lease.has_kept);
    let is_spared_in_vain = event.failure == Some(failure::Kind::Interrupted) && !has_kept;
    let fence = before.fence.0 + i64::from(event.command == "claim");
    let is_failure_told = event.failure.is_some() == matches!(event.execution, Some((_, Aborted)));
    let is_right =
        (attempts, fence, before.max_attempts) == (after.attempts, after.fence.0, after.max_attempts);
    (!is_right || !is_failure_told || is_spared_in_vain).then_some(Breach::Miscounted)
}

/// What a cancel's settling released, the cancel withdraws.
const RELEASED_IN_VAIN: [&str; 2] = ["advance", "withdraw"];

/// Each task that differs must have one event — or two, where the first says that it has begun — and a task
/// that is new must come from a plan settled just now.
fn unexplained(
    config: &Config,
    before: &World,
    after: &World,
    events: &[(At, Event)],
    action: &Action,
) -> Option<Breach> {
    let is_explained = |(at, row): (At, &TaskRow)| {
        let told = events.iter().filter(|(of, _)| *of == at).map(|(_, event)| event.command);
        let told: Vec<&str> = told.skip_while(|command| *command == "start").collect();
        let told = if told == RELEASED_IN_VAIN { 0 } else { told.len() };
        match before.jobs[at.job].stages[at.stage].tasks.get(at.task) {
            None => is_new(row, told) && is_expanded_now(config, events, at),
            // Time and death change no state: only how old a lease is, and whether its owner lives.
            Some(old) if matches!(action, Action::Tick | Action::Restart { .. }) => {
                told == 0 && is_same(old, row)
            }
            // A renewal may find the lease as long as it can be.
            Some(old) => told == 1 || (told == 0 && old == row),
        }
    };
    let none_vanished = before.tasks().count() <= after.tasks().count();
    (!none_vanished || !after.tasks().all(is_explained)).then_some(Breach::Unaudited)
}

fn is_new(row: &TaskRow, told: usize) -> bool {
    match row.task.state {
        State::New => told == 0,
        State::Ready { .. } => told == 1,
        State::Running { .. } | State::Done { .. } | State::Error { .. } => false,
    }
}

fn is_expanded_now(config: &Config, events: &[(At, Event)], at: At) -> bool {
    let plan = config.jobs[at.job].0[at.stage].stage.expands;
    events.iter().any(|(of, event)| of.job == at.job && Some(of.stage) == plan && event.command == "settle")
}

fn is_same(old: &TaskRow, new: &TaskRow) -> bool {
    let essence = |row: &TaskRow| {
        let state = &row.task.state;
        (state.name(), state.execution(), row.task.attempts, row.task.max_attempts, row.effects.clone())
    };
    essence(old) == essence(new)
}

/// Once committed, always committed: by the same execution, with the same effect.
fn commit_lost(before: &TaskRow, after: &TaskRow) -> Option<Breach> {
    let State::Done { token, execution } = &before.task.state else { return None };
    let is_kept = match &after.task.state {
        State::Done { token: now, execution: then } => token == now && (execution == then || *then == Done),
        State::New | State::Ready { .. } | State::Running { .. } | State::Error { .. } => false,
    };
    (!is_kept || before.effects != after.effects).then_some(Breach::CommitLost)
}

/// What a job's tasks make of it must be a move that its own table knows.
fn jobs_against_their_table(
    config: &Config,
    before: &World,
    after: &World,
    action: &Action,
) -> Option<Breach> {
    let is_legal = |number: usize, old: &Job, new: &Job| {
        let (from, to) = (old.state(&config.jobs[number]), new.state(&config.jobs[number]));
        if *action == (Action::Rerun { job: number }) {
            job::decide(from, job::Command::Retry).is_ok_and(|fresh| is_job_move(fresh, to))
        } else {
            is_job_move(from, to)
        }
    };
    let mut jobs = before.jobs.iter().zip(&after.jobs).enumerate();
    (!jobs.all(|(number, (old, new))| is_legal(number, old, new))).then_some(Breach::JobAgainstItsTable)
}

fn is_job_move(from: job::State, to: job::State) -> bool {
    let command = match (to, to.phase()) {
        (_, Some(phase)) => job::Command::Enter(phase),
        (job::State::Completed, None) => job::Command::Complete,
        (job::State::Failed, None) => job::Command::Fail,
        (job::State::Cancelled, None) => job::Command::Cancel,
        (_, None) => job::Command::Lose,
    };
    from == to || job::decide(from, command) == Ok(to)
}

fn claimed_while_closed(before: &World, action: &Action) -> Option<Breach> {
    match action {
        Action::Claim { process, at, .. } => {
            let is_open = before.jobs[at.job].outcome.is_none();
            let may_claim = before.processes[*process].row.may_claim().is_ok();
            (!is_open || !may_claim).then_some(Breach::ClaimedWhileClosed)
        }
        _ => None,
    }
}
