//! `vodmill job …`: one job, seen from all sides.

use crate::settings::Settings;
use crate::{Done, output};
use output::or_dash;
use rules::JobId;
use serde::Serialize;
use store::Store;

#[derive(clap::Args)]
pub struct Target {
    job: JobId,
    /// Print JSON
    #[arg(long)]
    json: bool,
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
    /// Its executions: every attempt, with worker, outcome and cost
    Executions(Target),
    /// The commands its executions ran, with exit codes and the end of their output
    Steps(Target),
    /// Its log
    Logs(Target),
    /// Every move of its tasks, and who made it
    Audit(Target),
    /// Stop it; what runs is stopped too
    Cancel(Target),
    /// Try a failed job again; what was done stays done
    Retry(Target),
}

impl Command {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let store = settings.open_existing().await?;
        match self {
            Command::Show(target) => show(&store, target).await?,
            Command::Why(target) => why(&store, target).await?,
            Command::Tasks(target) => tasks(&store, target).await?,
            Command::Executions(target) => executions(&store, target).await?,
            Command::Steps(target) => steps(&store, target).await?,
            Command::Logs(target) => logs(&store, target).await?,
            Command::Audit(target) => audit(&store, target).await?,
            Command::Cancel(target) => {
                store.cancel(target.job, None).await?;
                say(&store, target, "cancelled").await?;
            }
            Command::Retry(target) => {
                store.retry_job(target.job, None).await?;
                say(&store, target, "open again").await?;
            }
        }
        Ok(Done::Yes)
    }
}

/// JSON where asked for, a table otherwise.
fn print<T: Serialize, const N: usize>(
    json: bool,
    values: &[T],
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
) -> anyhow::Result<()> {
    if json {
        return output::json(&values);
    }
    output::table(head, &values.iter().map(row).collect::<Vec<_>>());
    Ok(())
}

async fn say(store: &Store, target: Target, what: &str) -> anyhow::Result<()> {
    if target.json {
        return output::json(&store.job(target.job).await?);
    }
    output::line(&format!("job {} is {what}", target.job));
    Ok(())
}

async fn show(store: &Store, target: Target) -> anyhow::Result<()> {
    let job = store.job(target.job).await?;
    // An archived job has no stages any more.
    let stages = store.stages_of_job(target.job).await.unwrap_or_default();
    if target.json {
        return output::json(&serde_json::json!({ "job": job, "stages": stages }));
    }
    let now = store.now().await?.0;
    output::line(&format!(
        "job {}  {}  {}  priority {}  user {}  submitted {} ago",
        job.id,
        job.name,
        job.state,
        job.priority,
        job.user,
        output::ago(job.created_at, now)
    ));
    if let Some(error) = &job.error {
        output::line(&format!("error: {error}"));
    }
    output::line("");
    print(false, &stages, ["stage", "phase", "kind", "tasks", "done", "running", "failed"], |stage| {
        [
            stage.name.clone(),
            stage.phase.clone(),
            stage.kind.clone(),
            if stage.is_expanded { stage.tasks.to_string() } else { "?".into() },
            (stage.tasks - stage.open).to_string(),
            stage.running.to_string(),
            stage.failed.to_string(),
        ]
    })
}

async fn why(store: &Store, target: Target) -> anyhow::Result<()> {
    let why = store.why(target.job).await?;
    if target.json {
        return output::json(&why);
    }
    output::line(&format!("job {} is {}", why.job, why.state));
    for reason in &why.reasons {
        output::line(&format!("- {reason}"));
    }
    Ok(())
}

async fn tasks(store: &Store, target: Target) -> anyhow::Result<()> {
    store.job(target.job).await?;
    let tasks = store.tasks_of_job(target.job).await?;
    print(target.json, &tasks, ["task", "stage", "segment", "state", "attempts", "failure"], |task| {
        [
            task.id.to_string(),
            task.stage.clone(),
            task.segment.to_string(),
            task.state.clone(),
            format!("{}/{}", task.attempts, task.max_attempts),
            or_dash(task.failure.clone()),
        ]
    })
}

async fn executions(store: &Store, target: Target) -> anyhow::Result<()> {
    store.job(target.job).await?;
    let executions = store.executions_of_job(target.job).await?;
    let head = ["execution", "status", "worker", "wall ms", "cpu ms", "memory", "error"];
    print(target.json, &executions, head, |execution| {
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

async fn steps(store: &Store, target: Target) -> anyhow::Result<()> {
    store.job(target.job).await?;
    let steps = store.steps_of_job(target.job).await?;
    print(target.json, &steps, ["execution", "ms", "exit", "command", "end of stderr"], |step| {
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

async fn logs(store: &Store, target: Target) -> anyhow::Result<()> {
    store.job(target.job).await?;
    let logs = store.logs_of_job(target.job, 0).await?;
    let now = store.now().await?.0;
    print(target.json, &logs, ["ago", "level", "message"], |log| {
        [output::ago(log.at, now), log.level.clone(), log.message.clone()]
    })
}

async fn audit(store: &Store, target: Target) -> anyhow::Result<()> {
    let created_at = store.job(target.job).await?.created_at;
    let audit = store.audit_of_job(target.job).await?;
    let head = ["at", "who", "did", "task", "from", "to", "execution", "note"];
    print(target.json, &audit, head, |row| {
        let execution = match (&row.from_execution, &row.to_execution) {
            (Some(from), Some(to)) => format!("{} {from}→{to}", or_dash(row.fence)),
            (None, Some(to)) => format!("{} {to}", or_dash(row.fence)),
            _ => String::new(),
        };
        [
            format!("+{}.{:03}s", (row.at - created_at) / 1000, (row.at - created_at).rem_euclid(1000)),
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
