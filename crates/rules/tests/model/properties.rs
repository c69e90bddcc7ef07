//! What must hold in every reachable world, named after the invariant it keeps.

use crate::audit::Breach;
use crate::config::{Part, Shape};
use crate::mill::Mill;
use crate::step::command;
use crate::world::{At, Job, Letter, NOW, TaskRow, Word, World};
use rules::Token;
use rules::job::Outcome;
use rules::task::{Name, State};
use stateright::Property;

pub const ONE_COMMIT: &str = "INV_001: a task takes effect at most once";
pub const FM_001: &str = "FM_001: no two executions of a task both take effect";
pub const LIVE_COMMIT: &str = "a commit needs the live lease of its own token";
pub const ONE_HOLDER: &str = "at most one token of a task would be accepted";
pub const RECOVERY: &str =
    "recovery takes no live lease, and no lease of a live worker is taken for a dead one's";
pub const COUNTED: &str = "attempts are counted, but not for work given back or withdrawn";
pub const ATTEMPTS: &str = "counted attempts never exceed the maximum";
pub const CANCELLED_TOO_LATE: &str = "no job is cancelled of which everything is committed";
pub const IN_ORDER: &str = "a task runs only after all it needs";

type Condition = fn(&Mill, &World) -> bool;

fn always(name: &'static str, condition: Condition) -> Property<Mill> {
    Property::always(name, condition)
}

fn sometimes(name: &'static str, condition: Condition) -> Property<Mill> {
    Property::sometimes(name, condition)
}

pub fn all() -> Vec<Property<Mill>> {
    let mut all = invariants();
    all.extend(breaches());
    all.extend(sanity());
    all
}

fn invariants() -> Vec<Property<Mill>> {
    vec![
        always(ONE_COMMIT, |_, world| world.tasks().all(|(_, row)| row.effects.len() <= 1)),
        always(FM_001, |_, world| {
            world.tasks().all(|(_, row)| row.effects.windows(2).all(|pair| pair[0] == pair[1]))
        }),
        always("INV_002: nothing is visible before COMMITTED", |_, world| {
            world.tasks().all(|(_, row)| row.effects.is_empty() == (row.task.state.name() != Name::Done))
        }),
        always(ONE_HOLDER, |mill, world| {
            world.tasks().all(|(at, row)| accepted_tokens(mill, world, at, row) <= 1)
        }),
        always("a RUNNING task has a lease and a live execution", |_, world| {
            world.tasks().all(|(_, row)| match &row.task.state {
                State::Running { execution, .. } => execution.is_live(),
                State::Done { execution, .. } => execution.is_committed(),
                State::New | State::Ready { .. } | State::Error { .. } => true,
            })
        }),
        always(ATTEMPTS, |_, world| world.tasks().all(|(_, row)| row.task.attempts <= row.task.max_attempts)),
        always("a closed job has no READY or RUNNING task", |_, world| {
            world.jobs.iter().filter(|job| job.outcome.is_some()).all(|job| {
                job.tasks(0).all(|(_, row)| !matches!(row.task.state.name(), Name::Ready | Name::Running))
            })
        }),
        always(CANCELLED_TOO_LATE, |mill, world| {
            world.jobs.iter().zip(&mill.0.jobs).all(|(job, shape)| !is_done_yet_cancelled(job, shape))
        }),
        always(IN_ORDER, runs_in_order),
        always("work that stands still does not keep its lease", |mill, world| {
            let Some(stall) = mill.0.stall else { return true };
            world.tasks().all(|(_, row)| match &row.task.state {
                State::Running { lease, .. } => !lease.is_live(NOW) || NOW < lease.progressed_at + stall,
                State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. } => true,
            })
        }),
    ]
}

/// How many tokens somebody holds, or has sent, that would still move this task.
fn accepted_tokens(mill: &Mill, world: &World, at: At, row: &TaskRow) -> usize {
    let held = world.processes.iter().filter_map(|process| process.claim.as_ref());
    let held = held.filter(|claim| claim.at == at).map(|claim| claim.token);
    let sent = world.mail.iter().filter(|letter| letter.at == at).map(|letter| letter.token);
    let is_accepted = |token: &Token| {
        [Word::Progress(0), Word::Commit].into_iter().any(|word| {
            let letter = Letter { at, word, from: 0, token: *token };
            mill.0.flaw.decide(&row.task, &command(&mill.0, row, letter)).is_ok()
        })
    };
    let mut tokens: Vec<Token> = held.chain(sent).filter(is_accepted).collect();
    tokens.sort_unstable();
    tokens.dedup();
    tokens.len()
}

fn runs_in_order(mill: &Mill, world: &World) -> bool {
    world.tasks().all(|(at, row)| {
        let (rows, parts) = (&world.jobs[at.job].stages, &mill.0.jobs[at.job].0);
        let is_finished = |&need: &usize| rows[need].progress(&parts[need]).is_finished();
        let is_offered = matches!(row.task.state.name(), Name::Ready | Name::Running);
        let part: &Part = &parts[at.stage];
        !is_offered || part.stage.needs.iter().all(is_finished)
    })
}

/// What the auditor would have found in the step that led to a world.
fn breaches() -> Vec<Property<Mill>> {
    vec![
        always("INV_003: tasks move only along the table", |_, w| is_clean(w, Breach::IllegalMove)),
        always("one remote worker alone fails no job for good", |_, w| {
            is_clean(w, Breach::FailedByOneRemoteWord)
        }),
        always("INV_003: every move is audited, once", |_, w| is_clean(w, Breach::Unaudited)),
        always("INV_004: committed work is neither lost nor done again", |_, w| {
            is_clean(w, Breach::CommitLost)
        }),
        always("each role makes only its own moves", |_, w| is_clean(w, Breach::WrongRole)),
        always(LIVE_COMMIT, |_, w| is_clean(w, Breach::CommitWithoutLease)),
        always(RECOVERY, |_, w| is_clean(w, Breach::LiveLeaseTaken)),
        always(COUNTED, |_, w| is_clean(w, Breach::Miscounted)),
        always("jobs move only along their table", |_, w| is_clean(w, Breach::JobAgainstItsTable)),
        always("only an open worker claims, and only from an open job", |_, w| {
            is_clean(w, Breach::ClaimedWhileClosed)
        }),
    ]
}

fn is_clean(world: &World, breach: Breach) -> bool {
    world.breach != Some(breach)
}

/// What must be reachable, lest the model prove nothing about nothing.
fn sanity() -> Vec<Property<Mill>> {
    vec![
        sometimes("every job completes", |_, world| all_ended(world, Outcome::Completed)),
        sometimes("every job fails", |mill, world| {
            let can_fail = |shape: &Shape| shape.0.iter().any(|part| !part.is_optional);
            !mill.0.jobs.iter().all(can_fail) || all_ended(world, Outcome::Failed)
        }),
        sometimes("every job is cancelled", |mill, world| {
            !mill.0.faults.person || all_ended(world, Outcome::Cancelled)
        }),
        sometimes("a word is under way for a task that another worker holds", |_, world| {
            world.mail.iter().any(|letter| match &world.at(letter.at).task.state {
                State::Running { lease, .. } => lease.token != letter.token && lease.is_live(NOW),
                State::New | State::Ready { .. } | State::Done { .. } | State::Error { .. } => false,
            })
        }),
        sometimes("a late commit meets a committed task", |mill, world| {
            let needs_two_words = mill.0.mail < 2;
            needs_two_words
                || world.mail.iter().any(|letter| match &world.at(letter.at).task.state {
                    State::Done { token, .. } => letter.word == Word::Commit && *token != letter.token,
                    State::New | State::Ready { .. } | State::Running { .. } | State::Error { .. } => false,
                })
        }),
    ]
}

fn is_done_yet_cancelled(job: &Job, shape: &Shape) -> bool {
    let is_released = job.stages.iter().all(|row| row.is_expanded && row.is_released);
    let is_done = |at: At, row: &TaskRow| {
        row.task.state.name() == Name::Done || (shape.0[at.stage].is_optional && row.is_given_up())
    };
    job.outcome == Some(Outcome::Cancelled) && is_released && job.tasks(0).all(|(at, row)| is_done(at, row))
}

fn all_ended(world: &World, outcome: Outcome) -> bool {
    world.jobs.iter().all(|job| job.outcome == Some(outcome))
}
