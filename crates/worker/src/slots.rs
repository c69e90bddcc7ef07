//! The executions of one worker, each in a task of its own.

use std::sync::Arc;
use std::time::Duration;

use rules::phase::Trigger;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tracing::{Instrument, error, info, warn};
use wire::{Assignment, Desk};

use crate::context::Context;
use crate::execution;
use crate::roster::execution_id;
use crate::shared::Shared;
use crate::stop::Reason;
use crate::tally::Fate;
use crate::trace;

/// How long executions may take to end and be given back, once that is asked for.
const LAST_WORDS: Duration = Duration::from_secs(10);

pub(crate) struct Slots<D> {
    shared: Arc<Shared<D>>,
    /// Dropping it ends them all.
    tasks: JoinSet<()>,
}

impl<D: Desk> Slots<D> {
    pub fn new(shared: Arc<Shared<D>>) -> Self {
        Slots { shared, tasks: JoinSet::new() }
    }

    pub fn free(&mut self) -> u32 {
        self.reap();
        let taken = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.shared.options.slots.get().saturating_sub(taken)
    }

    pub fn is_empty(&mut self) -> bool {
        self.reap();
        self.tasks.is_empty()
    }

    fn reap(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            note(ended);
        }
    }

    /// Returns when an execution has ended; never, if there is none.
    pub async fn freed(&mut self) {
        match self.tasks.join_next().await {
            Some(ended) => note(ended),
            None => std::future::pending().await,
        }
    }

    /// Begins work that was leased at `began`, or a little later.
    pub fn start(&mut self, job: Assignment, began: Instant) {
        let workshop = &self.shared.workshop;
        let context = Context::new(&job, workshop.folder(execution_id(&job)), began)
            .with_kept_folder(workshop.kept_folder(job.proof.task));
        let seat = self.shared.roster.seat(job, context);
        let (span, job) = (seat.span.clone(), &seat.job);
        let trace = trace::of(job, self.shared.known_as());
        span.in_scope(|| {
            let (task, stage) = (job.proof.task, &job.stage);
            info!("claimed task {task} ({stage}, attempt {} of {})", job.attempt, job.max_attempts);
        });
        seat.step(Trigger::LeaseAcquired);
        self.tasks.spawn(execution::carry_out(self.shared.clone(), seat).instrument(trace).instrument(span));
    }

    /// Lets the executions end, but not for ever: what is unfinished at the deadline, or when asked a second
    /// time, is given back.
    pub async fn drain(&mut self) {
        let shutdown = self.shared.shutdown.clone();
        let deadline = self.shared.options.drain_deadline;
        tokio::select! {
            biased;
            () = self.all_ended() => return,
            () = shutdown.giving_back() => {}
            () = sleep(deadline) => {}
        }
        info!("giving back what is unfinished: {} tasks", self.tasks.len());
        for running in self.shared.roster.running() {
            running.stop.stop(Reason::Drained);
        }
        if timeout(LAST_WORDS, self.all_ended()).await.is_err() {
            self.abandon().await;
        }
    }

    async fn all_ended(&mut self) {
        while let Some(ended) = self.tasks.join_next().await {
            note(ended);
        }
    }

    /// Their leases expire by themselves.
    async fn abandon(&mut self) {
        for running in self.shared.roster.running() {
            let id = running.id();
            running.span.in_scope(|| warn!("abandoned {id}: the desk did not hear of its end"));
            self.shared.tally.count(Fate::Lost);
        }
        self.tasks.shutdown().await;
    }
}

/// A handler's panic never gets this far; this would be one of our own.
fn note(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        error!("an execution's task broke down, its lease will expire: {error}");
    }
}
