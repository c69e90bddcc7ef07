//! A worker far from its server: everything it needs goes over HTTP, with a key.
//!
//! | file | what happens there |
//! | --- | --- |
//! | `address`, `key` | whom to speak to, and as whom |
//! | `client` | one request: how long, how often, and what its answer comes to (`fault`) |
//! | `desk` | the words of a worker, as requests |
//! | `source`, `origin`, `relay`, `peer` | the source file, read where an encoder needs it, through cuts and restarts |
//! | `outputs`, `upload` | what was made, brought to the server piece by piece |
//! | `direct` | where both go without the server in between, when it says so |
//!
//! The key goes into one header and nowhere else: not into arguments, logs, errors or records of steps.

mod address;
mod client;
mod desk;
mod direct;
mod fault;
mod key;
mod origin;
mod outputs;
mod peer;
mod range;
mod relay;
mod source;
mod upload;

pub use address::{Address, BadAddress};
pub use client::{Client, Error, Patience};
pub use desk::HttpDesk;
pub use key::{BadKey, Key};
pub use relay::Relay;
pub use source::Source;

pub(crate) use outputs::keep;
