//! The state machines of Vodmill, pure: (state, command, now) → decision or refusal.
//!
//! No clock, no randomness, no IO, nothing async: time, tokens and jitter are arguments. The store runs
//! these functions inside its transactions, and `tests/model` walks every state they can reach.
//!
//! | machine | file | states of document |
//! | --- | --- | --- |
//! | video | [`video`] | 001 |
//! | job | [`job`] (its stages: [`stage`]) | 003, derived as in 002 |
//! | task | [`task`] | 000 |
//! | execution | [`execution`] | 002 |
//! | worker | [`worker`], its loop [`phase`] | 001, 003, 004 |
//!
//! Beside them: [`backoff`] and [`breaker`], for whoever asks others and may have to ask again.
//!
//! To add a command: add it to the machine's `Command`, let the compiler lead you through `decide` and to the
//! `every!` list of the machine's file in `tests/tables`, and run `UPDATE_DOCS=1 cargo test -p vodmill-rules` to
//! rewrite `docs/state-machines.md`. If it moves tasks, `tests/model/audit.rs` wants to know the move, too.

pub mod backoff;
pub mod breaker;
pub mod execution;
pub mod failure;
pub mod hedge;
pub mod id;
pub mod job;
pub mod lease;
pub mod phase;
pub mod placement;
pub mod priority;
pub mod spec;
pub mod stage;
pub mod task;
pub mod time;
pub mod video;
pub mod worker;

mod words;

pub use id::{ExecutionId, ExecutionName, Fence, GenerationId, JobId, TaskId, Token, VideoId, WorkerId};
pub use priority::Priority;
pub use time::Millis;
pub use words::Unknown;
