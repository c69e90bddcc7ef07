//! Whether the disk of the work folder was full lately.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

const MIB: u64 = 1 << 20;

/// What a slot is to have. A task that needs more is an exception, and says nothing of the next one.
const ENOUGH: u64 = 2048 * MIB;

/// How long a worker waits for more room before it tries with what there is: the next task may need less.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<Option<Full>>);

#[derive(Debug)]
struct Full {
    needed: u64,
    until: Instant,
}

impl Disk {
    /// A task ran out of room on a disk that has so many bytes free without it. That is not enough, so clearly more must be
    /// free for the next one.
    pub fn was_full(&self, free: u64) {
        let needed = free.saturating_add(free / 4).saturating_add(16 * MIB).min(ENOUGH);
        let full = Full { needed, until: Instant::now() + PATIENCE };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(full);
    }

    /// How many bytes have to be free for work to be taken; zero if the disk was not full lately.
    pub fn needed(&self) -> u64 {
        let full = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        full.as_ref().filter(|full| Instant::now() < full.until).map_or(0, |full| full.needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn more_has_to_be_free_than_was_not_enough_but_not_for_ever() {
        let disk = Disk::default();
        assert_eq!(disk.needed(), 0);

        disk.was_full(400 * MIB);

        assert_eq!(disk.needed(), 516 * MIB);
        disk.was_full(100 * ENOUGH);
        assert_eq!(disk.needed(), ENOUGH);
        tokio::time::advance(PATIENCE).await;
        assert_eq!(disk.needed(), 0);
    }
}
