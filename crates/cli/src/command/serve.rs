//! `vodmill serve`: one process gives a self-hoster everything; several of them lead a fleet.

use super::worker::{Encoding, processors};
use crate::beside::Beside;
use crate::limits::{raise_open_files, warn_of_readers};
use crate::settings::{Settings, Usage, duration};
use crate::{Done, log, metrics, output};
use anyhow::Context;
use files::Reserve;
use rules::placement::Capabilities;
use server::{AdminSecret, App, DATA_FOLDER, Data};
use std::fs::File;
use std::path::Path;
use std::time::Duration;
use store::Store;
use tokio_util::sync::CancellationToken;
use worker::process::Guard;
use worker::transcode::{Imports, ResultCheck, Tools};
use worker::{Admission, Handlers, Options, Shutdown};

/// Run the server
///
/// Takes videos over HTTP, makes streams of them with workers of its own, and plays them. With no settings at all it keeps
/// everything in ./vodmill-data. On PostgreSQL it also leads workers on other machines, and other servers may run beside
/// it. SIGTERM lets it finish what it has; killed, it loses nothing.
#[derive(clap::Args)]
pub struct Args {
    /// How many tasks its own workers do at a time; 0 leaves pictures to others and keeps one slot for sound and for what only a server does. Default: one for each processor
    #[arg(long, value_name = "N", env = "VODMILL_SERVER_SLOTS")]
    slots: Option<u32>,
    /// How long it goes on with what it has after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, env = "VODMILL_WORKER_DRAIN_SECONDS")]
    drain_seconds: f64,
    /// Keep this many megabytes free on the disks of the data and work folders: take in nothing that would break that; below it, take no work and report ill health
    #[arg(long, value_name = "MB", default_value_t = 1024, env = "VODMILL_SERVER_DISK_RESERVE_MB")]
    disk_reserve: u64,
    #[command(flatten)]
    encoding: Encoding,
}

/// How long a bucket may take to be found at the start.
const PATIENCE: Duration = Duration::from_secs(10);

/// Shorter secrets are guessed.
const SHORTEST_SECRET: usize = 20;

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let served = settings.server_options()?;
        raise_open_files(served.max_connections);
        warn_of_unnamed_proxies(&served);
        let guard = settings.examined_guard(|missing| tracing::warn!("{missing}")).await?;
        let data = settings.data()?;
        warn_of_readers(data.root());
        reach(&data).await?;
        let store = settings.open().await?;
        let _database = the_only_server(settings, &store, &data).await?;
        let _alone = alone(&store, data.root())?;
        if let Err(mismatch) = server::identity::check(&store, &data).await {
            return Err(refused(mismatch));
        }
        server::rewind::check(&store, &data).await?;
        if _alone.is_some() {
            store.lose_server_worker().await?;
        }
        store.ask_for_alerts(&settings.alerts()?).await?;
        let admin = admin(settings, &store).await?;
        let mut beside = Beside::start(settings, &store).await?;
        let work = settings.work_folder.clone().unwrap_or_else(|| data.work());
        let database = settings.database_file()?;
        let database = database.as_deref().and_then(Path::parent).map(|folder| ("database", folder));
        let reserve = Reserve::new(
            self.disk_reserve.saturating_mul(1 << 20),
            [(DATA_FOLDER, data.root()), ("work folder", &work)].into_iter().chain(database),
        );
        let (bad_outputs, refused) = tokio::sync::mpsc::unbounded_channel();
        let tools = Tools {
            limits: self.encoding.limits(),
            guard: guard.clone(),
            bad_outputs: Some(bad_outputs),
            room: reserve.of("work folder"),
            ..tools(&data, settings)?
        };
        let at_once = processors().get().div_ceil(2) as usize;
        let check = ResultCheck::open(tools.clone(), &work, at_once)
            .with_context(|| format!("cannot use the work folder {}", work.display()))?;
        let app = App::new(store.clone(), data.clone(), admin, served)
            .with_reserve(reserve)
            .with_result_check(check)
            .with_redis(beside.redis.clone());
        let address = settings.listen.as_deref().unwrap_or("127.0.0.1:8080");
        let listener =
            server::bind(address).await.with_context(|| Usage(format!("cannot listen on {address}")))?;
        let _shown = metrics::show(settings, app.metrics.clone()).await?;
        let shutdown = Shutdown::on_signals()?;
        log::address(settings, "listening", &format!("http://{}", listener.local_addr()?));

        let (ending, orchestrating) = orchestrate(settings, &store, &mut beside)?;
        let closing = CancellationToken::new();
        let refusing = tokio::spawn(server::refuse_outputs(app.clone(), refused));
        let serving = tokio::spawn(server::run(app, listener, closing.clone()));
        let mut options = self.options(&work, &store, &guard).await?;
        options.admission.memory = Some(tools.memory.clone());
        let handlers = Handlers::default().with_transcoding(&tools);
        let worked = worker::run(store.desk(), handlers, options, shutdown.clone()).await;
        if worked.is_err() {
            shutdown.drain();
        }
        shutdown.draining().await;
        closing.cancel();
        serving.await?;
        refusing.abort();
        ending.cancel();
        orchestrating.await?;
        beside.end().await;
        worked?;
        server::rewind::remember(&store, &data).await?;
        store.close().await;
        Ok(Done::Yes)
    }

    async fn options(&self, work: &Path, store: &Store, guard: &Guard) -> anyhow::Result<Options> {
        let mut options = Options::new(work);
        options.name = "server".into();
        options.kind = wire::Kind::Server;
        options.outlives_drain = true;
        options.slots = match self.slots {
            // Packaging and publishing need the server's own disk, and little else.
            Some(0) => std::num::NonZeroU32::MIN,
            Some(slots) => std::num::NonZeroU32::new(slots).unwrap_or(std::num::NonZeroU32::MIN),
            None => processors(),
        };
        options.heartbeat_interval = duration(store.options().heartbeat_interval);
        options.drain_deadline = Duration::try_from_secs_f64(self.drain_seconds)
            .map_err(|error| Usage(format!("--drain-seconds: {error}")))?;
        let lease = duration(store.options().lease);
        options.error_wait = options.error_wait.min(lease / 4);
        options.error_wait_max = options.error_wait_max.min(lease);
        options.admission =
            Admission { disk_reserve: self.disk_reserve.saturating_mul(1 << 20), ..Admission::considerate() };
        if self.slots != Some(0) {
            options.capabilities =
                Capabilities::new(self.encoding.able(guard).await?).map_err(|bad| Usage(bad.to_string()))?;
        }
        Ok(options)
    }
}

/// Says what a proxy on another machine needs.
fn warn_of_unnamed_proxies(options: &server::Options) {
    if options.client_address_header.is_some() && options.proxies.is_empty() {
        tracing::warn!(
            "client_address_header is set and proxy_addresses is not: only a proxy on this machine is believed. Name the \
             addresses of your proxies in proxy_addresses; all clients behind one that is not named count as one"
        );
    }
}

pub fn refused(mismatch: server::identity::Mismatch) -> anyhow::Error {
    match mismatch {
        server::identity::Mismatch::Store(error) => error.into(),
        mismatch => Usage(mismatch.to_string()).into(),
    }
}

/// A database in a file has one server at a time, whatever data folder that has. Held until dropped.
async fn the_only_server(settings: &Settings, store: &Store, data: &Data) -> anyhow::Result<Option<File>> {
    let Some(lock) = settings.lock_database()? else {
        let path = settings.database_file()?.unwrap_or_default();
        let there = store.storage().await?.unwrap_or_else(|| "another folder".into());
        return Err(Usage(format!(
            "another server uses the database {} with the files in {there}; this one is to use {}. Stop one of them, or give \
             this one a database of its own with --database-url",
            path.display(),
            data.location()
        ))
        .into());
    };
    Ok(lock)
}

/// With the database in a file, one server at a time has the folder. On PostgreSQL any number may run.
fn alone(store: &Store, root: &Path) -> anyhow::Result<Option<File>> {
    if store.is_postgres() {
        return Ok(None);
    }
    let file = File::options().create(true).truncate(false).write(true).open(root.join("lock"))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Usage(format!(
            "another server uses {}; stop it, or name another folder with --data-folder",
            root.display()
        ))
        .into()),
        Err(std::fs::TryLockError::Error(error)) => Err(error.into()),
    }
}

/// A bucket that refuses us would refuse every upload; one that does not answer may do so later.
async fn reach(data: &Data) -> anyhow::Result<()> {
    use files::bucket::Error::{NotFound, Refused};
    let Some(bucket) = data.bucket() else { return Ok(()) };
    match tokio::time::timeout(PATIENCE, bucket.check()).await {
        Ok(Err(error @ (Refused { .. } | NotFound(_)))) => {
            Err(Usage(format!("cannot use {}: {error}", bucket.url())).into())
        }
        Ok(Ok(())) => Ok(()),
        _ => {
            tracing::warn!("{} does not answer yet", bucket.url());
            Ok(())
        }
    }
}

async fn admin(settings: &Settings, store: &Store) -> anyhow::Result<AdminSecret> {
    if let Some(secret) = &settings.admin_secret {
        if secret.len() < SHORTEST_SECRET {
            return Err(
                Usage(format!("the admin secret must have at least {SHORTEST_SECRET} characters")).into()
            );
        }
        return Ok(AdminSecret::given(secret));
    }
    // Not to the log, which is kept and read by many.
    let show = |secret: &str| {
        output::show(&format!(
            "the admin secret, shown this once: {secret}\n\
             send it as X-Admin-Secret, or let commands have it as VODMILL_ADMIN_SECRET"
        ))?;
        tracing::warn!(
            "made an admin secret and showed it on standard output, this once; if that is kept in a log, set \
             VODMILL_ADMIN_SECRET to another"
        );
        Ok(())
    };
    let was_slower = || {
        tracing::warn!(
            "another server has made a secret meanwhile and shown it; the one above is worth nothing"
        );
    };
    Ok(AdminSecret::of(store, show, was_slower).await?)
}

fn tools(data: &Data, settings: &Settings) -> anyhow::Result<Tools> {
    let tools = match data.bucket() {
        Some(bucket) => Tools::new(bucket.clone()),
        None => Tools::new(data.parts()),
    };
    let server::Options { max_upload_bytes, import_allow_private, .. } = settings.server_options()?;
    let folder = data.source_called("source").parent().map(Path::to_owned).unwrap_or_default();
    let imports = Imports { folder, max_bytes: max_upload_bytes, allow_private: import_allow_private };
    Ok(Tools { file_limits: settings.file_limits()?, imports: Some(imports), ..tools })
}

fn orchestrate(
    settings: &Settings,
    store: &Store,
    beside: &mut Beside,
) -> anyhow::Result<(CancellationToken, tokio::task::JoinHandle<()>)> {
    let ending = CancellationToken::new();
    let mut options = settings.orchestrator_options()?;
    options.grace = duration(store.options().lease);
    options.leads = Some(beside.orchestrates(store));
    options.offline_grace = duration(store.options().heartbeat_interval) * 2;
    Ok((ending.clone(), tokio::spawn(orchestrator::run(store.clone(), options, ending))))
}
