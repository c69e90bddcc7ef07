//! The program, as people and other programs use it: real processes, real signals, real servers, on both engines.
//!
//! One program for all of them, so that tests that wait and tests that encode share the processors; [`support::seat`] says
//! how many of the latter go on at once. One file or folder for each subject: `cargo test -p vodmill --test program chaos::`.

#![allow(clippy::unwrap_used)]

mod admin;
mod arrows;
mod attacks;
mod bench;
mod browser;
mod chaos;
mod conformance;
mod database;
mod failpoints;
mod faults;
mod listings;
mod live;
mod mistakes;
mod poison;
mod processes;
mod redis;
mod resume;
mod sandbox;
mod security;
mod server;
mod soak;
mod storage;
mod support;
mod transcode;
