//! `vodmill bench queue`: all the figures of the queue, beside the raw limits of its engine.

use super::figure::{self, Figure};
use super::load;
use super::place::Place;
use super::raw::Raw;
use super::sizes::Sizes;
use super::{backlog, drain, latency, recovery, verbs};
use crate::Done;
use crate::settings::Settings;
use indicatif::ProgressBar;
use rules::WorkerId;
use std::time::Duration;
use store::{Location, Store};

/// Measure the queue: tasks per second, waiting times, and how far they are from the engine's own limits
///
/// Uses a database of its own, made beside the one of --database-url (on the same server, or on the same disk) and
/// removed at the end; nothing of yours is read or written. Every task is leased, committed, settled and audited
/// as in production. Each figure is the median of rounds interleaved with the raw limit, so trust the ratios
/// also on a busy machine.
#[derive(clap::Args)]
pub struct Args {
    /// Fewer and shorter rounds, and no backlog of a million tasks
    #[arg(long)]
    quick: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Measure only this; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<Part>,
    /// Sizes for a test of the benchmark itself
    #[arg(long, hide = true)]
    tiny: bool,
    /// Interleaved rounds, for scripts that take their own medians
    #[arg(long, hide = true, value_name = "N")]
    rounds: Option<usize>,
    /// Tasks drained in a round; a tenth of them one at a time, and a tenth as jobs of their own
    #[arg(long, hide = true, value_name = "TASKS")]
    drain: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Submitting, claiming and committing, each alone
    Verbs,
    /// Tasks from READY to settled, all verbs and the orchestrator at once
    Drain,
    /// From submission to start on an idle system
    Wake,
    /// From the last segment's commit to the next stage
    FanIn,
    /// Claiming from a large backlog
    Backlog,
    /// Taking back expired leases
    Recovery,
}

/// What every measure works with.
pub struct Bench {
    pub location: Location,
    pub store: Store,
    pub worker: WorkerId,
    pub raw: Raw,
    pub sizes: Sizes,
    pub figures: Vec<Figure>,
    progress: ProgressBar,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let place = Place::make(settings.database_url.as_deref()).await?;
        let measured = tokio::select! {
            measured = self.measure(&place) => measured.map(|()| Done::Yes),
            () = interrupted() => Ok(Done::Interrupted),
        };
        let removed = place.remove().await;
        let done = measured?;
        removed.map(|()| done)
    }

    async fn measure(&self, place: &Place) -> anyhow::Result<()> {
        let mut bench = Bench::new(place, self.sizes()).await?;
        for part in [Part::Verbs, Part::Drain, Part::Wake, Part::FanIn, Part::Recovery, Part::Backlog] {
            if self.only.is_empty() || self.only.contains(&part) {
                part.measure(&mut bench).await?;
            }
        }
        bench.progress.finish_and_clear();
        let engine = if bench.store.is_postgres() { "postgres" } else { "sqlite" };
        if self.json {
            return figure::print_json(engine, &bench.figures);
        }
        figure::print(&bench.figures);
        Ok(())
    }

    fn sizes(&self) -> Sizes {
        let mut sizes = match (self.tiny, self.quick) {
            (true, _) => Sizes::tiny(),
            (false, true) => Sizes::quick(),
            (false, false) => Sizes::full(),
        };
        if let Some(rounds) = self.rounds {
            sizes.rounds = rounds.max(1);
        }
        if let Some(tasks) = self.drain {
            (sizes.drained, sizes.drained_singly, sizes.drained_jobs) = (tasks, tasks / 10, tasks / 10);
        }
        sizes
    }
}

impl Part {
    async fn measure(self, bench: &mut Bench) -> anyhow::Result<()> {
        match self {
            Part::Verbs => verbs::measure(bench).await,
            Part::Drain => drain::measure(bench).await,
            Part::Wake => latency::wake(bench).await,
            Part::FanIn => latency::fan_in(bench).await,
            Part::Backlog => backlog::measure(bench).await,
            Part::Recovery => recovery::measure(bench).await,
        }
    }
}

impl Bench {
    async fn new(place: &Place, sizes: Sizes) -> anyhow::Result<Self> {
        // Hidden by itself where standard error is no terminal.
        let progress = ProgressBar::new_spinner();
        progress.enable_steady_tick(Duration::from_millis(100));
        let store = load::open(&place.location).await?;
        let worker = load::register(&store).await?;
        let raw = Raw::open(place).await?;
        Ok(Bench {
            location: place.location.clone(),
            store,
            worker,
            raw,
            sizes,
            figures: Vec::new(),
            progress,
        })
    }

    /// Tells a person what is being measured.
    pub fn says(&self, what: impl Into<String>) {
        self.progress.set_message(what.into());
    }

    pub fn push(&mut self, figure: Figure) {
        self.figures.push(figure);
    }
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
