//! `vodmill serve` as a process, spoken to over real HTTP, on both engines.

#![allow(clippy::unwrap_used)]

mod auth;
mod contract;
mod early;
mod elsewhere;
mod fleet;
mod home;
mod house;
mod logs;
mod metrics;
mod playback;
mod prometheus;
mod protocol;
mod seat;
#[path = "../support/mod.rs"]
mod support;
mod traces;
mod uploads;
mod videos;
