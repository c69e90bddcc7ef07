//! Everything in a bucket: servers without a disk in common, workers that reach it themselves, and a storage that fails.

#![allow(clippy::unwrap_used)]

mod bucket;
mod direct;
mod faults;
mod janitor;
mod line;
mod mistakes;
mod platform;
#[path = "../server/seat.rs"]
#[allow(dead_code)]
mod seat;
mod site;
mod stream;
#[path = "../support/mod.rs"]
mod support;
mod uploads;
