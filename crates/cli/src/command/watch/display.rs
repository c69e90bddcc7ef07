//! How far a job is, for people and for scripts.

use crate::output;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use rules::JobId;
use rules::job::State;
use server::api::jobs::JobDetail;
use std::io::IsTerminal;
use store::detail::StageView;

/// Bars on a terminal; elsewhere a line for each change.
pub enum Display {
    Bars { all: MultiProgress, bars: Vec<ProgressBar> },
    Lines { json: bool, last: String },
}

impl Display {
    pub fn new(json: bool) -> Self {
        if !json && std::io::stderr().is_terminal() {
            Display::Bars { all: MultiProgress::new(), bars: Vec::new() }
        } else {
            Display::Lines { json, last: String::new() }
        }
    }

    pub fn show(&mut self, JobDetail { job, stages }: &JobDetail) {
        let (id, state, error) = (job.id, job.state, job.error.as_deref());
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
    bar.set_prefix(output::text(&stage.name));
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
