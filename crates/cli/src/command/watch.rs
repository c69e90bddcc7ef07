use crate::settings::Settings;
use crate::{Done, output};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rules::JobId;
use rules::job::State;
use std::io::IsTerminal;
use std::time::Duration;
use store::detail::StageView;
use store::{Error, Store};

/// Follow a job until it ends
///
/// Exits with 0 when it completes and 1 when it fails or is cancelled. Ctrl-C stops the watching, not the job.
#[derive(clap::Args)]
pub struct Args {
    job: JobId,
    /// Print a line of JSON whenever something changes
    #[arg(long)]
    json: bool,
}

const LOOK: Duration = Duration::from_millis(200);

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let store = settings.open_existing().await?;
        follow(&store, self.job, self.json).await
    }
}

pub async fn follow(store: &Store, job: JobId, json: bool) -> anyhow::Result<Done> {
    let mut display = Display::new(json);
    tokio::select! {
        ended = look_until_end(store, job, &mut display) => ended,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("job {job} goes on; `vodmill watch {job}` follows it again");
            Ok(Done::Interrupted)
        }
    }
}

async fn look_until_end(store: &Store, id: JobId, display: &mut Display) -> anyhow::Result<Done> {
    loop {
        match look(store, id, display).await {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => {}
            // A database that is away for a moment comes back.
            Err(error) if error.is_unavailable() => {}
            Err(error) => return Err(error.into()),
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn look(store: &Store, id: JobId, display: &mut Display) -> Result<Option<Done>, Error> {
    let job = store.job(id).await?;
    let stages = store.stages_of_job(id).await.unwrap_or_default();
    display.show(id, job.state, &stages, job.error.as_deref());
    Ok(match job.state {
        State::Completed => Some(Done::Yes),
        State::Failed | State::Cancelled => Some(Done::No),
        _ => None,
    })
}

/// Bars on a terminal; elsewhere a line for each change.
enum Display {
    Bars { all: MultiProgress, bars: Vec<ProgressBar> },
    Lines { json: bool, last: String },
}

impl Display {
    fn new(json: bool) -> Self {
        if !json && std::io::stderr().is_terminal() {
            Display::Bars { all: MultiProgress::new(), bars: Vec::new() }
        } else {
            Display::Lines { json, last: String::new() }
        }
    }

    fn show(&mut self, id: JobId, state: State, stages: &[StageView], error: Option<&str>) {
        match self {
            Display::Bars { all, bars } => {
                while bars.len() < stages.len() {
                    bars.push(all.add(bar()));
                }
                for (bar, stage) in bars.iter().zip(stages) {
                    draw(bar, stage);
                }
                if state.is_final() {
                    bars.iter().for_each(ProgressBar::abandon);
                    output::line(&ending(id, state, error));
                }
            }
            Display::Lines { json, last } => {
                let line = if *json {
                    as_json(id, state, stages, error)
                } else {
                    as_text(id, state, stages, error)
                };
                if line != *last {
                    output::line(&line);
                    *last = line;
                }
            }
        }
    }
}

fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<12!} [{bar:32}] {pos:>5}/{len:<5} {msg}");
    ProgressBar::new(1)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
}

fn draw(bar: &ProgressBar, stage: &StageView) {
    bar.set_prefix(stage.name.clone());
    bar.set_length(stage.tasks.max(0).unsigned_abs());
    bar.set_position((stage.tasks - stage.open).max(0).unsigned_abs());
    bar.set_message(match stage {
        StageView { is_expanded: false, .. } => "not planned yet".into(),
        StageView { failed: 1.., .. } => format!("{} failed", stage.failed),
        StageView { running: 1.., .. } => format!("{} running", stage.running),
        StageView { open: 0, .. } => "done".into(),
        StageView { is_released: true, .. } => "waiting for a worker".into(),
        _ => "waiting for earlier stages".into(),
    });
}

fn ending(id: JobId, state: State, error: Option<&str>) -> String {
    match error {
        Some(error) => format!("job {id} is {state}: {error}"),
        None => format!("job {id} is {state}"),
    }
}

fn as_text(id: JobId, state: State, stages: &[StageView], error: Option<&str>) -> String {
    if state.is_final() {
        return ending(id, state, error);
    }
    let parts: Vec<String> = stages
        .iter()
        .map(|stage| match stage.is_expanded {
            true => format!("{} {}/{}", stage.name, stage.tasks - stage.open, stage.tasks),
            false => format!("{} ?", stage.name),
        })
        .collect();
    format!("job {id} is {state}: {}", parts.join(", "))
}

fn as_json(id: JobId, state: State, stages: &[StageView], error: Option<&str>) -> String {
    serde_json::json!({ "job": id, "state": state, "error": error, "stages": stages }).to_string()
}
