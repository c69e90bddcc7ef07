//! The server: everything over HTTP.
//!
//! | who | files |
//! | --- | --- |
//! | anyone | `playback` (streams and the page that shows them), `health`, `openapi` |
//! | Prometheus | [`metrics`] |
//! | an admin | `api/` : videos, uploads, jobs, workers; `events`: what happens, live |
//! | a worker | `worker/` : its desk, the source it reads, the outputs it brings |
//!
//! `app` puts them together; `problem` alone chooses status codes; `auth` alone decides who may speak. What is said is
//! decided by the store, and files are moved by `data`: nothing here changes a state by itself.
//!
//! To add an endpoint: write the handler with its `#[utoipa::path]` in its noun's file and add it to that file's
//! `routes`; it is in the OpenAPI document by itself. Take `Admin` or `Caller` as an argument, or a test will complain.

pub mod api;
mod app;
mod auth;
mod body;
mod cache;
mod client_address;
mod connections;
mod cors;
mod data;
mod drain;
mod events;
#[doc(hidden)]
pub mod fuzz;
mod guarded;
mod guesses;
mod health;
mod home;
mod html;
pub mod identity;
mod ingest;
pub mod inventory;
mod janitor;
mod listen;
pub mod metrics;
mod openapi;
mod pace;
mod page;
mod pieces;
mod playback;
mod problem;
mod ranged;
mod request_id;
pub mod rewind;
mod secret;
mod strangers;
pub mod submission;
mod trace;
mod turns;
mod watch;
mod worker;

pub use app::{App, DATA_FOLDER, Options, run};
pub use client_address::Network;
pub use data::Data;
pub use home::SessionsEnded;
pub use ingest::{Ingest, Wish};
pub use listen::bind;
pub use page::Page;
pub use problem::Error;
pub use secret::AdminSecret;
pub use worker::content::refuse_outputs;
