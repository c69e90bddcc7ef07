//! Connections of clients that have not authenticated, and which of them makes room first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

#[derive(Default)]
pub struct Strangers {
    /// Those that were added so far.
    added: u64,
    by_address: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
    /// The address with the most last; of those with as many, the one with the oldest.
    order: BTreeSet<(usize, Reverse<u64>, IpAddr)>,
}

impl Strangers {
    /// The number by which it can be removed.
    pub fn add(&mut self, client: IpAddr, closing: CancellationToken) -> u64 {
        self.added += 1;
        let number = self.added;
        self.change(client, |own| own.insert(number, closing));
        number
    }

    pub fn remove(&mut self, client: IpAddr, number: u64) {
        self.change(client, |own| own.remove(&number));
    }

    /// Of the address with the most, the oldest; none if no address has more than `share`.
    pub fn take_beyond(&mut self, share: usize) -> Option<(IpAddr, CancellationToken)> {
        let (count, _, client) = *self.order.last()?;
        if count <= share {
            return None;
        }
        let (_, closing) = self.change(client, BTreeMap::pop_first)?;
        Some((client, closing))
    }

    fn change<T>(
        &mut self,
        client: IpAddr,
        change: impl FnOnce(&mut BTreeMap<u64, CancellationToken>) -> T,
    ) -> T {
        let own = self.by_address.entry(client).or_default();
        let rank = |own: &BTreeMap<u64, CancellationToken>| {
            own.first_key_value().map(|(oldest, _)| (own.len(), Reverse(*oldest), client))
        };
        if let Some(rank) = rank(own) {
            self.order.remove(&rank);
        }
        let changed = change(own);
        match rank(own) {
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
