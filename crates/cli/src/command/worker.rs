mod encoding;
mod remote;

pub use encoding::Encoding;

use crate::beside::Beside;
use crate::limits::raise_open_files;
use crate::settings::{Settings, Usage, duration};
use crate::{Done, metrics};
use rules::placement::Capabilities;
use server::metrics::Metrics;
use std::num::NonZeroU32;
use std::time::Duration;
use store::Store;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use worker::process::Limits;
use worker::{Admission, Handlers, IsOver, Options, Shutdown};

/// Run a worker
///
/// Asks the database for tasks and does them, several at a time; with --server, a server, over HTTP: then it needs nothing
/// of this machine but ffmpeg and a folder to work in. SIGTERM lets it finish what it has and end; a second
/// one gives its work back at once. Killed, it loses nothing: its tasks are free again when their leases expire.
#[derive(clap::Args)]
pub struct Args {
    /// How people tell workers apart. Default: the machine's name. At a server it is the name its key was made for
    #[arg(long)]
    name: Option<String>,
    /// How many tasks it works on at a time. Default: one for each processor
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroU32>,
    /// What it can do besides running commands, for stages that ask for it: `gpu`, `codec:av1` …
    #[arg(
        long = "capability",
        value_name = "NAME",
        env = "VODMILL_WORKER_CAPABILITIES",
        value_delimiter = ','
    )]
    capabilities: Vec<String>,
    /// How long it goes on with what it has after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 300.0, env = "VODMILL_WORKER_DRAIN_SECONDS")]
    drain_seconds: f64,
    /// End when every job has ended and every effect is delivered
    #[arg(long)]
    exit_when_idle: bool,
    /// Do not orchestrate as well; some other process must
    #[arg(long)]
    no_orchestrator: bool,
    /// Takes nothing new while less than so many megabytes would stay free on the disk of the work folder
    #[arg(long, value_name = "MB", default_value_t = 1024, env = "VODMILL_WORKER_DISK_RESERVE_MB")]
    disk_reserve: u64,
    /// Takes a task only if so many megabytes of memory are free for it; an encoder waits for what it is estimated to need
    #[arg(long, value_name = "MB", default_value_t = 256, env = "VODMILL_WORKER_TASK_MEMORY_MB")]
    task_memory: u64,
    /// How many tasks may use hardware encoders at a time. Default: as many as there are slots
    #[arg(long, value_name = "N", env = "VODMILL_WORKER_ENCODER_SESSIONS")]
    encoder_sessions: Option<NonZeroU32>,
    #[command(flatten)]
    remote: remote::AtServer,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        raise_open_files(0);
        let shown = Metrics::of_worker(settings.work_folder(), metrics::token(settings)?);
        let _shown = metrics::show(settings, shown).await?;
        if let Some(address) = settings.server()? {
            self.suits_a_server()?;
            let options = self.options(settings)?;
            let guard = settings.examined_guard(|missing| tracing::warn!("{missing}")).await?;
            return self.remote.run(address, options, guard, settings.file_limits()?).await;
        }
        self.remote.suits_a_database()?;
        let store = settings.open().await?;
        let options = self.options_at(&store, settings)?;
        let shutdown = Shutdown::on_signals()?;
        let mut beside = Beside::start(settings, &store).await?;
        let (ending, orchestrating) = self.orchestrate(settings, &store, &mut beside)?;
        let summary = worker::run(store.desk(), Handlers::built_in(), options, shutdown).await;
        // It goes on while the worker drains: what the worker still commits is settled.
        ending.cancel();
        orchestrating.await?;
        beside.end().await;
        summary?;
        Ok(Done::Yes)
    }

    fn suits_a_server(&self) -> Result<(), Usage> {
        let of_a_database = [
            ("--name", self.name.is_some()),
            ("--exit-when-idle", self.exit_when_idle),
            ("--no-orchestrator", self.no_orchestrator),
        ];
        match of_a_database.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => Err(Usage(format!(
                "{flag} cannot be used with --server: it is for workers that ask a database"
            ))),
            None => Ok(()),
        }
    }

    fn options(&self, settings: &Settings) -> anyhow::Result<Options> {
        let mut options = Options::new(settings.work_folder());
        if let Some(name) = &self.name {
            options.name = name.clone();
        }
        options.slots = self.slots.unwrap_or_else(processors);
        options.capabilities = Capabilities::new(&self.capabilities).map_err(|bad| Usage(bad.to_string()))?;
        options.admission = Admission {
            disk_reserve: self.disk_reserve.saturating_mul(1 << 20),
            memory_per_task: self.task_memory.saturating_mul(1 << 20),
            encoder_sessions: self.encoder_sessions.map(NonZeroU32::get),
            ..Admission::considerate()
        };
        options.drain_deadline = Duration::try_from_secs_f64(self.drain_seconds)
            .map_err(|error| Usage(format!("--drain-seconds: {error}")))?;
        Ok(options)
    }

    fn options_at(&self, store: &Store, settings: &Settings) -> anyhow::Result<Options> {
        let mut options = self.options(settings)?;
        options.heartbeat_interval = duration(store.options().heartbeat_interval);
        // A lease must outlive a few lost tries at its renewal.
        let lease = duration(store.options().lease);
        options.error_wait = options.error_wait.min(lease / 4);
        options.error_wait_max = options.error_wait_max.min(lease);
        if self.exit_when_idle {
            let store = store.clone();
            options.exit_when_idle = Some(IsOver::new(move || {
                let store = store.clone();
                async move { store.is_idle().await.unwrap_or(false) }
            }));
        }
        Ok(options)
    }

    fn orchestrate(
        &self,
        settings: &Settings,
        store: &Store,
        beside: &mut Beside,
    ) -> anyhow::Result<(CancellationToken, JoinHandle<()>)> {
        let token = CancellationToken::new();
        let (store, ending) = (store.clone(), token.clone());
        if self.no_orchestrator {
            // Wake-ups are carried by whoever runs: without an orchestrator, the worker listens for itself.
            let carrier = async move {
                tokio::select! {
                    () = store.wake().run() => {}
                    () = ending.cancelled() => {}
                }
            };
            return Ok((token, tokio::spawn(carrier)));
        }
        let mut options = settings.orchestrator_options()?;
        options.leads = Some(beside.orchestrates(&store));
        Ok((token, tokio::spawn(orchestrator::run(store, options, ending))))
    }
}

/// For each ffmpeg, of so many megabytes.
pub fn encoder_limits(memory: Option<u64>) -> Limits {
    Limits { memory_bytes: memory.map(|megabytes| megabytes.saturating_mul(1 << 20)), ..Limits::default() }
}

pub fn processors() -> NonZeroU32 {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    u32::try_from(processors).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN)
}
