//! Which rejected reports count against the worker that made them, so that one that keeps lying is suspended.
//!
//! Whatever a crash or a race explains does not count: a lost lease, a token from before a recovery, a report that was
//! repeated, files that a server which has just started may have lost.

use crate::app::App;
use crate::problem::Error;
use rules::WorkerId;
use store::suspension::Rejection;
use wire::Proof;
use wire::http::code;

/// A completion was rejected.
pub async fn of_completion(app: &App, worker: WorkerId, error: &Error) {
    let Error::Unprocessable { code, detail } = error else { return };
    match *code {
        "output_mismatch" if app.started.elapsed() < lease(app) => {}
        "output_mismatch" => count(app, worker, Rejection::BadFile, detail).await,
        _ => count(app, worker, Rejection::BadResult, detail).await,
    }
}

/// A whole file arrived, and it is not the one that was declared.
pub async fn of_upload(app: &App, worker: WorkerId, error: &Error) {
    if let Error::Unprocessable { code: code::HASH_MISMATCH, detail } = error {
        count(app, worker, Rejection::BadFile, detail).await;
    }
}

/// A report was refused because another execution holds the lease. It counts if that is known to be another worker's: its
/// token can only have been taken from that worker.
pub async fn of_proof(app: &App, proof: Proof) {
    match app.store.is_token_of_another(proof).await {
        Ok(true) => {
            let detail = format!("execution {}", proof.execution());
            count(app, proof.worker, Rejection::ForeignExecution, &detail).await;
        }
        Ok(false) => {}
        Err(error) => tracing::warn!(worker.id = %proof.worker, "cannot look up a refused token: {error}"),
    }
}

async fn count(app: &App, worker: WorkerId, rejection: Rejection, detail: &str) {
    tracing::warn!(worker.id = %worker, "rejected {} of worker {worker}: {detail}", rejection.as_str());
    match app.store.reject_report(worker, rejection, detail).await {
        Ok(true) => {
            tracing::error!(worker.id = %worker, "suspended worker {worker}; `vodmill workers enable` lets it go on");
        }
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(worker.id = %worker, "cannot count a rejected report of {worker}: {error}");
        }
    }
}

fn lease(app: &App) -> std::time::Duration {
    std::time::Duration::from_millis(app.store.options().lease.0.unsigned_abs())
}
