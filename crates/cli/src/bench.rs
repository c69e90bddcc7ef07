//! `vodmill bench …`: measuring on the user's own machine and database.
//!
//! | what | file |
//! | --- | --- |
//! | the database the figures come from | [`place`] |
//! | what the engine does without any contract | [`raw`] |
//! | jobs to measure with | [`load`] |
//! | what is measured | [`verbs`], [`drain`], [`latency`], [`backlog`], [`recovery`] |
//! | a server with simulated workers | [`server`] |
//! | a server under bad connections | [`strangers`] |
//! | one long video on fleets of every size, simulated | [`scaling`] |
//! | who tells of work: nobody, NOTIFY, Redis | [`wake`] |
//! | what people see | [`figure`] |
//!
//! To add a measure: give it a function that pushes its [`figure::Figure`]s, and a line in [`queue::Part`].

mod backlog;
mod drain;
mod figure;
mod latency;
mod load;
mod place;
mod processor;
mod queue;
mod raw;
mod recovery;
mod scaling;
mod server;
mod sizes;
mod strangers;
mod strike;
mod verbs;
mod wake;

use crate::Done;
use crate::settings::Settings;

/// Measure what this machine and database can do
#[derive(clap::Subcommand)]
pub enum Command {
    Queue(queue::Args),
    Scaling(scaling::Args),
    Server(server::Args),
    Strangers(strangers::Args),
    Wake(wake::Args),
}

impl Command {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        match self {
            Command::Queue(args) => args.run(settings).await,
            Command::Scaling(args) => args.run(),
            Command::Server(args) => args.run(settings).await,
            Command::Strangers(args) => args.run(settings).await,
            Command::Wake(args) => args.run(settings).await,
        }
    }
}
