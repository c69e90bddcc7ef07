//! Worlds that differ only in what things are called are one world: tokens are numbered as they are met, and
//! where the configuration asks for it, alike tasks of a stage and alike workers are put in one order.
//!
//! Any renaming is sound, for the rules compare names and do nothing else with them. A trace told of renamed
//! workers is hard to follow, so traces are sought without the second part.

use crate::hash::hash;
use crate::world::{At, TaskRow, World, worker_id};
use rules::Token;
use rules::task::State;

/// A token nobody holds, in the database, in memory or under way.
pub fn fresh_token(world: &mut World) -> Token {
    let mut highest = 0;
    each_token(world, &mut |token| highest = highest.max(token.0));
    Token(highest + 1)
}

pub fn number_tokens(world: &mut World) {
    let mut met: Vec<Token> = Vec::new();
    each_token(world, &mut |token| {
        let place = met.iter().position(|known| known == token).unwrap_or_else(|| {
            met.push(*token);
            met.len() - 1
        });
        *token = Token(place as i64 + 1);
    });
    world.mail.sort_unstable();
}

fn each_token(world: &mut World, visit: &mut impl FnMut(&mut Token)) {
    for row in world.rows_mut() {
        match &mut row.task.state {
            State::Running { lease, .. } => visit(&mut lease.token),
            State::Done { token, .. } => visit(token),
            State::New | State::Ready { .. } | State::Error { .. } => {}
        }
        row.effects.iter_mut().for_each(&mut *visit);
    }
    world.processes.iter_mut().filter_map(|p| p.claim.as_mut()).for_each(|claim| visit(&mut claim.token));
    world.mail.iter_mut().for_each(|letter| visit(&mut letter.token));
}

/// Puts what is alike in one order.
pub fn sort(world: &mut World) {
    for job in 0..world.jobs.len() {
        for stage in 0..world.jobs[job].stages.len() {
            if world.jobs[job].stages[stage].tasks.len() > 1 {
                sort_tasks(world, job, stage);
            }
        }
    }
    sort_processes(world);
}

fn sort_tasks(world: &mut World, job: usize, stage: usize) {
    let tasks = &world.jobs[job].stages[stage].tasks;
    let looks: Vec<u64> = (0..tasks.len()).map(|task| look_of_task(world, At { job, stage, task })).collect();
    let places = sorted_places(&looks);
    let moved = |at: At| {
        let is_here = (at.job, at.stage) == (job, stage);
        if is_here { At { task: places[at.task], ..at } } else { at }
    };
    world.processes.iter_mut().filter_map(|p| p.claim.as_mut()).for_each(|claim| claim.at = moved(claim.at));
    world.mail.iter_mut().for_each(|letter| letter.at = moved(letter.at));
    reorder(&mut world.jobs[job].stages[stage].tasks, &places);
}

fn sort_processes(world: &mut World) {
    let looks: Vec<u64> = (0..world.processes.len()).map(|process| look_of_process(world, process)).collect();
    let places = sorted_places(&looks);
    for row in world.rows_mut() {
        if let State::Running { lease, .. } = &mut row.task.state {
            let owner = (0..places.len()).find(|&process| lease.worker == worker_id(process));
            owner.iter().for_each(|&process| lease.worker = worker_id(places[process]));
        }
        row.doubted_by = row.doubted_by.iter().map(|&process| places[process]).collect();
    }
    world.mail.iter_mut().for_each(|letter| letter.from = places[letter.from]);
    reorder(&mut world.processes, &places);
}

/// Where each goes when they are sorted by their looks.
fn sorted_places(looks: &[u64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..looks.len()).collect();
    order.sort_by_key(|&old| looks[old]);
    let mut places = vec![0; looks.len()];
    order.into_iter().enumerate().for_each(|(new, old)| places[old] = new);
    places
}

fn reorder<T: Clone>(things: &mut [T], places: &[usize]) {
    let old = things.to_vec();
    old.into_iter().zip(places).for_each(|(thing, &place)| things[place] = thing);
}

/// All that sets a task apart from its siblings but names: its row, who works on it, and what is said of it.
fn look_of_task(world: &World, at: At) -> u64 {
    let row = world.at(at);
    let current = current_token(row);
    let claims = world.processes.iter().filter_map(|p| p.claim.as_ref().map(|claim| (p.row.status, claim)));
    let claims = claims.filter(|(_, claim)| claim.at == at);
    let claims = claims.map(|(status, claim)| hash(&(status, claim.step, Some(claim.token) == current)));
    let words = world.mail.iter().filter(|letter| letter.at == at);
    let words = words.map(|letter| hash(&(letter.word, Some(letter.token) == current)));
    hash(&(nameless(row), sum(claims), sum(words)))
}

fn look_of_process(world: &World, process: usize) -> u64 {
    let memory = &world.processes[process];
    let claim = memory
        .claim
        .as_ref()
        .map(|claim| (claim.at, claim.step, Some(claim.token) == current_token(world.at(claim.at))));
    let words = world.mail.iter().filter(|letter| letter.from == process);
    let words = words.map(|letter| {
        let is_current = Some(letter.token) == current_token(world.at(letter.at));
        hash(&(letter.at, letter.word, is_current))
    });
    hash(&(memory.row, claim, sum(words)))
}

fn nameless(row: &TaskRow) -> u64 {
    let task = &row.task;
    match &task.state {
        State::Running { lease, execution } => {
            hash(&(task.attempts, execution, lease.expires_at, lease.progress, lease.progressed_at))
        }
        State::Done { execution, .. } => hash(&(task.attempts, execution)),
        state @ (State::New | State::Ready { .. } | State::Error { .. }) => hash(&(task.attempts, state)),
    }
}

fn current_token(row: &TaskRow) -> Option<Token> {
    match &row.task.state {
        State::Running { lease, .. } => Some(lease.token),
        State::Done { token, .. } => Some(*token),
        State::New | State::Ready { .. } | State::Error { .. } => None,
    }
}

fn sum(looks: impl Iterator<Item = u64>) -> u64 {
    looks.fold(0, u64::wrapping_add)
}
