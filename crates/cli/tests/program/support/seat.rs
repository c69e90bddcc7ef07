//! How much goes on at once, however many threads there are: encoders and browsers want processors, and tests that wait in
//! vain for them fail for no fault of their own.

use std::sync::{Condvar, Mutex};

/// What two cores can bear.
const ROOM: u32 = 6;

static TAKEN: Mutex<u32> = Mutex::new(0);
static FREED: Condvar = Condvar::new();

/// Given up when dropped.
pub struct Seat(u32);

impl Seat {
    /// For who plays in time with the clock, as a browser does.
    pub const ALL: u32 = ROOM;

    /// Waits for room: 1 for a server that is only spoken to, 2 where something is encoded, 4 for a fleet.
    pub fn take(weight: u32) -> Self {
        let mut taken = TAKEN.lock().unwrap();
        while *taken + weight > ROOM {
            taken = FREED.wait(taken).unwrap();
        }
        *taken += weight;
        Seat(weight)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        *TAKEN.lock().unwrap() -= self.0;
        FREED.notify_all();
    }
}
