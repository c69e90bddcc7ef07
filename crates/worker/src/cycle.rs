//! The worker's loop: document 004, phase by phase.
//!
//! There, one loop does one task at a time. Here, several slots are that loop side by side. All *free* slots
//! stand at the same place and move as one: they are [`Cycle`], with the phase of the roster, and pass
//! through `Startup`, `Connecting`, `Recovery`, `Polling`, `Backoff`, `Idle`, `ErrorWait` and `Claiming`
//! together. A claim is for all of them at once. Each slot that gets a lease leaves the others at `Claiming`
//! and goes alone through `Processing` and a `Reporting…` (see `execution`) until it is back at `Polling`,
//! where it joins them again; to those that got none the claim is lost, and they are at `Polling` already.
//! With no slot free, the loop waits there for the first to come back.
//!
//! Two ways lead elsewhere than in the document. An absent desk, or storage, sends the loop to `ErrorWait`, but not a
//! slot: it goes on with its work, and stays at `Reporting…` until the desk is back, for a result must not be
//! lost to a short outage. And the loop ends when the worker is asked to, or when there is nothing left to
//! do.

use std::sync::Arc;
use std::time::Duration;

use rules::phase::{Phase, Trigger};
use tokio::time::{Instant, sleep};
use tracing::{error, warn};
use wire::Desk;

use crate::Error;
use crate::admission::Door;
use crate::pace::Pace;
use crate::shared::{Shared, blocking};
use crate::slots::Slots;
use crate::storage::Seen;

/// How often to look for what dead predecessors left behind.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(600);

/// How often to look whether there is room for work again.
const ROOM_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) struct Cycle<'a, D> {
    shared: Arc<Shared<D>>,
    slots: &'a mut Slots<D>,
    /// The desk answered last time.
    is_connected: bool,
    recover_at: Instant,
    /// Between tries while the desk is away.
    error_wait: Pace,
    /// Between tries while the storage is away.
    storage_wait: Pace,
    is_storage_waited_for: bool,
    /// Between looks while there is no work.
    idle: Pace,
    interval: Duration,
    /// How long hints do not count, because the last came to nothing: a desk that always hints must not make
    /// us spin. Zero at any look for work that may find some.
    deaf: Duration,
    was_hinted: bool,
    /// The last claim got all it asked for: there is likely more, and no need to look first.
    is_backlog_likely: bool,
    /// The desk said that there is work, and it is not merely likely.
    is_promised: bool,
    /// How many tasks there was room for at the last look.
    admitted: u32,
    door: Door,
}

impl<'a, D: Desk> Cycle<'a, D> {
    pub fn new(shared: Arc<Shared<D>>, slots: &'a mut Slots<D>) -> Self {
        let options = &shared.options;
        Cycle {
            slots,
            is_connected: false,
            recover_at: Instant::now(),
            error_wait: Pace::new(options.error_wait, options.error_wait_max),
            storage_wait: Pace::new(options.error_wait, options.error_wait_max),
            is_storage_waited_for: false,
            idle: Pace::new(options.idle_min, options.idle_max),
            interval: options.idle_min,
            deaf: Duration::ZERO,
            was_hinted: false,
            is_backlog_likely: false,
            is_promised: false,
            admitted: 0,
            door: Door::default(),
            shared,
        }
    }

    /// Returns when the worker is asked to end or has nothing left to do; slots may still be at work then.
    pub async fn run(&mut self) -> Result<(), Error> {
        while let Some(trigger) = self.next().await? {
            self.shared.roster.step(trigger);
        }
        Ok(())
    }

    /// What the present phase leads to; none if the loop is to end.
    async fn next(&mut self) -> Result<Option<Trigger>, Error> {
        let shutdown = self.shared.shutdown.clone();
        let phase = self.shared.roster.phase();
        if phase == Phase::Claiming && !shutdown.is_draining() {
            // Seen through to its end: a lease nobody has heard of would have to run out.
            return Ok(self.claim().await);
        }
        tokio::select! {
            biased;
            () = shutdown.draining() => Ok(None),
            trigger = self.act(phase) => trigger,
        }
    }

    async fn act(&mut self, phase: Phase) -> Result<Option<Trigger>, Error> {
        Ok(match phase {
            Phase::Startup => Some(Trigger::Started),
            Phase::Connecting => Some(self.connect().await?),
            Phase::Recovery => Some(self.recover().await),
            Phase::Polling => Some(self.poll().await),
            Phase::Backoff => self.back_off().await,
            Phase::Idle => Some(self.wait_for_work().await),
            Phase::Claiming => self.claim().await,
            Phase::ErrorWait => Some(self.wait_out().await),
            Phase::Processing | Phase::ReportingSuccess | Phase::ReportingFailure => {
                error!("the loop is in {phase}, where only slots can be");
                Some(Trigger::Broke)
            }
        })
    }

    async fn connect(&mut self) -> Result<Trigger, Error> {
        if self.is_connected && !self.shared.is_forgotten() {
            return Ok(Trigger::Connected);
        }
        let is_new = self.shared.registered.get().is_none();
        match self.introduce(is_new).await {
            Ok(()) => {
                self.is_connected = true;
                Ok(Trigger::Connected)
            }
            Err(wire::Error::Rejected(why)) if is_new => Err(Error::Rejected(why)),
            Err(error) => Ok(self.broke(&error)),
        }
    }

    /// A desk that does not know the worker any more is told anew.
    async fn introduce(&self, is_new: bool) -> Result<(), wire::Error> {
        if !is_new {
            match self.shared.beat(false).await {
                Err(wire::Error::Rejected(_)) => {}
                other => return other,
            }
        }
        self.shared.register().await
    }

    async fn recover(&mut self) -> Trigger {
        if self.recover_at <= Instant::now() {
            let workshop = self.shared.workshop.clone();
            if let Err(error) = blocking(move || workshop.clear_away()).await {
                warn!("cannot clear away what dead workers left: {error}");
            }
            self.recover_at = Instant::now() + RECOVERY_INTERVAL;
        }
        Trigger::Recovered
    }

    async fn poll(&mut self) -> Trigger {
        if self.slots.free() == 0 {
            self.slots.freed().await;
        }
        match self.shared.storage.news() {
            Some(Seen::Away) => return self.storage_broke(),
            Some(Seen::Well) => self.storage_wait.reset(),
            None => {}
        }
        if !self.shared.may_claim() {
            self.deaf = self.shared.options.idle_max;
        } else if !self.has_room().await {
            self.deaf = self.deaf.max(ROOM_INTERVAL.min(self.shared.options.idle_max));
        }
        if !self.deaf.is_zero() {
            return Trigger::NoTask;
        }
        if std::mem::take(&mut self.is_backlog_likely) {
            return Trigger::TaskFound;
        }
        match self.shared.ask(self.shared.desk.has_work(self.shared.id)).await {
            Ok(true) => {
                self.is_promised = true;
                Trigger::TaskFound
            }
            Ok(false) => {
                self.error_wait.reset();
                self.deaf = if self.was_hinted { self.shared.options.idle_min } else { Duration::ZERO };
                Trigger::NoTask
            }
            Err(error) => self.broke(&error),
        }
    }

    /// A free slot is not enough: there must be disk and memory for it.
    async fn has_room(&mut self) -> bool {
        let admitted = self.shared.admit(self.slots.free()).await;
        self.door.note(&admitted);
        self.shared.note(&admitted);
        self.admitted = admitted.unwrap_or(0);
        self.admitted > 0
    }

    async fn claim(&mut self) -> Option<Trigger> {
        let (shared, began) = (self.shared.clone(), Instant::now());
        let free = self.slots.free().min(self.admitted);
        let is_promised = std::mem::take(&mut self.is_promised);
        let answer = tokio::select! {
            biased;
            answer = shared.ask(shared.desk.claim(shared.id, free)) => answer,
            () = shared.shutdown.giving_back() => return None,
        };
        match answer {
            Ok(jobs) if jobs.is_empty() => {
                // A hint would only promise the same again.
                self.deaf = if is_promised { self.interval } else { Duration::ZERO };
                Some(Trigger::ClaimLost)
            }
            Ok(jobs) => {
                self.error_wait.reset();
                self.idle.reset();
                self.is_backlog_likely = jobs.len() >= free as usize;
                jobs.into_iter().for_each(|job| self.slots.start(job, began));
                Some(Trigger::ClaimLost)
            }
            Err(error) => Some(self.broke(&error)),
        }
    }

    async fn back_off(&mut self) -> Option<Trigger> {
        if self.slots.is_empty()
            && let Some(is_over) = &self.shared.options.exit_when_idle
            && is_over.ask().await
        {
            return None;
        }
        self.interval = self.idle.next();
        Some(Trigger::IntervalSet)
    }

    async fn wait_for_work(&mut self) -> Trigger {
        let shared = self.shared.clone();
        let deaf = std::mem::take(&mut self.deaf);
        let hint = async {
            sleep(deaf).await;
            shared.desk.wait_for_work().await;
        };
        self.was_hinted = false;
        tokio::select! {
            () = sleep(self.interval.max(deaf)) => {}
            () = hint => self.was_hinted = true,
            // What it finished may have made other work ready.
            () = self.slots.freed() => self.idle.reset(),
        }
        Trigger::Woken
    }

    async fn wait_out(&mut self) -> Trigger {
        let is_for_storage = std::mem::take(&mut self.is_storage_waited_for);
        let pace = if is_for_storage { &mut self.storage_wait } else { &mut self.error_wait };
        sleep(pace.next()).await;
        Trigger::WaitedOut
    }

    /// What would be claimed now would only be given back as well.
    fn storage_broke(&mut self) -> Trigger {
        if self.storage_wait.is_fresh() {
            warn!("the storage is away; taking nothing new for a while, and for longer while it lasts");
        }
        self.is_storage_waited_for = true;
        Trigger::Broke
    }

    fn broke(&mut self, error: &wire::Error) -> Trigger {
        self.is_connected = false;
        match error {
            wire::Error::Away(_) if self.error_wait.is_fresh() => warn!("{error}; trying again"),
            wire::Error::Away(_) => {}
            wire::Error::Rejected(_) => error!("the desk does not accept what this worker asks: {error}"),
        }
        Trigger::Broke
    }
}
