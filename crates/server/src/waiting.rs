//! Connections that wait for a request of a client that has not authenticated, and which of them makes room first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct Waiting {
    /// Those that began to wait so far.
    begun: u64,
    by_address: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    /// The address with the most last; of those with as many, the one with the longest wait.
    order: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
}

impl Waiting {
    /// The number by which it can be removed.
    pub fn add(&mut self, client: IpAddr, closing: CancellationToken) -> u64 {
        self.begun += 1;
        let number = self.begun;
        self.change(client, |waiting| waiting.insert(number, closing));
        number
    }

    pub fn remove(&mut self, client: IpAddr, number: u64) {
        self.change(client, |waiting| waiting.remove(&number));
    }

    /// Of the address with the most, the one that has waited longest.
    pub fn take(&mut self) -> Option<(IpAddr, CancellationToken)> {
        let (_, _, client) = *self.order.last()?;
        let (_, closing) = self.change(client, BTreeMap::pop_first)?;
        Some((client, closing))
    }

    fn change<T>(
        &mut self,
        client: IpAddr,
        change: impl FnOnce(&mut BTreeMap<u64, CancellationToken>) -> T,
    ) -> T {
        let waiting = self.by_address.entry(client).or_default();
        let rank = |waiting: &BTreeMap<u64, CancellationToken>| {
            waiting.first_key_value().map(|(oldest, _)| (waiting.len(), Reverse(*oldest), client))
        };
        if let Some(rank) = rank(waiting) {
            self.order.remove(&rank);
        }
        let changed = change(waiting);
        match rank(waiting) {
            Some(rank) => drop(self.order.insert(rank)),
            None => drop(self.by_address.remove(&client)),
        }
        changed
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.by_address.is_empty() && self.order.is_empty()
    }
}
