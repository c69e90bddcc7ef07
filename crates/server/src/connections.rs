//! How many connections there may be: in all, of clients that have not authenticated, and of each such client.
//!
//! A connection counts against its address until a request on it authenticates. A connection of a trusted proxy does not;
//! each unauthenticated request on it counts against the client that the proxy names, until it is answered.
//!
//! When there are too many in all, one that waits for a request makes room for the next: whoever opens connections and
//! says nothing shuts out nobody. One that has authenticated, or is being answered, is never closed for that.
//!
//! The requests of such a client are also taken up no faster than its [`Pace`].

use crate::pace::Pace;
use crate::waiting::Waiting;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How often the log says that connections were closed to make room.
const REPORTING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// All connections.
    pub total: usize,
    /// Connections, and requests through a proxy, of clients that have not authenticated.
    pub unauthenticated: usize,
    /// The same, of one address.
    pub per_address: usize,
}

/// Which cap is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Total,
    Unauthenticated,
    PerAddress,
}

impl Reached {
    /// The setting that changes the cap.
    pub fn setting(self) -> &'static str {
        match self {
            Reached::Total | Reached::Unauthenticated => "max_connections",
            Reached::PerAddress => "max_connections_per_address",
        }
    }

    pub fn detail(self) -> &'static str {
        match self {
            Reached::Total => "the server has reached its limit of connections; try again later",
            Reached::Unauthenticated => {
                "the server has reached its limit of connections of clients that have not authenticated; try again later"
            }
            Reached::PerAddress => {
                "this address has reached its limit of connections without authentication; close some, or authenticate"
            }
        }
    }
}

pub struct Connections {
    caps: Caps,
    open: Mutex<Open>,
    pace: Pace,
}

#[derive(Default)]
struct Open {
    total: usize,
    unauthenticated: usize,
    by_address: HashMap<IpAddr, usize>,
    waiting: Waiting,
    displaced: Displaced,
}

/// Connections that were closed to make room since the log last said so.
#[derive(Default)]
struct Displaced {
    count: u64,
    reported: Option<Instant>,
}

impl Connections {
    pub fn new(caps: Caps) -> Arc<Self> {
        Arc::new(Connections { caps, open: Mutex::default(), pace: Pace::default() })
    }

    /// A connection of a client, which has not authenticated yet.
    pub fn connect(self: &Arc<Self>, client: IpAddr) -> Result<(Seat, Visitor), Reached> {
        let mut open = self.open();
        open.make_room_for(&self.caps, client)?;
        open.make_room(&self.caps)?;
        open.enter(client);
        open.total += 1;
        let closing = CancellationToken::new();
        let seat = Seat { connections: self.clone(), closing: closing.clone() };
        let waiting = Some(open.waiting.add(client, closing.clone()));
        Ok((seat, Visitor::unknown(self.clone(), client, waiting, closing)))
    }

    /// A connection of a trusted proxy.
    pub fn connect_proxy(self: &Arc<Self>) -> Result<Seat, Reached> {
        let mut open = self.open();
        open.make_room(&self.caps)?;
        open.total += 1;
        Ok(Seat { connections: self.clone(), closing: CancellationToken::new() })
    }

    /// A request of a client through a proxy, which has not authenticated yet.
    pub fn request(self: &Arc<Self>, client: IpAddr) -> Result<Visitor, Reached> {
        let mut open = self.open();
        open.make_room_for(&self.caps, client)?;
        open.enter(client);
        Ok(Visitor::unknown(self.clone(), client, None, CancellationToken::new()))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn make_room(&mut self, caps: &Caps) -> Result<(), Reached> {
        if self.total < caps.total { Ok(()) } else { self.displace(Reached::Total) }
    }

    fn make_room_for(&mut self, caps: &Caps, client: IpAddr) -> Result<(), Reached> {
        if self.by_address.get(&client).is_some_and(|count| *count >= caps.per_address) {
            return Err(Reached::PerAddress);
        }
        if self.unauthenticated < caps.unauthenticated {
            Ok(())
        } else {
            self.displace(Reached::Unauthenticated)
        }
    }

    /// Closes a connection that waits for a request, if there is one.
    fn displace(&mut self, reached: Reached) -> Result<(), Reached> {
        let (client, closing) = self.waiting.take().ok_or(reached)?;
        // It is counted out here, and not again when its task gets to end.
        closing.cancel();
        self.leave(client);
        self.total -= 1;
        self.displaced.note(client, reached);
        Ok(())
    }

    fn enter(&mut self, client: IpAddr) {
        self.unauthenticated += 1;
        *self.by_address.entry(client).or_default() += 1;
    }

    fn leave(&mut self, client: IpAddr) {
        self.unauthenticated -= 1;
        match self.by_address.get_mut(&client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.by_address.remove(&client)),
        }
    }
}

impl Displaced {
    fn note(&mut self, client: IpAddr, reached: Reached) {
        self.count += 1;
        if self.reported.is_none_or(|at| at.elapsed() >= REPORTING) {
            let (count, setting) = (std::mem::take(&mut self.count), reached.setting());
            tracing::warn!(
                "closed {count} connections that sent no whole request, the last of {client}, to make room for others; \
                 the setting {setting} is the limit"
            );
            self.reported = Some(Instant::now());
        }
    }
}

/// An open connection, counted until this is dropped or it is closed to make room.
pub struct Seat {
    connections: Arc<Connections>,
    /// Cancelled under the lock of what is open.
    closing: CancellationToken,
}

impl Seat {
    /// Cancelled when the connection is to be closed, to make room.
    pub fn closing(&self) -> CancellationToken {
        self.closing.clone()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut open = self.connections.open();
        if !self.closing.is_cancelled() {
            open.total -= 1;
        }
    }
}

/// A client: counted against its address until it authenticates, it is closed to make room, or this is dropped.
pub struct Visitor {
    connections: Arc<Connections>,
    closing: CancellationToken,
    /// Locked before what is open, never after.
    standing: Mutex<Standing>,
}

struct Standing {
    unknown: Option<IpAddr>,
    /// Its number among those that wait for a request.
    waiting: Option<u64>,
}

impl Visitor {
    fn unknown(
        connections: Arc<Connections>,
        client: IpAddr,
        waiting: Option<u64>,
        closing: CancellationToken,
    ) -> Self {
        let standing = Mutex::new(Standing { unknown: Some(client), waiting });
        Visitor { connections, closing, standing }
    }

    pub fn has_authenticated(&self) -> bool {
        self.standing().unknown.is_none()
    }

    /// Waits until its next request is due, unless it has authenticated.
    pub async fn keep_pace(&self) {
        let unknown = self.standing().unknown;
        if let Some(client) = unknown {
            self.connections.pace.keep(client).await;
        }
    }

    /// Its connection is answered from now on, and stays; false if it was closed to make room just before.
    pub fn take_up(&self) -> bool {
        let mut standing = self.standing();
        let Some(client) = standing.unknown else { return true };
        let mut open = self.connections.open();
        if self.closing.is_cancelled() {
            return false;
        }
        if let Some(number) = standing.waiting.take() {
            open.waiting.remove(client, number);
        }
        true
    }

    /// Its connection has its answer, and may make room for another.
    pub fn wait(&self) {
        let mut standing = self.standing();
        if let Standing { unknown: Some(client), waiting: None } = *standing {
            standing.waiting = Some(self.connections.open().waiting.add(client, self.closing.clone()));
        }
    }

    /// From now on it does not count against its address.
    pub fn authenticate(&self) {
        let mut standing = self.standing();
        let Some(client) = standing.unknown.take() else { return };
        let mut open = self.connections.open();
        if self.closing.is_cancelled() {
            return;
        }
        if let Some(number) = standing.waiting.take() {
            open.waiting.remove(client, number);
        }
        open.leave(client);
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.authenticate();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const CAPS: Caps = Caps { total: 5, unauthenticated: 4, per_address: 2 };

    fn address(last: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(192, 0, 2, last))
    }

    #[test]
    fn an_address_has_few_connections_until_it_authenticates() {
        let connections = Connections::new(CAPS);
        let first = connections.connect(address(1)).unwrap();
        let _second = connections.connect(address(1)).unwrap();

        assert_eq!(connections.connect(address(1)).err(), Some(Reached::PerAddress));
        let _other = connections.connect(address(2)).unwrap();

        first.1.authenticate();
        let _third = connections.connect(address(1)).unwrap();
        assert_eq!(connections.connect(address(1)).err(), Some(Reached::PerAddress));
    }

    #[test]
    fn unauthenticated_clients_leave_room_for_others_and_everybody_has_an_end() {
        let connections = Connections::new(CAPS);
        let strangers: Vec<_> =
            [1, 1, 2, 2].map(|last| connections.connect(address(last)).unwrap()).into_iter().collect();
        assert!(strangers.iter().all(|(_, stranger)| stranger.take_up()));

        assert_eq!(connections.connect(address(3)).err(), Some(Reached::Unauthenticated));
        strangers[0].1.authenticate();
        let fifth = connections.connect(address(3)).unwrap();
        assert!(fifth.1.take_up());
        strangers[1].1.authenticate();
        assert_eq!(connections.connect(address(4)).err(), Some(Reached::Total));
        assert_eq!(connections.connect_proxy().err(), Some(Reached::Total));
    }

    #[test]
    fn what_is_closed_leaves_nothing_behind() {
        let connections = Connections::new(CAPS);
        for _ in 0..10 {
            let (_seat, visitor) = connections.connect(address(1)).unwrap();
            visitor.authenticate();
            visitor.authenticate();
            let _through_a_proxy = connections.request(address(1)).unwrap();
        }

        let open = connections.open();
        assert_eq!((open.total, open.unauthenticated, open.by_address.len()), (0, 0, 0));
        assert!(open.waiting.is_empty());
    }

    #[test]
    fn who_waits_makes_room_and_who_is_answered_or_has_authenticated_stays() {
        let connections = Connections::new(CAPS);
        let connect = |last| connections.connect(address(last)).unwrap();
        let is_open = |(seat, _): &(Seat, Visitor)| !seat.closing().is_cancelled();
        let (answered, admin) = (connect(1), connect(2));
        assert!(answered.1.take_up() && admin.1.take_up());
        admin.1.authenticate();
        let (first, second, of_another) = (connect(3), connect(3), connect(4));

        let fresh = connect(5);
        assert!(!is_open(&first), "the one that waited longest, of the address with the most, makes room");
        assert!(!first.1.take_up(), "and a request on it comes too late");

        second.1.take_up();
        let newest = connect(6);
        assert!(!is_open(&of_another), "of addresses with as many, the one that waited longest makes room");

        second.1.wait();
        fresh.1.take_up();
        newest.1.take_up();
        let last = connect(7);
        assert!(!is_open(&second), "one that has its answer makes room again");

        last.1.take_up();
        assert_eq!(connections.connect(address(8)).err(), Some(Reached::Unauthenticated));
        assert!(is_open(&answered) && is_open(&admin));
        drop((answered, admin, first, second, of_another, fresh, newest, last));
        let open = connections.open();
        assert_eq!((open.total, open.unauthenticated, open.by_address.len()), (0, 0, 0));
        assert!(open.waiting.is_empty());
    }

    #[test]
    fn a_full_server_makes_room_for_a_proxy_and_its_requests() {
        let connections = Connections::new(Caps { total: 2, unauthenticated: 2, per_address: 2 });
        let strangers = [1, 1].map(|last| connections.connect(address(last)).unwrap());

        let _proxy = connections.connect_proxy().unwrap();
        let _request = connections.request(address(2)).unwrap();
        assert!(strangers[0].0.closing().is_cancelled() && !strangers[1].0.closing().is_cancelled());
        let _another = connections.request(address(2)).unwrap();
        assert!(strangers[1].0.closing().is_cancelled());
        assert_eq!(connections.request(address(3)).err(), Some(Reached::Unauthenticated));
    }

    #[test]
    fn requests_through_a_proxy_count_against_the_client_it_names() {
        let connections = Connections::new(CAPS);
        let _proxy = connections.connect_proxy().unwrap();
        let _requests = [1, 1].map(|last| connections.request(address(last)).unwrap());

        assert_eq!(connections.request(address(1)).err(), Some(Reached::PerAddress));
        assert!(connections.request(address(2)).is_ok());
    }
}
