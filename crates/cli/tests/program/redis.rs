//! Fleets with a Redis that is stopped, killed, emptied, filled, slow or cut off, in every mode: nothing is lost, nothing
//! is done twice, and what rests on it comes back.

mod faults;
mod lead;
mod line;
pub mod room;
mod start;
