//! Tells the desk that work has begun, and how far it is.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use tracing::debug;
use wire::{Answer, Desk, Progress};

use crate::roster::Running;
use crate::shared::Shared;

/// At most so often is a change told.
const EVERY: Duration = Duration::from_secs(2);

/// Goes on until dropped. A word that is lost is made up for by the next, and at last by the commit, which
/// implies that the work was begun.
pub(crate) async fn tell<D: Desk>(shared: &Shared<D>, running: &Running) -> Infallible {
    let mut told = None;
    loop {
        let news = (running.context.step(), permille(running), running.context.kept());
        if told.as_ref() != Some(&news) {
            let (step, permille, kept) = news.clone();
            let (proof, progress) = (running.job.proof, running.progress());
            let word = Progress { proof, progress, step, permille, kept };
            match shared.ask(shared.desk.progress(&word)).await {
                Ok(Answer::Accepted | Answer::AlreadyAccepted) => told = Some(news),
                Ok(Answer::Refused(refusal)) => {
                    running.stop.stop(refusal.into());
                    return std::future::pending().await;
                }
                Err(error) => debug!("cannot tell how far it is: {error}"),
            }
        }
        sleep(EVERY).await;
    }
}

fn permille(running: &Running) -> Option<u16> {
    running.context.progress.fraction().map(|fraction| (fraction * 1000.0) as u16)
}
