//! How many connections there may be: in all, of clients that have not authenticated, and of each such client.
//!
//! A connection counts against its address until a request on it authenticates. A connection of a trusted proxy does not;
//! each unauthenticated request on it counts against the client that the proxy names, until it is answered.
//!
//! When there are too many in all, one that waits for a request, or whose request waits for its pace, makes room for the
//! next. If none waits, one that is being answered does, of the address that has the most of these, unless the newcomer's
//! address has as many: a client that reads slowly from many connections shuts out nobody. One that has authenticated is
//! never closed for that.
//!
//! The requests of such a client are also taken up no faster than its [`Pace`].

use crate::client_address::{Network, networks_of};
use crate::pace::{Pace, Rate, TooFast};
use crate::strangers::Strangers;
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
    /// The same, of one address. Wider networks of IPv6 may have some times as many.
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
    by_network: HashMap<Network, usize>,
    /// For a request, or with one for its pace.
    waiting: Strangers,
    answered: Strangers,
    displaced: Displaced,
}

/// Connections that were closed to make room since the log last said so.
#[derive(Default)]
struct Displaced {
    count: u64,
    reported: Option<Instant>,
}

impl Connections {
    pub fn new(caps: Caps, rate: Rate) -> Arc<Self> {
        Arc::new(Connections { caps, open: Mutex::default(), pace: Pace::new(rate) })
    }

    /// A connection of a client, which has not authenticated yet.
    pub fn connect(self: &Arc<Self>, client: IpAddr) -> Result<(Seat, Visitor), Reached> {
        let mut open = self.open();
        open.make_room_for(&self.caps, client)?;
        open.make_room(&self.caps, Some(client))?;
        open.total += 1;
        let seat = Seat { connections: self.clone(), closing: CancellationToken::new() };
        let visitor = Visitor::unknown(&mut open, &seat, client);
        Ok((seat, visitor))
    }

    /// A connection of a trusted proxy.
    pub fn connect_proxy(self: &Arc<Self>) -> Result<Seat, Reached> {
        let mut open = self.open();
        open.make_room(&self.caps, None)?;
        open.total += 1;
        Ok(Seat { connections: self.clone(), closing: CancellationToken::new() })
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn make_room(&mut self, caps: &Caps, newcomer: Option<IpAddr>) -> Result<(), Reached> {
        if self.total < caps.total {
            Ok(())
        } else {
            self.displace(newcomer, Reached::Total)
        }
    }

    fn make_room_for(&mut self, caps: &Caps, client: IpAddr) -> Result<(), Reached> {
        let is_full = |(network, times)| self.count(network) >= caps.per_address.saturating_mul(times);
        if networks_of(client).any(is_full) {
            return Err(Reached::PerAddress);
        }
        if self.unauthenticated < caps.unauthenticated {
            Ok(())
        } else {
            self.displace(Some(client), Reached::Unauthenticated)
        }
    }

    /// Closes the connection of another client that has not authenticated, if one may be closed for this newcomer.
    fn displace(&mut self, newcomer: Option<IpAddr>, reached: Reached) -> Result<(), Reached> {
        let own = newcomer.and_then(|client| networks_of(client).next());
        let share = 1 + own.map_or(0, |(address, _)| self.count(address));
        let chosen = self.waiting.take_beyond(0).or_else(|| self.answered.take_beyond(share));
        let (client, closing) = chosen.ok_or(reached)?;
        // It is counted out here, and not again when its task gets to end.
        closing.cancel();
        self.leave(client);
        self.total -= 1;
        self.displaced.note(client, reached);
        Ok(())
    }

    fn count(&self, network: Network) -> usize {
        self.by_network.get(&network).copied().unwrap_or_default()
    }

    fn enter(&mut self, client: IpAddr) {
        self.unauthenticated += 1;
        for (network, _) in networks_of(client) {
            *self.by_network.entry(network).or_default() += 1;
        }
    }

    fn leave(&mut self, client: IpAddr) {
        self.unauthenticated -= 1;
        for (network, _) in networks_of(client) {
            match self.by_network.get_mut(&network) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(self.by_network.remove(&network)),
            }
        }
    }

    fn strangers(&mut self, phase: Phase) -> &mut Strangers {
        match phase {
            Phase::Waiting => &mut self.waiting,
            Phase::Answered => &mut self.answered,
        }
    }
}

impl Displaced {
    fn note(&mut self, client: IpAddr, reached: Reached) {
        self.count += 1;
        if self.reported.is_none_or(|at| at.elapsed() >= REPORTING) {
            let (count, setting) = (std::mem::take(&mut self.count), reached.setting());
            tracing::warn!(
                "closed {count} connections of clients that have not authenticated, the last of {client}, to make room for \
                 others; the setting {setting} is the limit"
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

    /// A request on this connection of a proxy, of a client that has not authenticated yet. It is the only one until its
    /// visitor is dropped, so what is closed to make room is the connection.
    pub fn request(&self, client: IpAddr) -> Result<Visitor, Reached> {
        let mut open = self.connections.open();
        open.make_room_for(&self.connections.caps, client)?;
        Ok(Visitor::unknown(&mut open, self, client))
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
    /// None once it has authenticated. Locked before what is open, never after.
    unknown: Mutex<Option<Unknown>>,
}

/// What is known of a client that has not authenticated.
#[derive(Clone, Copy)]
struct Unknown {
    client: IpAddr,
    phase: Phase,
    /// Its number among those in the same phase.
    number: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Waiting,
    Answered,
}

impl Visitor {
    fn unknown(open: &mut Open, seat: &Seat, client: IpAddr) -> Self {
        open.enter(client);
        let (connections, closing) = (seat.connections.clone(), seat.closing.clone());
        let number = open.waiting.add(client, closing.clone());
        let unknown = Mutex::new(Some(Unknown { client, phase: Phase::Waiting, number }));
        Visitor { connections, closing, unknown }
    }

    pub fn has_authenticated(&self) -> bool {
        self.standing().is_none()
    }

    /// Waits until its next request is due, unless it has authenticated.
    pub async fn keep_pace(&self) -> Result<(), TooFast> {
        let unknown = *self.standing();
        match unknown {
            Some(Unknown { client, .. }) => self.connections.pace.keep(client).await,
            None => Ok(()),
        }
    }

    /// Its connection is answered from now on; false if it was closed to make room just before.
    pub fn take_up(&self) -> bool {
        self.enter(Phase::Answered)
    }

    /// Its connection has its answer, and is the first to make room for another.
    pub fn wait(&self) {
        self.enter(Phase::Waiting);
    }

    fn enter(&self, phase: Phase) -> bool {
        let mut standing = self.standing();
        let Some(unknown) = &mut *standing else { return true };
        let mut open = self.connections.open();
        if self.closing.is_cancelled() {
            return false;
        }
        if unknown.phase != phase {
            open.strangers(unknown.phase).remove(unknown.client, unknown.number);
            unknown.number = open.strangers(phase).add(unknown.client, self.closing.clone());
            unknown.phase = phase;
        }
        true
    }

    /// From now on it does not count against its address.
    pub fn authenticate(&self) {
        let mut standing = self.standing();
        let Some(Unknown { client, phase, number }) = standing.take() else { return };
        let mut open = self.connections.open();
        if self.closing.is_cancelled() {
            return;
        }
        open.strangers(phase).remove(client, number);
        open.leave(client);
    }

    fn standing(&self) -> MutexGuard<'_, Option<Unknown>> {
        self.unknown.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn connections(caps: Caps) -> Arc<Connections> {
        Connections::new(caps, Rate::default())
    }

    fn is_open((seat, _): &(Seat, Visitor)) -> bool {
        !seat.closing().is_cancelled()
    }

    #[test]
    fn an_address_has_few_connections_until_it_authenticates() {
        let connections = connections(CAPS);
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
        let connections = connections(CAPS);
        let strangers: Vec<_> =
            [1, 2, 3, 4].map(|last| connections.connect(address(last)).unwrap()).into_iter().collect();
        assert!(strangers.iter().all(|(_, stranger)| stranger.take_up()));

        assert_eq!(connections.connect(address(5)).err(), Some(Reached::Unauthenticated));
        strangers[0].1.authenticate();
        let fifth = connections.connect(address(5)).unwrap();
        assert!(fifth.1.take_up());
        strangers[1].1.authenticate();
        assert_eq!(connections.connect(address(6)).err(), Some(Reached::Total));
        assert_eq!(connections.connect_proxy().err(), Some(Reached::Total));
    }

    #[test]
    fn what_is_closed_leaves_nothing_behind() {
        let connections = connections(CAPS);
        for _ in 0..10 {
            let (_seat, visitor) = connections.connect(address(1)).unwrap();
            visitor.authenticate();
            visitor.authenticate();
            let proxy = connections.connect_proxy().unwrap();
            let through_it = proxy.request(address(1)).unwrap();
            through_it.take_up();
        }

        assert_nothing_is_open(&connections);
    }

    fn assert_nothing_is_open(connections: &Connections) {
        let open = connections.open();
        assert_eq!((open.total, open.unauthenticated, open.by_network.len()), (0, 0, 0));
        assert!(open.waiting.is_empty() && open.answered.is_empty());
    }

    #[test]
    fn who_waits_makes_room_and_who_is_answered_or_has_authenticated_stays() {
        let connections = connections(CAPS);
        let connect = |last| connections.connect(address(last)).unwrap();
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
        assert_nothing_is_open(&connections);
    }

    #[test]
    fn an_address_that_is_answered_on_many_connections_makes_room_for_others() {
        let connections = connections(Caps { per_address: 3, ..CAPS });
        let connect = |last| {
            let connection = connections.connect(address(last)).unwrap();
            assert!(connection.1.take_up());
            connection
        };
        let viewer = connect(1);
        let slow = [2, 2, 2].map(connect);

        let second = connect(3);
        assert!(!is_open(&slow[0]), "the oldest of the address with the most makes room");
        let third = connect(4);
        assert!(!is_open(&slow[1]));

        assert_eq!(connections.connect(address(5)).err(), Some(Reached::Unauthenticated), "all have as many");
        assert_eq!(connections.connect(address(2)).err(), Some(Reached::Unauthenticated));
        assert!([&viewer, &slow[2], &second, &third].into_iter().all(is_open));
        drop((viewer, slow, second, third));
        assert_nothing_is_open(&connections);
    }

    #[test]
    fn wider_networks_of_ipv6_have_a_cap_too() {
        let caps = Caps { total: 100, unauthenticated: 100, per_address: 3 };
        let connections = connections(caps);
        // Each from a network of its own that a customer may have many of.
        let connect = |network: u16, customer: u8, subnet: u8| {
            let subnet = u16::from_be_bytes([customer, subnet]);
            connections.connect(std::net::Ipv6Addr::new(0x2001, 0xdb8, network, subnet, 0, 0, 0, 0).into())
        };

        let _customer: Vec<_> = (0..6).map(|subnet| connect(1, 1, subnet).unwrap()).collect();
        assert_eq!(connect(1, 1, 6).err(), Some(Reached::PerAddress), "of a /56");
        let _site: Vec<_> = (2..8).map(|customer| connect(1, customer, 0).unwrap()).collect();
        assert_eq!(connect(1, 8, 0).err(), Some(Reached::PerAddress), "of a /48");
        assert!(connect(2, 1, 0).is_ok());
        assert!(connections.connect(address(1)).is_ok());
    }

    #[test]
    fn a_full_server_makes_room_for_a_proxy_and_its_requests() {
        let connections = connections(Caps { total: 2, unauthenticated: 2, per_address: 2 });
        let strangers = [1, 1].map(|last| connections.connect(address(last)).unwrap());

        let proxy = connections.connect_proxy().unwrap();
        let first = proxy.request(address(2)).unwrap();
        assert!(strangers.iter().filter(|stranger| is_open(stranger)).count() == 1);
        let another = connections.connect_proxy().unwrap();
        assert!(!strangers.iter().any(is_open));
        let second = another.request(address(2)).unwrap();
        assert!(first.take_up() && second.take_up());

        // Slow readers behind a proxy make room as others do.
        let newcomer = connections.connect(address(3)).unwrap();
        assert!(proxy.closing().is_cancelled() && !another.closing().is_cancelled());
        assert!(newcomer.1.take_up());
        assert_eq!(connections.connect(address(4)).err(), Some(Reached::Unauthenticated));
        drop((strangers, proxy, first, another, second, newcomer));
        assert_nothing_is_open(&connections);
    }

    #[test]
    fn requests_through_a_proxy_count_against_the_client_it_names() {
        let connections = connections(CAPS);
        let proxies = [(); 3].map(|()| connections.connect_proxy().unwrap());
        let _requests = [&proxies[0], &proxies[1]].map(|proxy| proxy.request(address(1)).unwrap());

        assert_eq!(proxies[2].request(address(1)).err(), Some(Reached::PerAddress));
        assert!(proxies[2].request(address(2)).is_ok());
    }
}
