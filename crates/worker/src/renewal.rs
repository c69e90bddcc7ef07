//! Renews all leases in one request, well before they run out.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tracing::{error, info, warn};
use wire::{Answer, Desk, Renewal};

use crate::pace::Pace;
use crate::roster::Running;
use crate::shared::Shared;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) async fn run<D: Desk>(shared: Arc<Shared<D>>) {
    let mut count = shared.roster.count();
    let mut pace = Pace::new(FIRST_WAIT, LONGEST_WAIT);
    let mut last = Instant::now();
    let mut again_at = None;
    loop {
        let due = again_at.or_else(|| due(&shared.roster.running(), last));
        tokio::select! {
            () = shared.ending.cancelled() => return,
            _ = count.changed() => continue,
            () = sleep_until(due.unwrap_or(last)), if due.is_some() => {}
        }
        again_at = match renew(&shared, &mut pace).await {
            Ok(()) => None,
            Err(_) => Some(Instant::now() + pace.next()),
        };
        last = Instant::now();
    }
}

fn due(running: &[Arc<Running>], last: Instant) -> Option<Instant> {
    running.iter().map(|running| running.context.began().max(last) + running.renewal_interval()).min()
}

/// While the desk is away the work goes on: a lease that has run out and was not taken back can still be
/// renewed.
async fn renew<D: Desk>(shared: &Shared<D>, pace: &mut Pace) -> Result<(), wire::Error> {
    let running = shared.roster.running();
    let renewals: Vec<Renewal> = running.iter().map(|running| running.renewal()).collect();
    if renewals.is_empty() {
        return Ok(());
    }
    match shared.ask(shared.desk.renew(&renewals)).await {
        Ok(answers) => {
            if !pace.is_fresh() {
                info!("the desk is back, leases are renewed again");
            }
            pace.reset();
            hear(&running, &answers);
            Ok(())
        }
        Err(error) => {
            if pace.is_fresh() {
                warn!("cannot renew {} leases, going on with the work: {error}", renewals.len());
            }
            Err(error)
        }
    }
}

fn hear(running: &[Arc<Running>], answers: &[Answer]) {
    if running.len() != answers.len() {
        error!("{} leases to renew and {} answers", running.len(), answers.len());
        return;
    }
    for (running, answer) in running.iter().zip(answers) {
        if let Answer::Refused(refusal) = answer {
            let id = running.id();
            running.span.in_scope(|| warn!("ending {id}, its lease was not renewed: {refusal}"));
            running.stop.stop((*refusal).into());
        }
    }
}
