//! What passes between a worker and its desk.
//!
//! [`Desk`] is all a worker knows of the rest of the system: five verbs about work (claim, renew, progress, commit,
//! fail) and two about itself (register, heartbeat). The store is a desk; over HTTP, a server is one.

mod desk;
pub mod http;
mod lease;
pub mod text;
mod word;

pub use desk::{Desk, Error};
pub use lease::{LeaseToken, Proof};
pub use word::{
    Answer, Arrival, Assignment, Commit, Failure, Heartbeat, Hello, Kind, Progress, Publication, Rendition,
    Renewal, StepRecord, Usage,
};
