//! Moves of tasks: decided by the rules one by one, saved together.

use crate::audit::{self, AuditRow};
use crate::db::Tx;
use crate::error::Result;
use crate::readied::Readied;
use crate::save;
use crate::task::{Loaded, NewTask};
use rules::execution::Status;
use rules::task::{self, Change, Command, Event, Refusal, State, Task};
use rules::{JobId, Millis, Priority, TaskId, WorkerId};
use std::collections::{BTreeMap, BTreeSet};
use telemetry::metrics::EXECUTIONS_ENDED;
use wire::Usage;

/// The moves of one transaction, decided and not yet saved.
pub(crate) struct Moves {
    now: Millis,
    made: Vec<Move>,
    added: BTreeMap<TaskId, NewTask>,
    /// Of those that were saved already.
    readied: Readied,
}

/// Moves that wait in memory until all are saved.
const MOST: usize = 20_000;

struct Move {
    id: TaskId,
    priority: Priority,
    before: Task,
    after: Task,
    event: Event,
    words: Words,
}

/// What goes with a move into the rows it touches.
#[derive(Debug, Default, Clone)]
pub(crate) struct Words {
    pub note: Option<String>,
    pub result: Option<String>,
    pub usage: Option<Usage>,
    pub step: Option<String>,
    pub permille: Option<i64>,
}

impl Moves {
    pub fn new(now: Millis) -> Self {
        Moves { now, made: Vec::new(), added: BTreeMap::new(), readied: Readied::default() }
    }

    /// Adds tasks. They are inserted when all is saved, as the moves made until then leave them: most are READY at once.
    pub fn add(&mut self, tasks: Vec<NewTask>) {
        self.added.extend(tasks.into_iter().map(|task| (TaskId(task.id), task)));
    }

    /// Of these tasks those that are added here, not moved yet; and the others.
    pub fn added(&self, ids: Vec<TaskId>) -> (Vec<Loaded>, Vec<TaskId>) {
        let (added, others): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| self.added.contains_key(id));
        (added.iter().map(|id| self.added[id].loaded()).collect(), others)
    }

    pub fn newest_added(&self, job: JobId) -> Option<TaskId> {
        let (first, last) = TaskId::range(job);
        self.added.range(first..=last).next_back().map(|(id, _)| *id)
    }

    /// Lets the rules decide; a move they allow will be saved.
    pub fn make(&mut self, loaded: &mut Loaded, command: &Command, words: Words) -> Result<(), Refusal> {
        let Change { task: after, event } = task::decide(&loaded.task, command, self.now)?;
        let before = std::mem::replace(&mut loaded.task, after.clone());
        let priority = Priority::try_from(loaded.priority).unwrap_or_default();
        self.made.push(Move { id: loaded.id, priority, before, after, event, words });
        Ok(())
    }

    /// As [`Moves::make`] for a worker's word about its execution: the first such word says that it has begun,
    /// whatever else it says. Both moves are made, or neither.
    pub fn make_begun(
        &mut self,
        loaded: &mut Loaded,
        command: &Command,
        words: Words,
    ) -> Result<(), Refusal> {
        let (before, made) = (loaded.task.clone(), self.made.len());
        let begun = match (&before.state, command.token()) {
            (State::Running { execution: Status::Leased, .. }, Some(token)) => {
                self.make(loaded, &Command::Start { token }, Words::default())
            }
            _ => Ok(()),
        };
        begun.and_then(|()| self.make(loaded, command, words)).inspect_err(|_| {
            loaded.task = before;
            self.made.truncate(made);
        })
    }

    /// The tasks that became READY.
    pub fn readied(&self) -> Readied {
        let mut readied = self.readied;
        let ready = self.made.iter().filter(|made| made.event.to == task::Name::Ready);
        ready.for_each(|made| readied.add(made.priority, 1));
        readied
    }

    /// Counts the executions that these moves ended without a commit, once that has truly happened.
    pub fn count_failures(&self, tx: &mut Tx) {
        let failures: Vec<_> = self.made.iter().filter_map(|made| made.event.failure).collect();
        tx.once_committed(move || failures.iter().for_each(|kind| EXECUTIONS_ENDED.count([kind.as_str()])));
    }

    /// Saves what has been made if it is much, so that memory does not grow with it: as often as one likes before
    /// [`Moves::save`], while each task makes all its moves between two of these.
    pub async fn save_some(&mut self, tx: &mut Tx) -> Result<()> {
        if self.made.len() < MOST {
            return Ok(());
        }
        let moved: BTreeSet<TaskId> = self.made.iter().map(|made| made.id).collect();
        let added = moved.into_iter().filter_map(|id| Some((id, self.added.remove(&id)?))).collect();
        let others = std::mem::replace(&mut self.added, added);
        self.save(tx).await?;
        self.readied = self.readied();
        self.made.clear();
        self.added = others;
        Ok(())
    }

    pub async fn save(&self, tx: &mut Tx) -> Result<()> {
        let mut saved = self.joined();
        save::insert(tx, &self.added, &saved, self.now).await?;
        saved.retain(|one| !self.added.contains_key(&one.id));
        save::update(tx, &saved, self.now).await?;
        let audited = self.made.iter().filter(|made| made.changes_state());
        let rows: Vec<AuditRow> = audited.map(|made| made.audit(self.now)).collect();
        audit::insert(tx, &audit::joined(rows)).await
    }

    /// Each task once, in order of id, however often it moved.
    fn joined(&self) -> Vec<Joined<'_>> {
        let mut joined: Vec<Joined> = self.made.iter().map(Joined::from).collect();
        joined.sort_by_key(|one| one.id);
        joined.dedup_by(|later, one| {
            let is_same = later.id == one.id;
            if is_same {
                one.go_on(later);
            }
            is_same
        });
        joined
    }
}

/// What all moves of one task come to.
pub(crate) struct Joined<'a> {
    pub id: TaskId,
    pub before: &'a Task,
    pub after: &'a Task,
    /// Its execution began: the first word of its worker was heard.
    pub is_begun: bool,
    pub failure: Option<rules::failure::Kind>,
    pub note: Option<&'a str>,
    pub result: Option<&'a str>,
    pub usage: Option<Usage>,
    pub step: Option<&'a str>,
    pub permille: Option<i64>,
}

impl<'a> From<&'a Move> for Joined<'a> {
    fn from(made: &'a Move) -> Self {
        Joined {
            id: made.id,
            before: &made.before,
            after: &made.after,
            is_begun: matches!(made.event.execution, Some((Some(Status::Leased), Status::InProgress))),
            failure: made.event.failure,
            note: made.words.note.as_deref(),
            result: made.words.result.as_deref(),
            usage: made.words.usage,
            step: made.words.step.as_deref(),
            permille: made.words.permille,
        }
    }
}

impl Joined<'_> {
    fn go_on(&mut self, later: &mut Self) {
        self.after = later.after;
        self.is_begun |= later.is_begun;
        self.failure = later.failure.or(self.failure);
        self.note = later.note.or(self.note);
        self.result = later.result.or(self.result);
        self.usage = later.usage.or(self.usage);
        self.step = later.step.or(self.step);
        self.permille = later.permille.or(self.permille);
    }
}

impl Move {
    fn changes_state(&self) -> bool {
        let is_renewal = self.event.to == task::Name::Running && self.event.execution.is_none();
        self.before != self.after && !is_renewal
    }

    fn audit(&self, now: Millis) -> AuditRow {
        AuditRow::of_task(
            self.id,
            self.after.fence.0,
            self.event,
            self.worker(),
            self.words.note.clone(),
            now,
        )
    }

    /// Whose lease the move is about.
    fn worker(&self) -> Option<WorkerId> {
        match (&self.before.state, &self.after.state) {
            (State::Running { lease, .. }, _) | (_, State::Running { lease, .. }) => Some(lease.worker),
            _ => None,
        }
    }
}
