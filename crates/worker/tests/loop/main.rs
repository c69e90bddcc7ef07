//! The worker's loop against a desk that lives in memory and decides by the real rules.
//!
//! The clock is tokio's, and paused: it jumps ahead whenever nobody has anything to do, so that hours pass in
//! milliseconds and a deadline that passes means that nothing would ever have happened.

#![allow(clippy::unwrap_used)]

mod admission;
mod claims;
mod desk;
mod handlers;
mod heartbeat;
mod leases;
mod outage;
mod play;
mod scene;
mod shutdown;
