//! A worker's life.

use std::convert::Infallible;
use std::future::pending;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use telemetry::metrics::SLOTS;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{Instrument, error_span, field, info, warn};
use wire::Desk;

use crate::cycle::Cycle;
use crate::shared::{Shared, blocking};
use crate::slots::Slots;
use crate::{Error, Handlers, Options, Shutdown, Summary, dismissal, heartbeat, renewal};

/// How long the last heartbeat may take; without it the worker is found missing later.
const FAREWELL: Duration = Duration::from_secs(5);

/// Works until asked to end, or until nothing is left to do if the options say so.
///
/// When asked once it takes nothing new and finishes what it has, within the drain deadline; asked twice, it
/// gives back what is unfinished at once. An absent desk is waited for; only one that does not accept the
/// worker any more, or a folder that cannot be used, is an error. Dropping the future ends everything without a word.
pub async fn run<D: Desk>(
    desk: D,
    handlers: Handlers,
    options: Options,
    shutdown: Shutdown,
) -> Result<Summary, Error> {
    let shared = Arc::new(Shared::new(desk, handlers, options, shutdown.child()).await?);
    SLOTS.set([], shared.options.slots.get().into());
    // Names the worker in every line of the log that is about it, once the desk has said how it is called.
    let span = error_span!("worker", worker.id = field::Empty);
    lead(shared).instrument(span).await
}

async fn lead<D: Desk>(shared: Arc<Shared<D>>) -> Result<Summary, Error> {
    let mut beside = JoinSet::new();
    beside.spawn(heartbeat::run(shared.clone()).in_current_span());
    beside.spawn(renewal::run(shared.clone()).in_current_span());
    beside.spawn(dismissal::run(shared.clone()).in_current_span());
    let mut slots = Slots::new(shared.clone());

    let ended = tokio::select! {
        ended = live(&shared, &mut slots) => ended,
        never = fallen(&mut beside) => match never {},
    };

    shared.ending.cancel();
    if ended.is_ok() {
        leave(&shared, beside).await;
    }
    close(&shared).await;
    if let (Ok(()), Some(why)) = (&ended, shared.dismissed.get()) {
        return Err(Error::Dismissed(why.clone()));
    }
    ended.map(|()| shared.tally.summary())
}

async fn live<D: Desk>(shared: &Arc<Shared<D>>, slots: &mut Slots<D>) -> Result<(), Error> {
    Cycle::new(shared.clone(), slots).run().await?;
    shared.shutdown.drain();
    slots.drain().await;
    Ok(())
}

/// Passes on a panic of what runs beside the work: a worker without it would only seem to work.
async fn fallen(beside: &mut JoinSet<()>) -> Infallible {
    match beside.join_next().await {
        Some(Err(error)) if error.is_panic() => resume_unwind(error.into_panic()),
        _ => pending().await,
    }
}

async fn leave<D: Desk>(shared: &Shared<D>, mut beside: JoinSet<()>) {
    let all_ended = async { while beside.join_next().await.is_some() {} };
    if timeout(FAREWELL, all_ended).await.is_err() {
        beside.shutdown().await;
    }
    let summary = shared.tally.summary();
    info!("leaving: {summary:?}");
    if shared.registered.get().is_some() && !matches!(timeout(FAREWELL, shared.beat(true)).await, Ok(Ok(())))
    {
        warn!("left without a word: the desk is away");
    }
}

async fn close<D: Desk>(shared: &Shared<D>) {
    let workshop = shared.workshop.clone();
    if let Err(error) = blocking(move || workshop.close()).await {
        warn!("cannot remove the worker's folder, a later worker will: {error}");
    }
}
