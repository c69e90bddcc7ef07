//! What an action makes of the world. The duties follow the store's, transaction by transaction.

use crate::action::{Action, Duty};
use crate::config::Config;
use crate::flaw::Flaw;
use crate::names::fresh_token;
use crate::transaction::Transaction;
use crate::world::{At, Claim, Letter, NOW, Process, Step, TICK, TaskRow, Word, World, worker_id};
use rules::backoff::{Backoff, Jitter};
use rules::execution::Status;
use rules::failure::{Doubt, Witness};
use rules::lease::Terms;
use rules::task::{Command, Name, Refusal};
use rules::worker;

/// The world after `action`; none where nothing would change.
pub fn perform(config: &Config, before: &World, action: &Action) -> Option<World> {
    let mut tx = Transaction::begin(config, before, action);
    match *action {
        Action::Tick => tx.world.tick(config),
        Action::Submit { job } => advance(config, &mut tx, job),
        Action::Duty { at, duty } => {
            carry_out(config, &mut tx, at, duty).ok()?;
        }
        Action::Cancel { job } => cancel(config, &mut tx, job),
        Action::Rerun { job } => rerun(config, &mut tx, job),
        Action::Claim { process, at, is_heard } => claim(config, &mut tx, process, at, is_heard).ok()?,
        Action::Say { process, word } => say(&mut tx.world, process, word),
        Action::Restart { process } => tx.world.replace(process),
        Action::Deliver { letter, stays } => deliver(config, &mut tx, letter, stays),
        Action::Lose { letter } => tx.world.mail.retain(|other| *other != letter),
        Action::Fleet { process, command } => {
            let row = &mut tx.world.processes[process].row;
            *row = worker::decide(row, command, NOW).ok()?;
        }
    }
    tx.commit()
}

fn carry_out(config: &Config, tx: &mut Transaction, at: At, duty: Duty) -> Result<(), Refusal> {
    match duty {
        Duty::Recover | Duty::LoseWorker(_) | Duty::Retry => tx.make(at, &duty.command())?,
        Duty::Settle => settle(config, tx, at)?,
        Duty::Judge => tx.make(at, &Command::Judge)?,
    }
    let is_next_due = matches!(duty, Duty::Settle | Duty::Judge);
    let state = tx.world.jobs[at.job].state(&config.jobs[at.job]);
    if is_next_due && !state.is_final() {
        advance(config, tx, at.job);
    }
    Ok(())
}

/// Releases what is due. A stage without tasks is finished by its release, so this asks again until nothing
/// is.
fn advance(config: &Config, tx: &mut Transaction, job: usize) {
    loop {
        let due = tx.world.jobs[job].releasable(&config.jobs[job]);
        if due.is_empty() {
            return;
        }
        for stage in due {
            tx.world.jobs[job].stages[stage].is_released = true;
            advance_new_tasks(tx, job, stage);
        }
    }
}

fn advance_new_tasks(tx: &mut Transaction, job: usize, stage: usize) {
    for task in 0..tx.world.jobs[job].stages[stage].tasks.len() {
        let at = At { job, stage, task };
        if tx.world.at(at).task.state.name() == Name::New {
            tx.make(at, &Command::Advance).expect("a NEW task can be advanced");
        }
    }
}

/// A plan's commit is settled by creating the tasks it speaks of, also when the job has ended meanwhile.
fn settle(config: &Config, tx: &mut Transaction, at: At) -> Result<(), Refusal> {
    tx.make(at, &Command::Settle)?;
    let is_closed = tx.world.jobs[at.job].outcome.is_some();
    if is_closed && matches!(config.flaw, Flaw::ForgetsToExpand) {
        return Ok(());
    }
    for (row, part) in tx.world.jobs[at.job].stages.iter_mut().zip(&config.jobs[at.job].0) {
        if part.stage.expands == Some(at.stage) && !row.is_expanded {
            row.expand(part, config.max_attempts);
        }
    }
    Ok(())
}

/// What is committed is settled first: a job of which that was the last has completed, and is not cancelled.
fn cancel(config: &Config, tx: &mut Transaction, job: usize) {
    let is_committed = |row: &TaskRow| row.task.state.execution() == Some(Status::Committed);
    let tasks = tx.world.jobs[job].tasks(job).filter(|(_, row)| is_committed(row));
    let committed: Vec<At> = tasks.map(|(at, _)| at).collect();
    if !committed.is_empty() && !matches!(config.flaw, Flaw::CancelsUnsettled) {
        for at in committed {
            settle(config, tx, at).expect("a commit can be settled");
        }
        advance(config, tx, job);
    }
    tx.world.jobs[job].is_cancelled = !tx.world.jobs[job].state(&config.jobs[job]).is_final();
}

/// What failed begins anew, and what was withdrawn is released again. An optional stage that was finished
/// stays so, for others may have gone on without what was given up there.
fn rerun(config: &Config, tx: &mut Transaction, job: usize) {
    for (stage, part) in config.jobs[job].0.iter().enumerate() {
        let row = &tx.world.jobs[job].stages[stage];
        let reopens = match config.flaw {
            Flaw::PassesOverOptionalWork => !part.is_optional,
            Flaw::ReopensGivenUpWork => true,
            _ => !part.is_optional || !row.progress(part).is_finished(),
        };
        for task in 0..row.tasks.len() {
            let at = At { job, stage, task };
            if reopens && tx.world.at(at).task.state.name() == Name::Error {
                tx.make(at, &Command::Rerun).expect("the errors of a closed job are final");
            }
        }
        if tx.world.jobs[job].stages[stage].is_released {
            advance_new_tasks(tx, job, stage);
        }
    }
    advance(config, tx, job);
}

fn claim(
    config: &Config,
    tx: &mut Transaction,
    process: usize,
    at: At,
    is_heard: bool,
) -> Result<(), Refusal> {
    let token = fresh_token(&mut tx.world);
    let terms = Terms { length: TICK, stall: config.stall, deadline: None };
    tx.make(at, &Command::Claim { worker: worker_id(process), token, terms })?;
    if is_heard {
        tx.world.processes[process].claim = Some(Claim { at, token, step: Step::Working });
    }
    Ok(())
}

fn say(world: &mut World, process: usize, word: Word) {
    let Some(claim) = &mut world.processes[process].claim else { return };
    if matches!(word, Word::Commit | Word::Fail(_)) {
        claim.step = Step::Reporting(word);
    }
    world.mail.push(Letter { at: claim.at, word, from: process, token: claim.token });
}

fn deliver(config: &Config, tx: &mut Transaction, letter: Letter, stays: bool) {
    let command = command(config, tx.world.at(letter.at), letter);
    let answer = match letter.word {
        Word::Progress(_) | Word::Keep | Word::Commit => tx.make_begun(letter.at, &command),
        Word::Fail(_) => tx.fail(letter.at, &command, letter.from),
    };
    if !stays {
        tx.world.mail.retain(|other| *other != letter);
        hear(&mut tx.world.processes[letter.from], letter, answer);
    }
}

pub fn command(config: &Config, row: &TaskRow, letter: Letter) -> Command {
    let token = letter.token;
    match letter.word {
        Word::Progress(progress) => Command::Renew { token, progress, kept: None, length: TICK },
        Word::Keep => Command::Renew { token, progress: 0, kept: Some(1), length: TICK },
        Word::Commit => Command::Commit { token },
        // At their limit, executions that are spared are failures as any other.
        Word::Fail(kind) => {
            let backoff = Backoff { initial: TICK, max: TICK };
            let witness = match config.faults.remote {
                true => Witness::Remote(doubt(row, letter.from)),
                false => Witness::Server,
            };
            Command::Fail { token, kind, spared: 0, witness, backoff, jitter: Jitter(500) }
        }
    }
}

fn doubt(row: &TaskRow, from: usize) -> Doubt {
    match row.doubted_by.iter().any(|&worker| worker != from) {
        true => Doubt::Another,
        false if row.doubted_by.contains(&from) => Doubt::Itself,
        false => Doubt::Nobody,
    }
}

/// A process learns what became of its word. One that has lost its lease stops; one whose lease has only run
/// out renews it, and then says the same again.
fn hear(process: &mut Process, letter: Letter, answer: Result<(), Refusal>) {
    let is_current = process.claim.as_ref().is_some_and(|claim| claim.token == letter.token);
    match (letter.word, answer) {
        _ if !is_current => {}
        (Word::Progress(_) | Word::Keep, Ok(())) | (_, Err(Refusal::LeaseExpired)) => {}
        (Word::Commit | Word::Fail(_), Ok(())) | (_, Err(_)) => process.claim = None,
    }
}
