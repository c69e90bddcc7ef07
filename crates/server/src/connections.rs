//! How many connections there may be: in all, of clients that have not authenticated, and of each such client.
//!
//! A connection counts against its address until a request on it authenticates. A connection of a trusted proxy does not;
//! each unauthenticated request on it counts against the client that the proxy names, until it is answered.
//!
//! The requests of such a client are also taken up no faster than its [`Pace`].

use crate::pace::Pace;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
}

impl Connections {
    pub fn new(caps: Caps) -> Arc<Self> {
        Arc::new(Connections { caps, open: Mutex::default(), pace: Pace::default() })
    }

    /// A connection of a client, which has not authenticated yet.
    pub fn connect(self: &Arc<Self>, client: IpAddr) -> Result<(Seat, Visitor), Reached> {
        let mut open = self.open();
        open.has_room(&self.caps)?;
        open.enter(&self.caps, client)?;
        open.total += 1;
        Ok((Seat(self.clone()), Visitor::unknown(self.clone(), client)))
    }

    /// A connection of a trusted proxy.
    pub fn connect_proxy(self: &Arc<Self>) -> Result<Seat, Reached> {
        let mut open = self.open();
        open.has_room(&self.caps)?;
        open.total += 1;
        Ok(Seat(self.clone()))
    }

    /// A request of a client through a proxy, which has not authenticated yet.
    pub fn request(self: &Arc<Self>, client: IpAddr) -> Result<Visitor, Reached> {
        self.open().enter(&self.caps, client)?;
        Ok(Visitor::unknown(self.clone(), client))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Open {
    fn has_room(&self, caps: &Caps) -> Result<(), Reached> {
        if self.total < caps.total { Ok(()) } else { Err(Reached::Total) }
    }

    fn enter(&mut self, caps: &Caps, client: IpAddr) -> Result<(), Reached> {
        let of_client = self.by_address.get(&client).copied().unwrap_or(0);
        if of_client >= caps.per_address {
            return Err(Reached::PerAddress);
        }
        if self.unauthenticated >= caps.unauthenticated {
            return Err(Reached::Unauthenticated);
        }
        self.unauthenticated += 1;
        self.by_address.insert(client, of_client + 1);
        Ok(())
    }

    fn leave(&mut self, client: IpAddr) {
        self.unauthenticated -= 1;
        match self.by_address.get_mut(&client) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.by_address.remove(&client)),
        }
    }
}

/// An open connection, counted until this is dropped.
pub struct Seat(Arc<Connections>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.open().total -= 1;
    }
}

/// A client: counted against its address until it authenticates or this is dropped.
pub struct Visitor {
    connections: Arc<Connections>,
    unknown: Mutex<Option<IpAddr>>,
}

impl Visitor {
    fn unknown(connections: Arc<Connections>, client: IpAddr) -> Self {
        Visitor { connections, unknown: Mutex::new(Some(client)) }
    }

    pub fn has_authenticated(&self) -> bool {
        self.address().is_none()
    }

    /// Waits until its next request is due, unless it has authenticated.
    pub async fn keep_pace(&self) {
        let unknown = *self.address();
        if let Some(client) = unknown {
            self.connections.pace.keep(client).await;
        }
    }

    /// From now on it does not count against its address.
    pub fn authenticate(&self) {
        if let Some(client) = self.address().take() {
            self.connections.open().leave(client);
        }
    }

    fn address(&self) -> MutexGuard<'_, Option<IpAddr>> {
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

        assert_eq!(connections.connect(address(3)).err(), Some(Reached::Unauthenticated));
        strangers[0].1.authenticate();
        let _fifth = connections.connect(address(3)).unwrap();
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
