//! One execution: do the work, say how it went.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rules::failure::Kind;
use rules::lease::Ended;
use rules::phase::Trigger;
use rules::task::Refusal;
use telemetry::metrics::{EXECUTION_BYTES, EXECUTION_CPU, EXECUTION_DURATION};
use tracing::{error, info, warn};
use wire::Desk;

use crate::handler::{Failed, Outcome};
use crate::report::{self, Told};
use crate::roster::{Running, Seat};
use crate::shared::Shared;
use crate::stop::Reason;
use crate::tally::Fate;
use crate::{limits, telling, trace};

/// How long a handler may take to end after it was asked to; a command has its own grace within it.
const STOP_GRACE: Duration = Duration::from_secs(5);

pub(crate) async fn carry_out<D: Desk>(shared: Arc<Shared<D>>, seat: Seat) {
    let ended = if shared.shutdown.is_draining() {
        Err(drained())
    } else {
        work(&shared, &seat).await
    };
    // First, for it may be in the way: on a full disk a failure can only be told when there is room again.
    seat.context.remove_folder().await;
    let fate = conclude(&shared, &seat, ended).await;
    seat.step(Trigger::Reported);
    shared.tally.count(fate);
    measure(&seat, fate);
    trace::ended(fate);
}

fn measure(running: &Running, fate: Fate) {
    let (kind, usage) = (running.job.kind.as_str(), running.context.recorded().0);
    // Rates of failures are read beside those of successes.
    [Fate::Done, Fate::Failed].into_iter().for_each(|fate| EXECUTION_DURATION.expect([kind, fate.as_str()]));
    EXECUTION_DURATION.observe([kind, fate.as_str()], running.context.began().elapsed().as_secs_f64());
    EXECUTION_CPU.add([kind], usage.cpu_ms as f64 / 1000.0);
    EXECUTION_BYTES.add(["in"], usage.bytes_in as f64);
    EXECUTION_BYTES.add(["out"], usage.bytes_out as f64);
}

async fn work<D: Desk>(shared: &Shared<D>, running: &Running) -> Result<Outcome, Failed> {
    let Some(handler) = shared.handlers.get(&running.job.kind) else {
        return Err(Failed::transient(format!("this worker cannot do `{}`", running.job.kind)));
    };
    failpoint::reached(&format!("{}_{}", running.job.stage, running.job.segment), "begun");
    let mut doing = pin!(unbroken(handler.run(&running.job, &running.context)));
    tokio::select! {
        // The work first: what ends at its first breath needs no word that it began.
        biased;
        ended = &mut doing => ended,
        never = telling::tell(shared, running) => match never {},
        never = limits::watch(running) => match never {},
        () = overstayed(running) => Err(Failed::transient("did not end when asked to")),
    }
}

async fn overstayed(running: &Running) {
    running.stop.asked().await;
    tokio::time::sleep(STOP_GRACE).await;
}

/// A handler that panics has failed, and that is all.
async fn unbroken(work: impl Future<Output = Result<Outcome, Failed>>) -> Result<Outcome, Failed> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| {
            Poll::Ready(Err(Failed::transient(format!("the worker broke down: {}", words_of(&*panic)))))
        })
    })
    .await
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

async fn conclude<D: Desk>(shared: &Shared<D>, running: &Running, ended: Result<Outcome, Failed>) -> Fate {
    match (ended, running.stop.reason()) {
        (_, Some(Reason::Lost(refusal))) => {
            running.step(Trigger::Failed);
            lost(running, refusal)
        }
        // Done in spite of being asked to stop: the desk decides whether it was in time.
        (Ok(outcome), _) => {
            running.step(Trigger::Succeeded);
            succeed(shared, running, outcome).await
        }
        (Err(failed), reason) => {
            running.step(Trigger::Failed);
            fail(shared, running, because(running, reason, failed)).await
        }
    }
}

async fn succeed<D: Desk>(shared: &Shared<D>, running: &Running, outcome: Outcome) -> Fate {
    let id = running.id();
    match report::commit(shared, running, outcome).await {
        Told::Taken => {
            info!("done: {id}");
            shared.storage.is_well();
            Fate::Done
        }
        Told::Refused(refusal) => lost(running, refusal),
        Told::Rejected(why) => {
            error!("the desk cannot take the result of {id}: {why}");
            fail(shared, running, Failed::transient(format!("the result was not accepted: {why}"))).await
        }
    }
}

async fn fail<D: Desk>(shared: &Shared<D>, running: &Running, mut failed: Failed) -> Fate {
    if failed.kind == Kind::DiskFull && shared.options.fails_on_full_disk {
        failed.kind = Kind::Transient;
    }
    let (id, kind) = (running.id(), failed.kind);
    match kind {
        Kind::Drained => info!("giving back {id}"),
        _ => warn!(failure = %kind, "failed: {id}: {failed}"),
    }
    match kind {
        Kind::StorageAway => shared.storage.is_away(),
        Kind::DiskFull => shared.disk_was_full().await,
        _ => {}
    }
    match report::fail(shared, running, failed).await {
        Told::Taken if !kind.counts() => Fate::GivenBack,
        Told::Taken => Fate::Failed,
        Told::Refused(refusal) => lost(running, refusal),
        Told::Rejected(why) => {
            error!("the desk cannot take the failure of {id}: {why}");
            Fate::Lost
        }
    }
}

fn lost(running: &Running, refusal: Refusal) -> Fate {
    let id = running.id();
    warn!("dropped {id}: {refusal}");
    Fate::Lost
}

/// What the failure of stopped work is put down to; its own account would only say that it was stopped. Work that stood
/// still for want of its files knows more.
fn because(running: &Running, reason: Option<Reason>, failed: Failed) -> Failed {
    let context = &running.context;
    match reason {
        Some(Reason::Drained) => drained(),
        Some(Reason::Ended(_)) if failed.kind == Kind::StorageAway => failed,
        Some(Reason::Ended(Ended::Stalled)) => {
            Failed::transient(format!("no progress for {:?}", context.stall().unwrap_or_default()))
        }
        Some(Reason::Ended(Ended::Overdue)) => Failed::transient(format!(
            "still running after {:?}, its time limit",
            context.timeout().unwrap_or_default()
        )),
        Some(Reason::Lost(_)) | None => failed,
    }
}

fn drained() -> Failed {
    Failed { kind: Kind::Drained, message: "the worker is shutting down".into() }
}
