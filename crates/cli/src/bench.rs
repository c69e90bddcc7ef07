//! `vodmill bench …`: measuring on the user's own machine and database.

use crate::Done;
use crate::settings::Settings;

/// Measure what this machine and database can do
#[derive(clap::Subcommand)]
pub enum Command {}

impl Command {
    pub async fn run(self, _settings: &Settings) -> anyhow::Result<Done> {
        match self {}
    }
}
