//! Rings when it is worth looking again.

use super::{Office, Server};
use reqwest::Response;
use rules::JobId;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Between looks where nobody says when: a database is near, and a server may be asked for events instead.
const NEAR: Duration = Duration::from_millis(200);
const FAR: Duration = Duration::from_millis(500);

/// Between looks, however much happens; and though nothing is heard, for what is told may get lost.
const SPACING: Duration = Duration::from_millis(100);
const SILENCE: Duration = Duration::from_secs(5);

pub struct Bell<'a> {
    office: &'a Office,
    job: Option<JobId>,
    /// The server's events, while it tells them.
    events: Option<Response>,
}

impl<'a> Bell<'a> {
    /// Listens from now on, so that whoever looks afterwards misses nothing; for one job, or all.
    pub async fn new(office: &'a Office, job: Option<JobId>) -> Self {
        let mut bell = Bell { office, job, events: None };
        if let Office::Server(there) = office {
            bell.events = bell.listen(there).await;
        }
        bell
    }

    /// Returns when something may have changed.
    pub async fn rings(&mut self) {
        let there = match self.office {
            Office::Database(_) => return sleep(NEAR).await,
            Office::Server(there) => there,
        };
        match &mut self.events {
            Some(events) => {
                let is_broken = timeout(SILENCE, ends(events)).await == Ok(true);
                sleep(SPACING).await;
                if is_broken {
                    self.events = None;
                }
            }
            None => {
                sleep(FAR).await;
                self.events = self.listen(there).await;
            }
        }
    }

    /// A server that cannot be listened to can still be looked at.
    async fn listen(&self, there: &Server) -> Option<Response> {
        let job = self.job.map(|job| job.to_string());
        timeout(SILENCE, there.listen(job)).await.ok()?.ok()
    }
}

/// Waits for an event; whether there will be no more.
async fn ends(events: &mut Response) -> bool {
    loop {
        match events.chunk().await {
            // Comments only keep the connection.
            Ok(Some(block)) if block.windows(6).any(|word| word == b"event:") => return false,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return true,
        }
    }
}
