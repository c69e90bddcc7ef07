//! A worker: gets tasks from its desk, does them, and takes the results back.
//!
//! It knows the rest of the system only as a [`wire::Desk`], decides nothing about what comes next, and may
//! be killed at any line: what it had leased expires by itself, what it was running dies with it.
//!
//! | file | what happens there |
//! | --- | --- |
//! | [`run`](run()) | a worker's life from registering to its last word; [`options`], [`shutdown`] |
//! | `cycle` | the loop of document 004, phase by phase; `phase` keeps it to the rules |
//! | `slots`, `execution` | executions, each in a task of its own, from lease to report |
//! | `roster` | what is going on, for those who run apart from the work: `heartbeat`, `renewal` |
//! | `telling`, `limits`, `stop` | beside an execution: how far it is, whether it may go on, why not |
//! | `trace` | an execution and its commands, as spans of the job's trace |
//! | `report` | a result told until the desk has taken or refused it |
//! | [`handler`] | the kinds of work; [`context`] is what an execution gets from its worker |
//! | [`process`], [`guard`] | one command, and every process it starts |
//! | [`sandbox`] | how strictly commands that read files of strangers are locked in |
//! | [`transcode`] | the kinds of work that make a stream of a video; [`encoders`] finds what they can use |
//! | [`depot`] | where input comes from and output goes: this disk, or a server |
//! | [`remote`] | a worker far from its server: its desk and its depot over HTTP |
//! | [`admission`], [`memory`], `machine`, `disk` | how much work fits: disk, memory, encoder sessions |
//! | `workshop` | the folder executions work in, and what dead predecessors left there |
//!
//! To add a kind of work: write a [`Handler`] in a file of its own under `handler`, run its programs with
//! [`Context::run`], and add it to [`Handlers::built_in`]. Its kind becomes a capability of the worker by
//! itself.

pub mod admission;
pub mod context;
mod cycle;
pub mod depot;
mod disk;
mod dismissal;
pub mod encoders;
mod error;
mod execution;
pub mod guard;
pub mod handler;
mod heartbeat;
mod kept;
mod limits;
mod machine;
pub mod memory;
pub mod options;
mod pace;
mod phase;
pub mod process;
pub mod remote;
mod renewal;
mod report;
mod roster;
mod run;
pub mod sandbox;
mod shared;
pub mod shutdown;
mod slots;
mod stop;
mod storage;
mod tally;
mod telling;
mod trace;
pub mod transcode;
pub mod workshop;

pub use admission::Admission;
pub use context::Context;
pub use depot::Depot;
pub use error::Error;
pub use handler::{BoxFuture, Failed, Handler, Handlers, Outcome};
pub use options::{IsOver, Options};
pub use run::run;
pub use shutdown::Shutdown;
pub use tally::Summary;
