//! Hints, news and locks on a real Redis, between stores that know each other by nothing else.

#![allow(clippy::unwrap_used)]

mod faults;
mod hints;
mod lock;
mod news;
mod scene;
