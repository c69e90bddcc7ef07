//! `vodmill transcode`: one file, one folder, no server; and the very pipeline a fleet would use.

mod choices;
mod display;
mod folder;
mod report;
mod space;
mod summary;
mod supervisor;

pub use choices::{Choices, find_encoders};
pub use display::clock;
pub use supervisor::{Supervised, supervise};

use crate::settings::{Settings, Usage, duration};
use crate::{Done, output};
use anyhow::Context;
use display::{Display, Found};
use folder::{Care, Folder};
use report::Report;
use rules::JobId;
use rules::job::State;
use rules::placement::Capabilities;
use rules::task::Death;
use space::Space;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use store::Store;
use store::submit::{NewJob, Submitted};
use tokio_util::sync::CancellationToken;
use worker::transcode::{Order, Published, Tools};
use worker::{Handlers, IsOver, Options, Shutdown};

/// Make an adaptive stream of a video file
///
/// Writes OUTPUT/master.m3u8 and everything below it: HLS in CMAF segments that any player takes. Killed at any moment, it
/// goes on where it was when the same command is given again; a stream that is already in the folder stays playable
/// until the new one is complete and checked.
#[derive(clap::Args)]
pub struct Args {
    /// The video file
    file: PathBuf,
    /// The folder the stream is written to
    #[arg(short, long, value_name = "FOLDER")]
    output: PathBuf,
    #[command(flatten)]
    choices: Choices,
    /// How many encoders run side by side. Default: one for each processor
    #[arg(long, value_name = "N")]
    slots: Option<NonZeroU32>,
    /// An encoder that makes no frame for so long is killed and its piece tried again
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, env = "VODMILL_STALL_SECONDS")]
    stall_seconds: f64,
    /// The most memory one encoder may use, in megabytes. Default: twice what is estimated from its picture, and at least 2048
    #[arg(long, value_name = "MB", env = "VODMILL_ENCODER_MEMORY_MB")]
    encoder_memory: Option<u64>,
    /// Print events as lines of JSON
    #[arg(long)]
    json: bool,
}

/// How often the display is brought up to date. ffmpeg tells once a second how far it is.
const LOOK: Duration = Duration::from_millis(500);

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let began = Instant::now();
        let source = source(&self.file)?;
        let slots = self.slots.unwrap_or_else(super::worker::processors);
        let mut chosen = self.choices.settings()?;
        chosen.parallel = slots.get();
        let stall = Duration::try_from_secs_f64(self.stall_seconds)
            .map_err(|error| Usage(format!("--stall-seconds: {error}")))?;
        let folder = Folder::open(&self.output)?;
        let tools = self.tools(&folder, settings).await?;
        tools.file_limits.check_settings(&chosen).map_err(|bad| Usage(bad.to_string()))?;
        find_encoders(&mut chosen, &tools.guard).await?;

        let store = folder.store(settings).await?;
        let order = folder.order(&store, &source, chosen.clone(), stall).await?;
        let (job, found) = submit(&store, &folder, &order, Supervised::here()).await?;
        // From the first word on, for who reads it may stop what it says has begun.
        let shutdown = Shutdown::on_signals()?;
        let mut display = Display::new(self.json, &self.file, &self.output);
        display.begin(found, slots.get());

        let encoders = chosen.codecs.iter().map(|codec| chosen.encoder.encoder(*codec));
        let capabilities = Capabilities::new(encoders).map_err(|bad| Usage(bad.to_string()))?;
        let run = Run { settings, store: &store, folder: &folder, tools: &tools, job, slots, capabilities };
        let state = run.to_the_end(&mut display, &shutdown).await?;
        let done = self.conclude(state, job, &run, &mut display, &shutdown, began).await;
        store.close().await;
        done
    }

    async fn conclude(
        &self,
        state: State,
        job: JobId,
        run: &Run<'_>,
        display: &mut Display,
        shutdown: &Shutdown,
        began: Instant,
    ) -> anyhow::Result<Done> {
        let (store, folder) = (run.store, run.folder);
        match state {
            State::Completed => {
                let published = published(store, job).await?;
                folder.show(&published)?;
                display.done(&summary::Summary::of(store, job, &self.output, &published, began).await?);
                Ok(Done::Yes)
            }
            _ if shutdown.is_draining() && !state.is_final() => {
                display.interrupted();
                Ok(Done::Interrupted)
            }
            _ => {
                let error = store.job(job).await?.error.unwrap_or_else(|| state.to_string());
                let tasks = store.tasks_of_job(job).await?;
                let is_permanent = tasks.iter().any(|task| task.failure.as_deref() == Some("permanent"));
                display.failed(&told(&self.file, &error), is_permanent);
                Ok(Done::No)
            }
        }
    }

    async fn tools(&self, folder: &Folder, settings: &Settings) -> anyhow::Result<Tools> {
        Ok(Tools {
            limits: super::worker::encoder_limits(self.encoder_memory),
            guard: settings.examined_guard(output::tell).await?,
            file_limits: settings.file_limits()?,
            ..Tools::new(folder.parts())
        })
    }
}

/// Where the file is. One that would have to be read to its end to be looked at, such as a pipe, is none.
pub fn source(file: &Path) -> anyhow::Result<PathBuf> {
    let is_there = file.metadata().map_err(|error| Usage(format!("{}: {error}", file.display())))?;
    if is_there.is_dir() {
        return Err(Usage(format!("{} is a folder; name a video file", file.display())).into());
    }
    if !is_there.is_file() {
        return Err(Usage(format!("{} is not a regular file; name a video file", file.display())).into());
    }
    Ok(file.canonicalize()?)
}

/// The job for this order: the one that was begun before, if it can go on.
async fn submit(
    store: &Store,
    folder: &Folder,
    order: &Order,
    supervised: Option<Supervised>,
) -> anyhow::Result<(JobId, Found)> {
    // A process that died of its work was replaced by its supervisor: the same run goes on, and a failure is one.
    let goes_on = supervised.filter(|it| it.deaths > 0);
    let death = if goes_on.is_some() { Death::Unexplained } else { Death::ByPerson };
    let released = store.lose_all_workers(death).await?;
    if goes_on.is_some_and(|it| it.is_hopeless(released)) {
        anyhow::bail!("the working process dies again and again, and not of any of its tasks");
    }
    // What failed for good and was not judged: a run that was ended then left it so, and this one is to try again.
    store.judge(&store.due(i64::MAX).await?.verdicts).await?;
    let spec = worker::transcode::spec(order)?;
    for round in 0.. {
        let key = Some(format!("{}/{round}", order.generation));
        let new = NewJob { spec: spec.clone(), video: Some(order.video), idempotency_key: key };
        let submitted = match store.submit(&new).await {
            // The same stream was ordered otherwise: from a folder that has moved, with another patience.
            Err(store::Error::KeyReused(_)) => continue,
            submitted => submitted?,
        };
        let (id, job) = (submitted.id(), store.job(submitted.id()).await?);
        match job.state {
            State::Cancelled => continue,
            State::Failed if goes_on.is_some() => return Ok((id, Found::Some)),
            // Somebody has removed what it made.
            State::Completed if !folder.has(&published(store, id).await?) => continue,
            State::Completed => {}
            state if !folder.has_parts(store, id, &order.generation, care(state)).await? => continue,
            State::Failed => store.retry_job(id, None).await?,
            _ => {}
        }
        folder.tidy(store, id).await?;
        let found = match (submitted, job.state) {
            (Submitted::New(_), _) => Found::Nothing,
            (Submitted::Existing(_), State::Completed) => Found::All,
            (Submitted::Existing(_), _) => Found::Some,
        };
        return Ok((id, found));
    }
    anyhow::bail!("no job could be begun for {}", order.source)
}

/// A job may have failed because of what it was to go on with.
fn care(state: State) -> Care {
    if state == State::Failed { Care::Hashes } else { Care::Sizes }
}

async fn published(store: &Store, job: JobId) -> anyhow::Result<Published> {
    let results = store.results_of_stage(job, "publish").await?;
    let result = results.into_iter().next().unwrap_or_default();
    serde_json::from_value(result).context("the record of what was published cannot be read")
}

/// Who gave one file need not be told of stages and tasks, but of the file.
fn told(file: &Path, error: &str) -> String {
    let is_place = |place: &str| place.starts_with("stage ") && place.contains(", task ");
    let reason =
        error.split_once(": ").filter(|(place, _)| is_place(place)).map_or(error, |(_, reason)| reason);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    if reason.contains(&*name) {
        reason.into()
    } else {
        format!("{}: {reason}", file.display())
    }
}

/// One run of the pipeline, until its job ends or somebody stops it.
struct Run<'a> {
    settings: &'a Settings,
    store: &'a Store,
    folder: &'a Folder,
    tools: &'a Tools,
    job: JobId,
    slots: NonZeroU32,
    capabilities: Capabilities,
}

impl Run<'_> {
    async fn to_the_end(&self, display: &mut Display, shutdown: &Shutdown) -> anyhow::Result<State> {
        let ending = CancellationToken::new();
        let mut options = self.settings.orchestrator_options()?;
        options.archive_after = Duration::from_secs(100 * 365 * 86_400);
        let orchestrator = tokio::spawn(orchestrator::run(self.store.clone(), options, ending.clone()));
        let handlers = Handlers::default().with_transcoding(self.tools);
        let working = worker::run(self.store.desk(), handlers, self.options(), shutdown.clone());
        tokio::pin!(working);
        let mut space = Space::new(self.folder);
        let worked = loop {
            tokio::select! {
                worked = &mut working => break worked,
                () = tokio::time::sleep(LOOK) => {
                    space.look()?;
                    // Looking on must never end the work.
                    if let Ok(report) = Report::look(self.store, self.job).await {
                        display.show(&report);
                    }
                }
            }
        };
        ending.cancel();
        orchestrator.await?;
        worked?;
        Ok(self.store.job(self.job).await?.state)
    }

    fn options(&self) -> Options {
        let mut options = Options::new(self.folder.work());
        options.slots = self.slots;
        options.capabilities = self.capabilities.clone();
        options.heartbeat_interval = duration(self.store.options().heartbeat_interval);
        options.fails_on_full_disk = true;
        // Who presses Ctrl-C wants it to end, and nothing that is committed is lost.
        options.drain_deadline = Duration::ZERO;
        // The desk is a file: only a full disk takes it away, and room may be made at any moment.
        (options.error_wait, options.error_wait_max) = (Duration::from_secs(1), Duration::from_secs(5));
        let (store, job) = (self.store.clone(), self.job);
        options.exit_when_idle = Some(IsOver::new(move || {
            let store = store.clone();
            async move { store.job(job).await.is_ok_and(|job| job.state.is_final()) }
        }));
        options
    }
}

/// As a person reads it.
pub fn megabytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// Prints a line of JSON about what has just happened.
fn event(name: &str, mut value: serde_json::Value) {
    if let Some(object) = value.as_object_mut() {
        object.insert("event".into(), name.into());
    }
    output::line(&value.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_file_and_not_the_task() {
        let file = Path::new("talk.mov");

        assert_eq!(
            told(file, "stage probe, task 1-0: /a/talk.mov: the file is empty"),
            "/a/talk.mov: the file is empty"
        );
        assert_eq!(told(file, "stage encode, task 1-3: encode: no space"), "talk.mov: encode: no space");
        assert_eq!(told(file, "cancelled"), "talk.mov: cancelled");
    }
}
