//! Runs a program of the user's: `{"run": ["ffmpeg", "-i", …]}`. No shell is involved.
//!
//! What it prints becomes the result: a JSON object as it is, anything else as `{"stdout": "…"}`, its last 4
//! KiB. Exit code 0 is success; 65 says that the input is broken and trying again is no use; any other may be
//! tried again.

use serde::Deserialize;
use serde_json::{Value, json};
use wire::Assignment;

use super::{BoxFuture, Failed, Handler, Outcome};
use crate::context::Context;
use crate::process::{self, Error, Exit, Guard, Limits, Status};

/// `EX_DATAERR` of sysexits.h.
const BROKEN_INPUT: i32 = 65;

#[derive(Debug, Clone, Default)]
pub struct Command {
    /// For every program it runs. Default: none.
    pub limits: Limits,
    pub guard: Guard,
}

#[derive(Deserialize)]
struct Payload {
    run: Vec<String>,
}

impl Handler for Command {
    fn kind(&self) -> &str {
        "command"
    }

    fn run<'a>(
        &'a self,
        job: &'a Assignment,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Failed>> {
        Box::pin(async move {
            let command = self.command(job, context).await?;
            let program = command.argv.first().cloned().unwrap_or_default();
            match context.run(&job.stage, command).await {
                Ok(exit) if exit.status.is_success() => Ok(result(&exit).into()),
                Ok(exit) => Err(unsuccessful(&program, &exit)),
                Err(error) => Err(cut_short(&program, job, &error)),
            }
        })
    }
}

impl Command {
    async fn command(&self, job: &Assignment, context: &Context) -> Result<process::Command, Failed> {
        let payload = Payload::deserialize(&job.payload);
        let Payload { run } =
            payload.map_err(|error| Failed::permanent(format!("not a payload of `command`: {error}")))?;
        let mut command = process::Command::new(run, context.folder().await?);
        command.env = environment(job);
        command.limits = self.limits.clone();
        command.guard = self.guard.clone();
        Ok(command)
    }
}

fn environment(job: &Assignment) -> Vec<(String, String)> {
    let input = job.input.as_ref().unwrap_or(&Value::Null);
    [
        ("VODMILL_JOB", job.job.to_string()),
        ("VODMILL_TASK", job.proof.task.to_string()),
        ("VODMILL_STAGE", job.stage.clone()),
        ("VODMILL_SEGMENT", job.segment.to_string()),
        ("VODMILL_ATTEMPT", job.attempt.to_string()),
        ("VODMILL_INPUT", input.to_string()),
    ]
    .map(|(name, value)| (name.into(), value))
    .into()
}

fn result(exit: &Exit) -> Value {
    match serde_json::from_slice(&exit.stdout) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => json!({ "stdout": exit.stdout_tail }),
    }
}

fn unsuccessful(program: &str, exit: &Exit) -> Failed {
    let how = match exit.status {
        Status::Code(code) => format!("`{program}` ended with exit code {code}"),
        Status::Signal(signal) => format!("`{program}` was ended by signal {signal}"),
    };
    let last_line = exit.stderr_tail.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let message = last_line.map_or(how.clone(), |line| format!("{how}: {line}"));
    match exit.status {
        Status::Code(BROKEN_INPUT) => Failed::permanent(message),
        Status::Code(_) | Status::Signal(_) => Failed::transient(message),
    }
}

fn cut_short(program: &str, job: &Assignment, error: &Error) -> Failed {
    match error {
        Error::Empty | Error::CannotStart { .. } => Failed::permanent(error.to_string()),
        Error::OutputTooLarge { .. } | Error::WroteTooMuch { .. } => {
            Failed::permanent(format!("`{program}` {error}"))
        }
        Error::TookTooMuchMemory { .. } | Error::TooManyThreads { .. } | Error::Stalled { .. } => {
            Failed::transient(format!("`{program}` {error}"))
        }
        // The limit is the whole execution's; what was left of it when the program began would puzzle.
        Error::TimedOut { .. } => Failed::transient(format!(
            "`{program}` was still running after {} ms, its time limit, and was killed",
            job.timeout_ms.unwrap_or_default()
        )),
        Error::Stopped | Error::GuardLost { .. } | Error::Io { .. } => Failed::transient(error.to_string()),
    }
}
