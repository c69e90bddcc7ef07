//! How far a transcoding job is.

use media::plan::{Piece, Plan};
use rules::JobId;
use serde::Serialize;
use store::detail::TaskView;
use store::{Result, Store};

/// What there is to tell while it runs.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Report {
    /// Of all the work, from 0 to 1.
    pub fraction: f64,
    /// Known once there is a plan.
    pub rungs: Vec<Rung>,
    /// Seconds of video that are encoded, counted once over all rungs.
    pub encoded_seconds: f64,
    pub duration: f64,
    /// What is going on, or what it waits for.
    pub doing: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Rung {
    pub name: String,
    pub width: u32,
    pub height: u32,
    pub fraction: f64,
}

/// How much of the work is not encoding.
const AROUND: f64 = 0.04;

impl Report {
    pub async fn look(store: &Store, job: JobId) -> Result<Self> {
        let tasks = store.tasks_of_job(job).await?;
        let plan = store.results_of_stage(job, "plan").await?.into_iter().next();
        let plan: Option<Plan> = plan.and_then(|plan| serde_json::from_value(plan).ok());
        let now = store.now().await?.0;
        Ok(Report {
            doing: doing(&tasks, now),
            ..plan.map(|plan| Report::of(&plan, &tasks)).unwrap_or_default()
        })
    }

    fn of(plan: &Plan, tasks: &[TaskView]) -> Self {
        let fraction_of = |stage: &str| {
            let tasks: Vec<&TaskView> = tasks.iter().filter(|task| task.stage == stage).collect();
            if tasks.is_empty() {
                1.0
            } else {
                tasks.iter().map(|task| done(task)).sum::<f64>() / tasks.len() as f64
            }
        };
        let around = (fraction_of("package") + fraction_of("publish")) / 2.0 * AROUND;
        let Some(picture) = &plan.picture else {
            return Report {
                fraction: fraction_of("audio") * (1.0 - AROUND) + around,
                duration: plan.duration(),
                encoded_seconds: fraction_of("audio") * plan.duration(),
                ..Report::default()
            };
        };
        let of_stage = |name: &'static str| tasks.iter().filter(move |task| task.stage == name).map(done);
        let all = plan.pieces().into_iter().zip(of_stage("encode"));
        let optional = plan.optional_pieces().into_iter().zip(of_stage("encode_optional"));
        let encodes: Vec<(Piece, f64)> = all.chain(optional).collect();
        let rungs = picture.rungs.iter().map(|rung| {
            let frames: f64 = encodes
                .iter()
                .filter(|(piece, _)| picture.rungs_of_group(&piece.group).any(|made| made.name == rung.name))
                .map(|(piece, done)| piece.chunk.frames() as f64 * done)
                .sum();
            let fraction = frames / picture.frames.max(1) as f64;
            Rung { name: rung.name.to_string(), width: rung.width, height: rung.height, fraction }
        });
        let rungs: Vec<Rung> = rungs.collect();
        let encoded = rungs.iter().map(|rung| rung.fraction).sum::<f64>() / rungs.len().max(1) as f64;
        Report {
            fraction: encoded * (1.0 - AROUND) + around,
            rungs,
            encoded_seconds: encoded * plan.duration(),
            duration: plan.duration(),
            doing: String::new(),
        }
    }
}

fn done(task: &TaskView) -> f64 {
    match task.state.as_str() {
        "DONE" => 1.0,
        "RUNNING" => task.permille.unwrap_or(0) as f64 / 1000.0,
        _ => 0.0,
    }
}

fn doing(tasks: &[TaskView], now: i64) -> String {
    let mut running: Vec<&str> =
        tasks.iter().filter(|task| task.state == "RUNNING").map(|task| task.stage.as_str()).collect();
    running.dedup();
    if !running.is_empty() {
        return running.into_iter().map(said).collect::<Vec<_>>().join(", ");
    }
    let waiting = tasks.iter().find(|task| task.state == "ERROR" && task.due_at.is_some());
    match waiting {
        Some(task) => {
            let seconds = (task.due_at.unwrap_or(now) - now).max(0) / 1000;
            format!("{} failed; trying again in {seconds} s", said(&task.stage))
        }
        None => "waiting".into(),
    }
}

fn said(stage: &str) -> &str {
    match stage {
        "probe" => "looking at the file",
        "plan" => "planning",
        "encode" | "encode_optional" => "encoding",
        "audio" => "encoding sound",
        "subtitles" => "subtitles",
        "thumbnails" => "preview pictures",
        "package" => "packaging and checking",
        "measure" => "comparing with the source",
        "publish" => "publishing",
        other => other,
    }
}
