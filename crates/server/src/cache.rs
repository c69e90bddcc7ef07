//! Values that are expensive to load and asked for by clients that have not authenticated.
//!
//! They are kept within a budget of bytes, and loaded one at a time: many clients that ask for the same value at once share
//! one load, and clients that ask for many values load no more than one.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Semaphore, SemaphorePermit};

/// What an entry takes beside its value.
const ENTRY_BYTES: usize = 256;

pub struct Cache<K, V> {
    budget: usize,
    loads: Semaphore,
    kept: Mutex<Kept<K, V>>,
}

struct Kept<K, V> {
    entries: HashMap<K, Entry<V>>,
    bytes: usize,
    /// Counts uses, so that the entry that was used longest ago can be told.
    uses: u64,
}

struct Entry<V> {
    value: Arc<V>,
    bytes: usize,
    used: u64,
}

impl<K: Hash + Eq + Clone, V> Cache<K, V> {
    pub fn new(budget: usize) -> Self {
        let kept = Kept { entries: HashMap::new(), bytes: 0, uses: 0 };
        Cache { budget, loads: Semaphore::new(1), kept: Mutex::new(kept) }
    }

    pub fn find(&self, key: &K) -> Option<Arc<V>> {
        let mut kept = self.kept();
        kept.uses += 1;
        let now = kept.uses;
        let entry = kept.entries.get_mut(key)?;
        entry.used = now;
        Some(entry.value.clone())
    }

    /// The turn to load a value. Another request may have loaded it meanwhile: look again.
    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.loads.acquire().await.ok()
    }

    /// Keeps a value in place of the one before it, and drops what was used longest ago beyond the budget.
    pub fn keep(&self, key: K, value: V, bytes: usize) -> Arc<V> {
        let (mut kept, value) = (self.kept(), Arc::new(value));
        kept.remove(&key);
        let bytes = bytes + ENTRY_BYTES;
        if bytes > self.budget {
            return value;
        }
        while kept.bytes + bytes > self.budget && kept.drop_oldest() {}
        kept.uses += 1;
        kept.bytes += bytes;
        let entry = Entry { value: value.clone(), bytes, used: kept.uses };
        kept.entries.insert(key, entry);
        value
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Hash + Eq + Clone, V> Kept<K, V> {
    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= entry.bytes;
        }
    }

    fn drop_oldest(&mut self) -> bool {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
        if let Some(key) = &oldest {
            self.remove(key);
        }
        oldest.is_some()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_makes_room_within_the_budget() {
        let cache = Cache::new(3 * (ENTRY_BYTES + 10));
        for key in 0..3 {
            cache.keep(key, key, 10);
        }
        assert_eq!(*cache.find(&0).unwrap(), 0);

        cache.keep(3, 3, 10);

        assert!(cache.find(&1).is_none());
        assert_eq!([0, 2, 3].map(|key| *cache.find(&key).unwrap()), [0, 2, 3]);
    }

    #[test]
    fn a_value_takes_the_place_of_the_one_before_it_and_one_beyond_the_budget_is_not_kept() {
        let cache = Cache::new(ENTRY_BYTES + 10);
        for value in 0..100 {
            cache.keep("key", value, 10);
        }
        assert_eq!(*cache.find(&"key").unwrap(), 99);

        assert_eq!(*cache.keep("huge", 7, 11), 7);

        assert!(cache.find(&"huge").is_none() && cache.find(&"key").is_some());
        let kept = cache.kept();
        assert_eq!((kept.bytes, kept.entries.len()), (ENTRY_BYTES + 10, 1));
    }
}
