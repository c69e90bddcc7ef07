//! An execution and the commands it runs, as spans of its job's trace.

use rules::WorkerId;
use telemetry::trace::{TARGET, adopt};
use tracing::{Span, field, info_span};
use wire::Assignment;

use crate::process::{Command, Error, Exit, Status};
use crate::roster::execution_id;
use crate::tally::Fate;

pub(crate) fn of(job: &Assignment, worker: WorkerId) -> Span {
    let span = info_span!(
        target: TARGET,
        "execution",
        otel.name = job.stage,
        otel.kind = "consumer",
        otel.status_code = field::Empty,
        job.id = %job.job,
        task.id = %job.proof.task,
        execution.id = %execution_id(job),
        worker.id = %worker,
        stage = job.stage,
        kind = job.kind,
        segment = job.segment,
        attempt = job.attempt,
        outcome = field::Empty,
    );
    adopt(&span, job.traceparent.as_deref());
    span
}

/// To be said in the execution's own span.
pub(crate) fn ended(fate: Fate) {
    let span = Span::current();
    span.record("outcome", fate.as_str());
    if fate != Fate::Done {
        span.record("otel.status_code", "ERROR");
    }
}

/// What the command is told stays out: it may be long, and names files.
pub(crate) fn of_step(step: &str, command: &Command) -> Span {
    info_span!(
        target: TARGET,
        "step",
        otel.name = format!("{} ({step})", command.program()),
        otel.status_code = field::Empty,
        process.executable.name = command.program(),
        process.exit.code = field::Empty,
        step,
    )
}

pub(crate) fn step_ended(span: &Span, result: &Result<Exit, Error>) {
    let status = result.as_ref().map(|exit| exit.status);
    if let Ok(Status::Code(code)) = status {
        span.record("process.exit.code", code);
    }
    if !status.is_ok_and(Status::is_success) {
        span.record("otel.status_code", "ERROR");
    }
}
