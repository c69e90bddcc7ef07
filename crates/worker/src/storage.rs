//! Whether the storage was there for the executions that ended last.

use std::sync::{Mutex, PoisonError};

#[derive(Debug, Default)]
pub(crate) struct Storage(Mutex<Option<Seen>>);

/// How an execution ended, as far as the storage has to do with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// One had to be given back for its sake.
    Away,
    /// One was done.
    Well,
}

impl Storage {
    pub fn is_away(&self) {
        self.note(Seen::Away);
    }

    pub fn is_well(&self) {
        self.note(Seen::Well);
    }

    /// What was seen last, once.
    pub fn news(&self) -> Option<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn note(&self, seen: Seen) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(seen);
    }
}
