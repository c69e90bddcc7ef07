//! Fleets with a Redis that is stopped, killed, emptied, filled, slow or cut off, in every mode: nothing is lost, nothing
//! is done twice, and what rests on it comes back.

#![allow(clippy::unwrap_used)]

mod faults;
mod lead;
mod line;
mod room;
mod start;
#[path = "../support/mod.rs"]
mod support;
