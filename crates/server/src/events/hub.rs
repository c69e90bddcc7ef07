//! Who listens, and whether anybody reads for them.

use super::frame::Frame;
use std::sync::Arc;
use telemetry::metrics::EVENT_LISTENERS;
use tokio::sync::{Semaphore, SemaphorePermit, broadcast, watch};

/// How many frames a listener may be behind before it is caught up from the database.
const CHANNEL: usize = 1024;

/// How many listeners are caught up at once: the rest of the database's connections are for work.
const CATCHING_UP: usize = 2;

#[derive(Clone)]
pub struct Hub(Arc<Inner>);

struct Inner {
    frames: broadcast::Sender<Arc<Frame>>,
    house: watch::Sender<House>,
    seats: usize,
    catching_up: Semaphore,
}

#[derive(Default)]
struct House {
    listeners: usize,
    /// The tail has noted where it begins. It does not begin anew while anybody is there.
    is_read: bool,
}

/// A listener's place, given back when dropped.
pub struct Seat(Hub);

impl Hub {
    pub fn new(seats: usize) -> Self {
        Hub(Arc::new(Inner {
            frames: broadcast::channel(CHANNEL).0,
            house: watch::channel(House::default()).0,
            seats,
            catching_up: Semaphore::new(CATCHING_UP),
        }))
    }

    pub fn take_seat(&self) -> Option<Seat> {
        let taken = self.0.house.send_if_modified(|house| {
            let is_free = house.listeners < self.0.seats;
            house.listeners += usize::from(is_free);
            EVENT_LISTENERS.set([], house.listeners as f64);
            is_free
        });
        taken.then(|| Seat(self.clone()))
    }

    /// Until somebody listens.
    pub async fn somebody(&self) {
        // The sender lives as long as this does.
        let _ = self.0.house.subscribe().wait_for(|house| house.listeners > 0).await;
    }

    pub fn begin_reading(&self) {
        self.0.house.send_modify(|house| house.is_read = true);
    }

    /// Ends the reading if nobody listens any more. Who comes at this moment is either seen here, or waits for the next
    /// beginning.
    pub fn end_reading_if_empty(&self) -> bool {
        self.0.house.send_if_modified(|house| {
            let is_over = house.listeners == 0;
            house.is_read &= !is_over;
            is_over
        })
    }

    pub fn tell(&self, frame: Frame) {
        // Nobody may be there any more.
        let _ = self.0.frames.send(Arc::new(frame));
    }
}

impl Seat {
    /// What is told from now on. The tail has begun when this returns: whatever it does not tell can be read already.
    pub async fn listen(&self) -> broadcast::Receiver<Arc<Frame>> {
        let frames = self.0.0.frames.subscribe();
        let _ = self.0.0.house.subscribe().wait_for(|house| house.is_read).await;
        frames
    }

    pub async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.0.0.catching_up.acquire().await.ok()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.0.house.send_modify(|house| {
            house.listeners -= 1;
            EVENT_LISTENERS.set([], house.listeners as f64);
        });
    }
}
