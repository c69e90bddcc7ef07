//! Memory for encoders: how much each may take, and that those at work together fit on the machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::machine;

const MIB: u64 = 1 << 20;

/// What a program may take at least, whatever the estimate: small pictures leave room for odd files.
const LEAST: u64 = 2048 * MIB;

/// An estimate may be off by so much.
const HEADROOM: u64 = 2;

/// Of the machine's memory, in hundredths; the rest is for the worker itself and what else runs.
const SHARE: u64 = 80;

/// Shared by all tasks of a worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Budget {
    /// In MiB.
    free: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
    total: u64,
}

impl Budget {
    /// Four fifths of the machine, or of the container.
    pub fn of_this_machine() -> Self {
        let total = machine::memory_total().map_or(u64::from(u32::MAX) * MIB, |bytes| bytes / 100 * SHARE);
        Budget::of(total)
    }

    /// Of so many bytes.
    pub fn of(total: u64) -> Self {
        let mebibytes = (total / MIB).clamp(1, u64::from(u32::MAX) / 8);
        let free = Semaphore::new(usize::try_from(mebibytes).unwrap_or(Semaphore::MAX_PERMITS));
        Budget { free: Arc::new(free), waiting: Arc::default(), total: mebibytes * MIB }
    }

    /// Waits until `bytes` are left of it. What exceeds the whole is given the whole.
    pub async fn reserve(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let mebibytes = u32::try_from(bytes.min(self.total) / MIB).unwrap_or(u32::MAX);
        let _waits = Waits::new(&self.waiting);
        self.free.clone().acquire_many_owned(mebibytes).await.ok()
    }

    /// Whether a task waits for memory, so that another would wait behind it.
    pub(crate) fn is_short(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0 && self.free.available_permits() < self.whole()
    }

    fn whole(&self) -> usize {
        usize::try_from(self.total / MIB).unwrap_or(usize::MAX)
    }

    /// What a program may take that is estimated to take `bytes`.
    pub fn limit(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(HEADROOM).max(LEAST).min(self.total.max(LEAST))
    }
}

struct Waits<'a>(&'a AtomicU32);

impl<'a> Waits<'a> {
    fn new(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Waits(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_does_not_fit_waits_until_it_does() {
        let budget = Budget::of(4 * GIB);
        let mut context = Context::from_waker(Waker::noop());
        let mut first = pin!(budget.reserve(3 * GIB));
        let Poll::Ready(first) = first.as_mut().poll(&mut context) else { panic!("it fits") };

        let mut second = pin!(budget.reserve(2 * GIB));
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(budget.is_short());
        drop(first);

        assert!(second.as_mut().poll(&mut context).is_ready());
        assert!(!budget.is_short());
    }

    #[test]
    fn more_than_there_is_waits_for_all_of_it() {
        let budget = Budget::of(4 * GIB);
        let mut context = Context::from_waker(Waker::noop());

        assert!(pin!(budget.reserve(100 * GIB)).as_mut().poll(&mut context).is_ready());
    }

    #[test]
    fn a_limit_has_headroom_and_never_exceeds_the_machine() {
        let budget = Budget::of(16 * GIB);

        assert_eq!(budget.limit(GIB / 2), LEAST);
        assert_eq!(budget.limit(3 * GIB), 6 * GIB);
        assert_eq!(budget.limit(30 * GIB), 16 * GIB);
    }
}
