//! Rejected reports of remote workers: counted, and the worker is suspended when they are too many.
//!
//! Only reports that no crash and no race explains are counted: a lease that ran out, a token from before a recovery or a
//! report that was sent twice is refused and forgotten.

use crate::Store;
use crate::alert::{self, Alert, Kind};
use crate::db::{Step, again};
use crate::error::{Error, Result};
use crate::wake::Topic;
use crate::worker::{self, Changed};
use rules::task::Death;
use rules::worker::{Command, Status};
use rules::{ExecutionName, Millis, WorkerId};
use serde_json::json;

/// How long the reason of a suspension may be.
const MAX_REASON: usize = 500;

/// What was wrong with a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rejection {
    /// The result cannot be what this work results in.
    BadResult,
    /// What it committed is not what its task was to make.
    BadOutput,
    /// A file is not what it was declared to be.
    BadFile,
    /// What was uploaded cannot be an output.
    BadUpload,
    /// The failure is none that a worker can report.
    BadFailure,
    /// The report spoke of another worker's execution.
    ForeignExecution,
    /// It called work hopeless that another worker has done.
    RefutedFailure,
}

impl Rejection {
    pub const fn as_str(self) -> &'static str {
        match self {
            Rejection::BadResult => "a bad result",
            Rejection::BadOutput => "output that the gate refused",
            Rejection::BadFile => "a file that is not what was declared",
            Rejection::BadUpload => "an upload that cannot be an output",
            Rejection::BadFailure => "a failure that no worker can report",
            Rejection::ForeignExecution => "a report on another worker's execution",
            Rejection::RefutedFailure => "a permanent failure that another worker did not have",
        }
    }
}

impl Store {
    /// Counts a rejected report of a remote worker. One with too many is suspended, its leases are free at once, and an alert
    /// is raised; whether that happened. Local workers are the operator's own and are not counted.
    pub async fn reject_report(&self, worker: WorkerId, rejection: Rejection, detail: &str) -> Result<bool> {
        let limit = self.options.suspend_after;
        let reject = Command::Reject { limit, window: self.options.rejection_window };
        let suspended = match again(|| self.reject_once(worker, reject, rejection, detail)).await {
            Ok(suspended) => suspended,
            // It is disabled already, or gone.
            Err(Error::Refused(_) | Error::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        };
        if suspended {
            self.lose_worker(worker, Death::ByPerson).await?;
            self.wake.up(Topic::Ready);
            self.wake.up(Topic::Deliver);
        }
        Ok(suspended)
    }

    /// Counts output that was committed and then refused against the worker that made it.
    pub async fn reject_output(&self, execution: ExecutionName, detail: &str) -> Result<bool> {
        match self.holder_of(execution).await? {
            Some(worker) => self.reject_report(worker, Rejection::BadOutput, detail).await,
            None => Ok(false),
        }
    }

    async fn reject_once(
        &self,
        worker: WorkerId,
        reject: Command,
        rejection: Rejection,
        detail: &str,
    ) -> Result<bool> {
        let mut tx = self.db.write(Step::Reject).await?;
        if !worker::is_remote(&mut tx, worker).await? {
            return Ok(false);
        }
        let Changed { status, rejections, name } =
            worker::step(&mut tx, worker, reject, "orchestrator").await?;
        let is_suspended = status == Status::Disabled;
        if is_suspended {
            let why = reason(rejections.count, rejection, detail);
            worker::suspend(&mut tx, worker, &why).await?;
            let now = tx.now();
            alert::raise(&mut tx, vec![suspended(worker, &name, &why, now)]).await?;
        }
        tx.commit().await?;
        Ok(is_suspended)
    }
}

fn reason(count: u32, rejection: Rejection, detail: &str) -> String {
    let what = rejection.as_str();
    let why = format!("{count} reports were rejected, the last for {what}: {detail}");
    why.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect()
}

fn suspended(worker: WorkerId, name: &str, why: &str, now: Millis) -> Alert {
    Alert {
        kind: Kind::WorkerSuspended,
        key: format!("{worker}_{}", now.0),
        job: None,
        data: json!({ "worker": worker.to_string(), "name": name, "reason": why }),
    }
}
