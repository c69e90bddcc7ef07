//! Who is at work: what the heartbeat tells and the renewals renew.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rules::ExecutionId;
use rules::phase::{Phase, Trigger};
use telemetry::metrics::SLOTS_TAKEN;
use tokio::sync::watch;
use tracing::{Span, error_span};
use wire::{Assignment, Renewal};

use crate::context::{self, Context};
use crate::phase::{Cell, activity};
use crate::stop::Stop;

/// Even for a lease that makes no sense.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(50);

/// One execution, from its lease to its report.
#[derive(Debug)]
pub(crate) struct Running {
    pub job: Assignment,
    pub context: Context,
    pub stop: Stop,
    /// Names it, in every line of the log that is about it.
    pub span: Span,
    cell: Mutex<Cell>,
}

impl Running {
    fn new(job: Assignment, context: Context) -> Self {
        let stop = context.ending().clone();
        let span = span(&job);
        Running { job, context, stop, span, cell: Mutex::new(Cell::at(Phase::Claiming)) }
    }

    pub fn id(&self) -> ExecutionId {
        execution_id(&self.job)
    }

    pub fn step(&self, trigger: Trigger) {
        lock(&self.cell).step(trigger);
    }

    /// How often to renew the lease, so that two renewals may fail before it ends. One granted for work that
    /// moves lasts no longer than that work may stand still.
    pub fn renewal_interval(&self) -> Duration {
        let lease = context::span(self.job.lease_ms);
        (lease.min(self.context.stall().unwrap_or(lease)) / 3).max(SHORTEST_INTERVAL)
    }

    /// How far it has moved. To have begun is a movement too.
    pub fn progress(&self) -> i64 {
        i64::try_from(self.context.progress.beats()).unwrap_or(i64::MAX).saturating_add(1)
    }

    pub fn renewal(&self) -> Renewal {
        // What is finished and waits for the desk to hear of it cannot stand still.
        if matches!(lock(&self.cell).phase(), Phase::ReportingSuccess | Phase::ReportingFailure) {
            self.context.progress.beat();
        }
        Renewal { proof: self.job.proof, progress: self.progress() }
    }
}

#[derive(Debug)]
pub(crate) struct Roster {
    /// That of the loop, which is that of every free slot.
    cell: Mutex<Cell>,
    running: Mutex<BTreeMap<ExecutionId, Arc<Running>>>,
    count: watch::Sender<u32>,
}

impl Roster {
    pub fn new() -> Self {
        Roster {
            cell: Mutex::new(Cell::at(Phase::Startup)),
            running: Mutex::default(),
            count: watch::channel(0).0,
        }
    }

    /// Enters an execution; it stays until the seat is dropped.
    pub fn seat(self: &Arc<Self>, job: Assignment, context: Context) -> Seat {
        let running = Arc::new(Running::new(job, context));
        lock(&self.running).insert(running.id(), running.clone());
        self.recount();
        Seat { running, roster: self.clone() }
    }

    pub fn running(&self) -> Vec<Arc<Running>> {
        lock(&self.running).values().cloned().collect()
    }

    /// How many there are, and news of it.
    pub fn count(&self) -> watch::Receiver<u32> {
        self.count.subscribe()
    }

    /// That of the loop.
    pub fn phase(&self) -> Phase {
        lock(&self.cell).phase()
    }

    pub fn step(&self, trigger: Trigger) {
        lock(&self.cell).step(trigger);
    }

    pub fn most_active_phase(&self) -> Phase {
        let slots = self.running();
        let phases = slots.iter().map(|running| lock(&running.cell).phase());
        phases.chain([self.phase()]).max_by_key(|phase| activity(*phase)).unwrap_or(Phase::Startup)
    }

    fn recount(&self) {
        self.count.send_if_modified(|known| {
            // Counted in here, where one recount waits for another: the last word is the latest.
            let count = u32::try_from(lock(&self.running).len()).unwrap_or(u32::MAX);
            SLOTS_TAKEN.set([], count.into());
            std::mem::replace(known, count) != count
        });
    }
}

/// An execution's place in the roster, given up however its task ends.
pub(crate) struct Seat {
    running: Arc<Running>,
    roster: Arc<Roster>,
}

impl Deref for Seat {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.roster.running).remove(&self.running.id());
        self.roster.recount();
    }
}

/// Inside that of its worker. At the level of errors, for it must be there whatever is logged.
fn span(job: &Assignment) -> Span {
    error_span!(
        "execution",
        job.id = %job.job,
        task.id = %job.proof.task,
        execution.id = %execution_id(job),
        stage = job.stage,
    )
}

pub(crate) fn execution_id(job: &Assignment) -> ExecutionId {
    job.proof.execution()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
