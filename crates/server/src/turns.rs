//! Requests that need no authentication are worked on a few at a time: a few of each client, and a few of all.
//!
//! A client that asks for much waits for itself. Its requests hold a small part of the turns, so others are answered at
//! once.

use crate::app::App;
use crate::problem::Error;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Requests that are worked on at a time.
pub const ALL: usize = 64;
/// Of these, of one client.
const OF_ONE: usize = 8;

/// A request that has had no turn by then is refused.
const PATIENCE: Duration = Duration::from_secs(10);

pub struct Turns {
    all: Semaphore,
    clients: Mutex<HashMap<IpAddr, Arc<Semaphore>>>,
}

impl Default for Turns {
    fn default() -> Self {
        Turns { all: Semaphore::new(ALL), clients: Mutex::default() }
    }
}

impl Turns {
    /// Does the work in the client's turn; nothing if there was none in time.
    pub async fn take<T>(&self, client: IpAddr, work: impl Future<Output = T>) -> Option<T> {
        let queue = Queue::join(self, client);
        let waiting = async { (queue.own.acquire().await, self.all.acquire().await) };
        let _turn = tokio::time::timeout(PATIENCE, waiting).await.ok()?;
        Some(work.await)
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, Arc<Semaphore>>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client's own queue; forgotten when nothing waits in it.
struct Queue<'a> {
    turns: &'a Turns,
    client: IpAddr,
    own: Arc<Semaphore>,
}

impl<'a> Queue<'a> {
    fn join(turns: &'a Turns, client: IpAddr) -> Self {
        let mut clients = turns.clients();
        let own = clients.entry(client).or_insert_with(|| Arc::new(Semaphore::new(OF_ONE))).clone();
        Queue { turns, client, own }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        let mut clients = self.turns.clients();
        // The map's and this one's.
        if Arc::strong_count(&self.own) <= 2 {
            clients.remove(&self.client);
        }
    }
}

pub async fn take(State(app): State<App>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let client = app.addresses.of(&parts);
    let work = next.run(Request::from_parts(parts, body));
    app.turns.take(client, work).await.unwrap_or_else(|| {
        Error::Protocol {
            status: StatusCode::SERVICE_UNAVAILABLE,
            code: "too_busy",
            detail: "too many requests from this address wait for an answer; try again".into(),
        }
        .into_response()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::net::Ipv4Addr;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_for_much_waits_for_itself_alone() {
        let turns = Arc::new(Turns::default());
        let address = |last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last));
        let mut working = tokio::task::JoinSet::new();
        for _ in 0..3 * ALL {
            let turns = turns.clone();
            working.spawn(async move { turns.take(address(1), pending::<()>()).await });
        }
        tokio::task::yield_now().await;

        assert_eq!(turns.take(address(2), async { "done" }).await, Some("done"));
        assert_eq!(turns.take(address(1), async { "done" }).await, None);
        working.shutdown().await;
        assert_eq!(turns.take(address(1), async { "done" }).await, Some("done"));
        assert!(turns.clients().is_empty());
    }
}
