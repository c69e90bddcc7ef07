use crate::{Done, Program};
use clap::CommandFactory;

/// Print a completion script for a shell
#[derive(clap::Args)]
pub struct Args {
    shell: clap_complete::Shell,
}

impl Args {
    pub fn run(self) -> anyhow::Result<Done> {
        clap_complete::generate(self.shell, &mut Program::command(), "vodmill", &mut std::io::stdout());
        Ok(Done::Yes)
    }
}
