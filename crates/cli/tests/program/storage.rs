//! Everything in a bucket: servers without a disk in common, workers that reach it themselves, and a storage that fails.

pub mod bucket;
mod direct;
mod faults;
mod harm;
mod janitor;
mod kinds;
mod line;
mod mistakes;
mod outage;
mod platform;
mod site;
mod stream;
mod upgrade;
mod uploads;
