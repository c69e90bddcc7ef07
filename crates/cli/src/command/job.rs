//! `vodmill job …`: one job, seen from all sides.

use crate::office::{self, Bell, Office};
use crate::settings::Settings;
use crate::{Done, output};
use output::or_dash;
use rules::JobId;
use server::api::jobs::JobDetail;
use store::detail::LogView;
use store::job::Job;
use store::log::{self, Level};

#[derive(clap::Args)]
pub struct Target {
    job: JobId,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct Logs {
    #[command(flatten)]
    target: Target,
    /// Go on printing what comes, until the job ends; with --json, a line for each
    #[arg(long, short)]
    follow: bool,
    /// Only what is at least so grave: debug, info, warn, error
    #[arg(long, value_name = "LEVEL", default_value = "debug", hide_default_value = true)]
    level: Level,
    /// Only what is about this stage
    #[arg(long, value_name = "STAGE")]
    stage: Option<String>,
}

/// Look at one job, cancel it or try it again
#[derive(clap::Subcommand)]
pub enum Command {
    /// What it is and how far its stages are
    Show(Target),
    /// Why it waits, or why it failed, in sentences
    Why(Target),
    /// Its tasks
    Tasks(Target),
    /// The qualities of its stream, how far each is, and why one failed
    Qualities(Target),
    /// Its executions: every attempt, with worker, outcome and cost
    Executions(Target),
    /// The commands its executions ran, with exit codes and the end of their output
    Steps(Target),
    /// Its log
    Logs(Logs),
    /// Every move of its tasks, and who made it
    Audit(Target),
    /// Stop it; what runs is stopped too
    Cancel(Target),
    /// Try a failed job again; what was done stays done
    Retry(Target),
}

impl Command {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let office = Office::open(settings).await?;
        match self {
            Command::Show(target) => show(&office, target).await?,
            Command::Why(target) => why(&office, target).await?,
            Command::Tasks(target) => tasks(&office, target).await?,
            Command::Qualities(target) => qualities(&office, target).await?,
            Command::Executions(target) => executions(&office, target).await?,
            Command::Steps(target) => steps(&office, target).await?,
            Command::Logs(asked) => return asked.run(&office).await,
            Command::Audit(target) => audit(&office, target).await?,
            Command::Cancel(target) => {
                let job = office.cancel(target.job).await?;
                say(&job, target.json, "cancelled")?;
            }
            Command::Retry(target) => {
                let job = office.retry(target.job).await?;
                match job.id == target.job {
                    true => say(&job, target.json, "open again")?,
                    false => {
                        let what = format!(
                            "open: it makes job {} again, of which committed files are gone",
                            target.job
                        );
                        say(&job, target.json, &what)?;
                    }
                }
            }
        }
        Ok(Done::Yes)
    }
}

fn say(job: &Job, json: bool, what: &str) -> anyhow::Result<()> {
    if json {
        return output::json(job);
    }
    output::line(&format!("job {} is {what}", job.id));
    Ok(())
}

async fn show(office: &Office, target: Target) -> anyhow::Result<()> {
    let JobDetail { job, stages } = office.job(target.job).await?;
    if target.json {
        return output::json(&serde_json::json!({ "job": job, "stages": stages }));
    }
    let now = office.now().await?;
    output::line(&format!(
        "job {}  {}  {}  priority {}  user {}  submitted {} ago",
        job.id,
        output::text(&job.name),
        job.state,
        job.priority,
        output::text(&job.user),
        output::ago(job.created_at, now)
    ));
    if let Some(error) = &job.error {
        output::line(&format!("error: {error}"));
    }
    output::line("");
    output::listing(
        false,
        &stages,
        ["stage", "phase", "kind", "tasks", "done", "running", "failed"],
        |stage| {
            [
                stage.name.clone(),
                stage.phase.clone(),
                stage.kind.clone(),
                if stage.is_expanded { stage.tasks.to_string() } else { "?".into() },
                (stage.tasks - stage.open).to_string(),
                stage.running.to_string(),
                stage.failed.to_string(),
            ]
        },
    )
}

async fn why(office: &Office, target: Target) -> anyhow::Result<()> {
    let why = office.why(target.job).await?;
    if target.json {
        return output::json(&why);
    }
    output::line(&format!("job {} is {}", why.job, why.state));
    for reason in &why.reasons {
        output::line(&format!("- {reason}"));
    }
    Ok(())
}

async fn tasks(office: &Office, target: Target) -> anyhow::Result<()> {
    let tasks = office.tasks(target.job).await?;
    output::listing(
        target.json,
        &tasks,
        ["task", "stage", "segment", "state", "attempts", "failure"],
        |task| {
            [
                task.id.to_string(),
                task.stage.clone(),
                task.segment.to_string(),
                task.state.clone(),
                format!("{}/{}", task.attempts, task.max_attempts),
                or_dash(task.failure.clone()),
            ]
        },
    )
}

async fn qualities(office: &Office, target: Target) -> anyhow::Result<()> {
    let qualities = office.qualities(target.job).await?;
    output::listing(target.json, &qualities, ["quality", "state", "pieces", "done", "reason"], |quality| {
        [
            quality.name.clone(),
            quality.state.clone(),
            format!("{}/{}", quality.done, quality.total),
            format!("{} %", quality.percent),
            or_dash(quality.reason.clone()),
        ]
    })
}

async fn executions(office: &Office, target: Target) -> anyhow::Result<()> {
    let executions = office.executions(target.job).await?;
    let head = ["execution", "status", "worker", "wall ms", "cpu ms", "memory", "error"];
    output::listing(target.json, &executions, head, |execution| {
        [
            execution.id.to_string(),
            execution.status.clone(),
            execution.worker.clone(),
            or_dash(execution.wall_ms),
            or_dash(execution.cpu_ms),
            or_dash(execution.peak_memory_bytes),
            output::short(execution.error.as_deref().unwrap_or(""), 60),
        ]
    })
}

async fn steps(office: &Office, target: Target) -> anyhow::Result<()> {
    let steps = office.steps(target.job).await?;
    output::listing(target.json, &steps, ["execution", "ms", "exit", "command", "end of stderr"], |step| {
        [
            step.execution.to_string(),
            step.duration_ms.to_string(),
            or_dash(
                step.exit_code.map(|code| code.to_string()).or(step.signal.map(|n| format!("signal {n}"))),
            ),
            output::short(&step.command, 60),
            output::short(step.stderr_tail.lines().last().unwrap_or(""), 60),
        ]
    })
}

impl Logs {
    async fn run(self, office: &Office) -> anyhow::Result<Done> {
        let filter = log::Filter { is_settled: self.follow, level: self.level, stage: self.stage, after: 0 };
        if self.follow {
            return super::watch::until_interrupted(follow(office, self.target, filter)).await;
        }
        let logs = office.logs(self.target.job, &filter).await?;
        let now = office.now().await?;
        output::listing(self.target.json, &logs, ["ago", "level", "stage", "message"], |log| {
            let stage = or_dash(log.stage.as_ref());
            [output::ago(log.at, now), log.level.clone(), stage, log.message.clone()]
        })?;
        Ok(Done::Yes)
    }
}

/// Prints each line as it comes, until the job has ended.
async fn follow(office: &Office, target: Target, mut filter: log::Filter) -> anyhow::Result<Done> {
    let begun = office.job(target.job).await?.job.created_at;
    let mut bell = Bell::new(office, Some(target.job)).await;
    loop {
        match tail(office, target.job, &filter).await {
            Ok((logs, has_ended)) => {
                for log in &logs {
                    filter.after = log.id;
                    if target.json {
                        output::json(log)?;
                    } else {
                        let at = output::since(log.at, begun);
                        let stage = or_dash(log.stage.as_ref());
                        output::line(&format!("{at:>10}  {:<5}  {stage:<10}  {}", log.level, log.message));
                    }
                }
                if has_ended && logs.is_empty() && !filter.is_settled {
                    return Ok(Done::Yes);
                }
                // What others hold back is not waited for: an ended job says nothing more.
                filter.is_settled = !(has_ended && logs.is_empty());
                if !filter.is_settled {
                    continue;
                }
            }
            // Whoever is away for a moment comes back.
            Err(error) if error.is_unavailable() => {}
            Err(error) => return Err(error.into()),
        }
        bell.rings().await;
    }
}

/// The lines that are new. What a job says last, it has said when it is seen to have ended.
async fn tail(
    office: &Office,
    job: JobId,
    filter: &log::Filter,
) -> Result<(Vec<LogView>, bool), office::Error> {
    let has_ended = office.job(job).await?.job.state.is_final();
    Ok((office.logs(job, filter).await?, has_ended))
}

async fn audit(office: &Office, target: Target) -> anyhow::Result<()> {
    let created_at = office.job(target.job).await?.job.created_at;
    let audit = office.audit(target.job).await?;
    let head = ["at", "who", "did", "task", "from", "to", "execution", "note"];
    output::listing(target.json, &audit, head, |row| {
        let execution = match (&row.from_execution, &row.to_execution) {
            (Some(from), Some(to)) => format!("{} {from}→{to}", or_dash(row.fence)),
            (None, Some(to)) => format!("{} {to}", or_dash(row.fence)),
            _ => String::new(),
        };
        [
            output::since(row.at, created_at),
            row.role.clone(),
            row.command.clone(),
            or_dash(row.task),
            row.from.clone().unwrap_or_default(),
            row.to.clone().unwrap_or_default(),
            execution,
            output::short(row.note.as_deref().unwrap_or(""), 60),
        ]
    })
}
