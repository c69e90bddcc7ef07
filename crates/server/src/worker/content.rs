//! Compares what a remote worker made with the source before it is committed: viewers may see it from then on.
//!
//! A comparison may outlast the request that asked for it. It continues without it, and a worker that sends the same report
//! again gets its outcome.

use super::desk::drop_files;
use super::verify;
use crate::app::App;
use crate::problem::{Error, Result};
use axum::http::StatusCode;
use pipeline::TrackResult;
use rules::failure::Kind;
use rules::{ExecutionId, ExecutionName};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use wire::{Answer, Assignment, Desk, Failure, Usage};
use worker::transcode::{BadOutput, CheckError, ResultCheck};

/// How long a request waits; a worker gives up after half a minute.
const PATIENCE: Duration = Duration::from_secs(15);

/// Outcomes that no report asked for are forgotten after this: the lease has ended long before.
const KEPT: Duration = Duration::from_secs(2 * 60 * 60);

/// How often a comparison is tried that fails for reasons of the server.
const TRIES: u32 = 3;

#[derive(Debug, Clone)]
enum Outcome {
    Passed,
    Rejected(String),
    /// It could not be compared.
    Failed(Kind, String),
}

#[derive(Debug)]
struct Comparison {
    began: Instant,
    made: TrackResult,
    outcome: watch::Receiver<Option<Outcome>>,
}

/// The comparisons of this server, one for each execution.
#[derive(Debug, Clone, Default)]
pub struct Comparisons {
    check: Option<ResultCheck>,
    known: Arc<Mutex<HashMap<ExecutionId, Comparison>>>,
}

impl Comparisons {
    pub fn with(check: ResultCheck) -> Self {
        Comparisons { check: Some(check), known: Arc::default() }
    }

    async fn outcome(&self, task: Assignment, made: TrackResult) -> Result<Outcome> {
        let Some(check) = self.check.clone() else { return Ok(Outcome::Passed) };
        let (execution, compared) = (task.proof.execution(), made.clone());
        let mut outcome =
            self.join(execution, made, async move { compare(&check, &task, &compared).await })?;
        match tokio::time::timeout(PATIENCE, outcome.wait_for(Option::is_some)).await {
            Ok(Ok(outcome)) => Ok(outcome.clone().unwrap_or(Outcome::Passed)),
            Ok(Err(_)) => Ok(Outcome::Failed(Kind::Transient, "the comparison broke down".into())),
            Err(_) => Err(Error::Protocol {
                status: StatusCode::SERVICE_UNAVAILABLE,
                code: "comparing",
                detail: "the server still compares this result with the source; send the report again".into(),
            }),
        }
    }

    /// The comparison of this result. That of another result of the same execution does not speak for this one.
    fn join(
        &self,
        execution: ExecutionId,
        made: TrackResult,
        compare: impl Future<Output = Outcome> + Send + 'static,
    ) -> Result<watch::Receiver<Option<Outcome>>> {
        let mut known = self.known();
        known.retain(|_, it| it.began.elapsed() < KEPT);
        match known.get(&execution) {
            Some(known) if known.made == made => return Ok(known.outcome.clone()),
            Some(_) => {
                let why = "the server compares another result of this execution";
                return Err(Error::unprocessable("bad_result", why));
            }
            None => {}
        }
        let (tell, outcome) = watch::channel(None);
        known.insert(execution, Comparison { began: Instant::now(), made, outcome: outcome.clone() });
        tokio::spawn(async move { tell.send_replace(Some(compare.await)) });
        Ok(outcome)
    }

    fn forget(&self, execution: ExecutionId) {
        self.known().remove(&execution);
    }

    fn known(&self) -> MutexGuard<'_, HashMap<ExecutionId, Comparison>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn compare(check: &ResultCheck, task: &Assignment, made: &TrackResult) -> Outcome {
    let mut tries = 0;
    loop {
        tries += 1;
        match check.check(task, made).await {
            Ok(()) => return Outcome::Passed,
            Err(CheckError::Rejected(why)) => return Outcome::Rejected(why),
            Err(CheckError::Failed(failed)) => {
                let id = task.proof.execution();
                tracing::warn!(execution.id = %id, "cannot compare what {id} made with the source: {failed}");
                if tries == TRIES {
                    // Whoever made it has no part in this server's trouble with its disk.
                    let kind = match failed.kind {
                        Kind::StorageAway | Kind::DiskFull => Kind::StorageAway,
                        _ => Kind::Transient,
                    };
                    return Outcome::Failed(kind, failed.to_string());
                }
            }
        }
    }
}

/// Whether this server compares what a task results in.
pub fn compares(app: &App, task: &Assignment) -> bool {
    app.comparisons.check.is_some() && ResultCheck::applies_to(task)
}

/// Compares the kept files of an execution with the source. What does not pass is removed, and its execution is ended, so
/// that another worker gets the task.
pub async fn check(app: &App, task: Assignment, made: TrackResult) -> Result<()> {
    if !compares(app, &task) {
        return Ok(());
    }
    let proof = task.proof;
    let outcome = app.comparisons.outcome(task, made).await?;
    app.comparisons.forget(proof.execution());
    let (kind, why) = match outcome {
        Outcome::Passed => return Ok(()),
        Outcome::Rejected(why) => (Kind::Rejected, format!("the server rejected the result: {why}")),
        Outcome::Failed(kind, why) => {
            (kind, format!("the server could not compare the result with the source: {why}"))
        }
    };
    let failure = Failure { proof, kind, message: why.clone(), usage: Usage::default(), steps: Vec::new() };
    match app.desk.fail(&failure).await {
        Ok(Answer::Accepted | Answer::AlreadyAccepted) => verify::discard(app, proof.execution()).await,
        // It has ended some other way; what it committed is not this report's to remove.
        Ok(Answer::Refused(refusal)) => return Err(drop_files(app, proof, refusal).await),
        Err(error) => {
            tracing::warn!(execution.id = %proof.execution(), "cannot end {}: {error}", proof.execution());
        }
    }
    match kind {
        Kind::Rejected => Err(Error::unprocessable("bad_result", why)),
        _ => Err(Error::unprocessable("not_compared", why)),
    }
}

/// Removes output that the gate has refused, so that a retry makes it again, and counts it against the worker that made it.
pub async fn refuse_outputs(app: App, mut refused: UnboundedReceiver<BadOutput>) {
    while let Some(BadOutput { execution, why }) = refused.recv().await {
        let Ok(ExecutionName { task, fence, token: Some(token) }) = execution.as_str().parse() else {
            continue;
        };
        let id = ExecutionId { task, fence, token };
        verify::discard(&app, id).await;
        match app.store.reject_output(id.into(), &why).await {
            Ok(true) => tracing::error!(execution.id = %id, "suspended the worker that made {id}: {why}"),
            Ok(false) => {}
            Err(error) => tracing::warn!(execution.id = %id, "cannot count the refused output {id}: {error}"),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rules::{Fence, JobId, TaskId, Token};
    use std::future::{pending, ready};

    #[tokio::test]
    async fn a_comparison_speaks_for_the_result_that_was_compared_alone() {
        let comparisons = Comparisons::default();
        let id = ExecutionId { task: TaskId::new(JobId(1), 0), fence: Fence(1), token: Token(7) };
        let made = TrackResult {
            execution: id.to_string().parse().unwrap(),
            tracks: Vec::new(),
            is_compared: false,
        };
        let mut other = made.clone();
        other.execution = "another".parse().unwrap();

        let first = comparisons.join(id, made.clone(), pending()).unwrap();
        let again = comparisons.join(id, made.clone(), ready(Outcome::Passed)).unwrap();

        assert!(again.same_channel(&first), "it is asked for once");
        assert!(comparisons.join(id, other.clone(), ready(Outcome::Passed)).is_err());
        comparisons.forget(id);
        assert!(comparisons.join(id, other, ready(Outcome::Passed)).is_ok());
    }
}
