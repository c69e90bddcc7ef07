//! `vodmill serve` as a process, spoken to over real HTTP, on both engines.

mod auth;
mod catalogue;
mod clips;
mod contract;
mod early;
pub mod elsewhere;
mod encoders;
mod fleet;
mod frozen;
mod full_disk;
mod home;
mod identity;
mod inventory;
mod logs;
mod metrics;
mod playback;
mod prometheus;
mod protocol;
mod races;
mod reserve;
mod restored;
mod retention;
mod stalls;
mod traces;
mod uploads;
mod videos;
