//! A worker that knows only a server's URL and its own key.

use super::Encoding;
use crate::Done;
use crate::settings::Usage;
use media::limits::FileLimits;
use rules::placement::Capabilities;
use std::path::PathBuf;
use std::time::Duration;
use worker::process::Guard;
use worker::remote::{Address, Client, HttpDesk, Key, Patience};
use worker::transcode::Tools;
use worker::{Handlers, Options, Shutdown};

#[derive(clap::Args)]
#[command(next_help_heading = "At a server")]
pub struct AtServer {
    /// The worker's key, as `vodmill workers register` showed it. Other users of this machine can see arguments: better
    /// give it as a variable or a file
    #[arg(
        long,
        value_name = "KEY",
        env = "VODMILL_WORKER_KEY",
        hide_env_values = true,
        conflicts_with = "key_file"
    )]
    key: Option<String>,
    /// The file that holds the worker's key
    #[arg(long, value_name = "FILE", env = "VODMILL_WORKER_KEY_FILE")]
    key_file: Option<PathBuf>,
    /// Also runs commands that jobs bring along. Whoever may submit jobs to the server can then do on this machine what
    /// this user can
    #[arg(long, env = "VODMILL_WORKER_ALLOW_COMMANDS")]
    allow_commands: bool,
    #[command(flatten)]
    encoding: Encoding,
}

impl AtServer {
    /// A worker at a database runs commands anyway, and would not be asked for a key.
    pub fn suits_a_database(&self) -> Result<(), Usage> {
        if self.allow_commands {
            return Err(Usage("--allow-commands is for a worker at a server: name it with --server".into()));
        }
        Ok(())
    }

    pub async fn run(
        &self,
        address: Address,
        mut options: Options,
        guard: Guard,
        file_limits: FileLimits,
    ) -> anyhow::Result<Done> {
        let client = Client::new(address, &self.key()?, Patience::default())?;
        let shutdown = Shutdown::on_signals()?;
        let named = options.capabilities.iter().map(String::from);
        let able = self.encoding.able(&guard).await?.into_iter().chain(named);
        options.capabilities = Capabilities::new(able).map_err(|bad| Usage(bad.to_string()))?;
        options.kind = wire::Kind::Remote;
        // The server keeps the question for work until there is some.
        (options.idle_min, options.idle_max) = (Duration::from_millis(500), Duration::from_secs(30));
        (options.error_wait, options.error_wait_max) = (Duration::from_secs(1), Duration::from_secs(15));
        let handlers = if self.allow_commands { Handlers::built_in() } else { Handlers::default() };
        let tools =
            Tools { limits: self.encoding.limits(), guard, file_limits, ..Tools::new(client.clone()) };
        options.admission.memory = Some(tools.memory.clone());
        let handlers = handlers.with_transcoding(&tools);
        let desk = HttpDesk::new(client, &options.folder);
        worker::run(desk, handlers, options, shutdown).await?;
        Ok(Done::Yes)
    }

    fn key(&self) -> anyhow::Result<Key> {
        let text = match (&self.key, &self.key_file) {
            (Some(key), _) => key.clone(),
            (None, Some(file)) => std::fs::read_to_string(file).map_err(|error| {
                Usage(format!("cannot read the worker's key from {}: {error}", file.display()))
            })?,
            (None, None) => {
                let how =
                    "give it as VODMILL_WORKER_KEY or by --key-file; `vodmill workers register` makes one";
                return Err(Usage(format!("a worker at a server needs a key: {how}")).into());
            }
        };
        Ok(Key::new(&text).map_err(|bad| Usage(bad.to_string()))?)
    }
}
