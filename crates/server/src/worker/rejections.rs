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

/// Counts a refused request, if its code says that the worker is at fault.
pub async fn of_request(app: &App, worker: WorkerId, error: &Error) {
    let Error::Unprocessable { code, detail } = error else { return };
    match rejection(code) {
        Some(_) if *code == "output_mismatch" && app.started.elapsed() < lease(app) => {}
        Some(rejection) => count(app, worker, rejection, detail).await,
        None => {}
    }
}

/// The codes that count. Any other may be the server's own trouble, such as `not_compared`.
fn rejection(code: &str) -> Option<Rejection> {
    match code {
        "bad_result" => Some(Rejection::BadResult),
        "output_mismatch" | "size_mismatch" | code::HASH_MISMATCH => Some(Rejection::BadFile),
        "bad_archive" | "bad_output" | "bad_path" | "path_conflict" => Some(Rejection::BadUpload),
        "bad_failure" => Some(Rejection::BadFailure),
        _ => None,
    }
}

/// A report was refused because another execution holds the lease. It counts if that is known to be another worker's: its
/// token can only have been taken from that worker. Whether it counted.
pub async fn of_proof(app: &App, proof: Proof) -> bool {
    match app.store.is_token_of_another(proof).await {
        Ok(true) => {
            let detail = format!("execution {}", proof.execution());
            count(app, proof.worker, Rejection::ForeignExecution, &detail).await;
            true
        }
        Ok(false) => false,
        Err(error) => {
            tracing::warn!(worker.id = %proof.worker, "cannot look up a refused token: {error}");
            false
        }
    }
}

/// The refused reports of one request count once.
pub async fn of_proofs(app: &App, refused: &[Proof]) {
    for proof in refused {
        if of_proof(app, *proof).await {
            return;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_of_the_server_counts_against_nobody() {
        for code in ["not_compared", "bad_plan", "comparing", "rejected"] {
            assert_eq!(rejection(code), None, "{code}");
        }
        assert_eq!(rejection("bad_result"), Some(Rejection::BadResult));
    }
}
