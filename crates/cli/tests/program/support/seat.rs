//! How much goes on at once, however many threads there are: encoders and browsers want processors, and tests that wait in
//! vain for them fail for no fault of their own.

use std::cell::Cell;
use std::sync::{Condvar, Mutex};

/// What two cores can bear: most of them wait most of the time.
const ROOM: u32 = 9;

static HALL: Mutex<Hall> = Mutex::new(Hall { taken: 0, tickets: 0, called: 0 });
static CHANGED: Condvar = Condvar::new();

/// First come, first served: else who wants much would wait for the end of all who want little.
struct Hall {
    taken: u32,
    tickets: u64,
    called: u64,
}

thread_local! {
    /// Who has one and waits for another would wait for ever behind somebody who wants much.
    static IS_SEATED: Cell<bool> = const { Cell::new(false) };
}

/// Given up when dropped.
pub struct Seat(u32);

impl Seat {
    /// For who plays in time with the clock, as a browser does.
    pub const REAL_TIME: u32 = 6;

    /// Waits for room: 1 for a server that is only spoken to, 2 where something is encoded, 4 for a fleet.
    pub fn take(weight: u32) -> Self {
        assert!(!IS_SEATED.replace(true), "a test takes one seat");
        let mut hall = HALL.lock().unwrap();
        let ticket = hall.tickets;
        hall.tickets += 1;
        while hall.called != ticket || hall.taken + weight > ROOM {
            hall = CHANGED.wait(hall).unwrap();
        }
        hall.called += 1;
        hall.taken += weight;
        CHANGED.notify_all();
        Seat(weight)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        IS_SEATED.set(false);
        HALL.lock().unwrap().taken -= self.0;
        CHANGED.notify_all();
    }
}
