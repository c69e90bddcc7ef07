//! The rules, model-checked as they are and not as a copy: every interleaving of a few workers, crashes,
//! pauses, expiries, late, lost and repeated words, cancels and retries.
//!
//! `walks` says what was walked and that everything held; `bites` takes a check away and shows that the
//! checker notices. To look at a trace: `cargo test -p vodmill-rules --test model bites -- --nocapture`.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `config`, `configs` | what is walked: jobs, workers, misfortunes |
//! | `world`, `names` | one state: rows, memories, words under way; and when two are the same |
//! | `action`, `possible` | everything that can happen, and what of it can happen next |
//! | `step`, `transaction` | what comes of it; here the rules are called |
//! | `audit`, `properties` | what must hold of each step, and of each world |
//! | `mill`, `reverse` | the searches: forwards for what must never be, backwards for what must stay possible |
//! | `flaw` | mistakes that could have been made |

mod action;
mod audit;
mod bites;
mod config;
mod configs;
mod flaw;
mod hash;
mod mill;
mod names;
mod possible;
mod properties;
mod reverse;
mod step;
mod transaction;
mod walks;
mod world;
