//! A report is told until the desk has taken or refused it: a result outlives any absence of the desk.

use std::time::Duration;

use rules::task::Refusal;
use tokio::time::sleep;
use tracing::warn;
use wire::{Answer, Commit, Desk, Failure};

use crate::handler::{Failed, Outcome};
use crate::pace::Pace;
use crate::roster::Running;
use crate::shared::Shared;

const FIRST_WAIT: Duration = Duration::from_millis(250);

/// How often a lease that ran out before the report came is renewed for its sake.
const RENEWALS: u32 = 3;

pub(crate) enum Told {
    Taken,
    Refused(Refusal),
    /// The desk cannot make sense of it.
    Rejected(String),
}

pub(crate) async fn commit<D: Desk>(shared: &Shared<D>, running: &Running, outcome: Outcome) -> Told {
    let (usage, steps) = running.context.recorded();
    let Outcome { result, publication, arrival } = outcome;
    let word = Commit { proof: running.job.proof, result, publication, arrival, usage, steps };
    tell(shared, running, || shared.desk.commit(&word)).await
}

pub(crate) async fn fail<D: Desk>(shared: &Shared<D>, running: &Running, failed: Failed) -> Told {
    let (usage, steps) = running.context.recorded();
    let Failed { kind, message } = failed;
    let word = Failure { proof: running.job.proof, kind, message, usage, steps };
    tell(shared, running, || shared.desk.fail(&word)).await
}

async fn tell<D, F>(shared: &Shared<D>, running: &Running, say: impl Fn() -> F) -> Told
where
    D: Desk,
    F: Future<Output = Result<Answer, wire::Error>>,
{
    let id = running.id();
    let mut pace = Pace::new(FIRST_WAIT, shared.options.error_wait_max);
    let mut renewals = RENEWALS;
    loop {
        match shared.ask(say()).await {
            Ok(Answer::Accepted | Answer::AlreadyAccepted) => return Told::Taken,
            Ok(Answer::Refused(Refusal::LeaseExpired)) if renewals > 0 && renew(shared, running).await => {
                renewals -= 1;
            }
            Ok(Answer::Refused(refusal)) => return Told::Refused(refusal),
            Err(wire::Error::Rejected(why)) => return Told::Rejected(why),
            Err(wire::Error::Away(why)) => {
                if pace.is_fresh() {
                    warn!("keeping the report of {id}, the desk is away: {why}");
                }
                sleep(pace.next()).await;
            }
        }
    }
}

/// A lease that ran out while the desk was away and was not taken back since can still be renewed. Whether it
/// was is left to the next try.
async fn renew<D: Desk>(shared: &Shared<D>, running: &Running) -> bool {
    let answers = shared.ask(shared.desk.renew(&[running.renewal()])).await;
    !matches!(answers.as_deref(), Ok([Answer::Refused(_)]))
}
