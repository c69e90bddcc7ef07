//! A worker's words about itself and its work.

use super::{LONGEST_WAIT, bounds, content, rejections, result, verify};
use crate::api::workers::{capabilities, let_in};
use crate::app::App;
use crate::auth::{Admin, Caller};
use crate::body::{Json, Large};
use crate::problem::{Error, Result};
use axum::extract::State;
use axum::http::StatusCode;
use rules::failure::Kind as FailureKind;
use rules::task::Refusal;
use rules::{WorkerId, failure};
use serde_json::Value;
use std::time::Duration;
use store::hold::Ownership;
use store::worker::Process;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;
use wire::http::{
    ClaimRequest, ClaimResponse, CompleteRequest, Description, FailRequest, HeartbeatRequest,
    HeartbeatResponse, OLDEST_WORKER, Problem, ProgressRequest, ProgressResponse, Registered, Registration,
    ReleaseRequest, Report, Verdict,
};
use wire::{Answer, Assignment, Commit, Desk, Failure, Heartbeat, Hello, Kind, Progress, Proof, Renewal};

const MOST_AT_ONCE: u32 = 100;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(register))
        .routes(routes!(heartbeat))
        .routes(routes!(claim))
        .routes(routes!(progress))
        .routes(routes!(complete))
        .routes(routes!(fail))
        .routes(routes!(release))
}

/// Let a worker in
#[utoipa::path(post, path = "/api/worker/register", tag = "worker", request_body = Registration, security(("admin" = [])),
    responses((status = 201, body = Registered), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn register(
    _: Admin,
    State(app): State<App>,
    Json(asked): Json<Registration>,
) -> Result<(StatusCode, Json<Registered>)> {
    Ok((StatusCode::CREATED, Json(let_in(&app.store, asked).await?)))
}

/// Say that the worker is alive and what it is at; learn what it is to be
#[utoipa::path(post, path = "/api/worker/heartbeat", tag = "worker", request_body = HeartbeatRequest, security(("worker" = [])),
    responses((status = 200, body = HeartbeatResponse), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn heartbeat(
    Caller { worker }: Caller,
    State(app): State<App>,
    Json(said): Json<HeartbeatRequest>,
) -> Result<Json<HeartbeatResponse>> {
    if let Some(hello) = &said.hello {
        introduce(&app, worker, said.incarnation, hello).await?;
    }
    let heartbeat = Heartbeat {
        worker,
        phase: said.phase,
        running: said.running,
        is_draining: said.is_draining,
        is_leaving: said.is_leaving,
        done: said.done,
        failed: said.failed,
        refusal: said.refusal,
    };
    let load = serde_json::to_string(&said.load).unwrap_or_default();
    let process = Process { incarnation: said.incarnation, load: &load };
    let status = app.store.heartbeat_of(&process, &heartbeat).await?;
    Ok(Json(HeartbeatResponse {
        status,
        heartbeat_interval_ms: app.store.options().heartbeat_interval.0,
        lease_ms: app.store.options().lease.0,
        server_version: env!("CARGO_PKG_VERSION").into(),
        worker_id: Some(worker),
    }))
}

async fn introduce(app: &App, worker: WorkerId, incarnation: Uuid, hello: &Description) -> Result<()> {
    if is_older(&hello.version, OLDEST_WORKER) {
        return Err(Error::WorkerTooOld(format!(
            "this worker is version {}, and the server needs {OLDEST_WORKER} or newer; update it",
            hello.version
        )));
    }
    let hello = &bounds::description(hello);
    let hello = Hello {
        worker,
        name: String::new(),
        kind: Kind::Remote,
        hostname: hello.hostname.clone(),
        version: hello.version.clone(),
        slots: hello.slots,
        capabilities: capabilities(&hello.capabilities)?,
        metadata: hello.metadata.clone(),
    };
    Ok(app.store.introduce_worker(&hello, incarnation).await?)
}

/// What is no version is older than any.
fn is_older(version: &str, than: &str) -> bool {
    let numbers = |text: &str| -> Option<Vec<u64>> {
        text.split(['-', '+']).next()?.split('.').map(|part| part.parse().ok()).collect()
    };
    match (numbers(version), numbers(than)) {
        (Some(version), Some(than)) => version < than,
        _ => true,
    }
}

/// Ask for work; the answer may wait until there is some
#[utoipa::path(post, path = "/api/worker/claim", tag = "worker", request_body = ClaimRequest, security(("worker" = [])),
    responses((status = 200, body = ClaimResponse), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn claim(
    Caller { worker }: Caller,
    State(app): State<App>,
    Json(asked): Json<ClaimRequest>,
) -> Result<Json<ClaimResponse>> {
    if !app.store.is_current_process(worker, asked.incarnation).await? {
        return Err(store::Error::from(rules::worker::Refusal::Superseded).into());
    }
    let patience = Duration::from_millis(asked.wait_ms.into()).min(LONGEST_WAIT);
    let deadline = tokio::time::Instant::now() + patience;
    let mut hints = app.store.wake().subscribe(store::wake::Topic::Ready);
    loop {
        // Heard before the look: what becomes ready in between is not missed.
        hints.mark_unchanged();
        let found = take(&app, worker, asked.max.min(MOST_AT_ONCE)).await?;
        if found.has_work {
            return Ok(Json(found));
        }
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return Ok(Json(found)),
            () = app.ending.cancelled() => return Ok(Json(found)),
            () = hinted_or_polled(&app.store, &mut hints) => {}
        }
    }
}

/// Hints get lost.
async fn hinted_or_polled(store: &store::Store, hints: &mut tokio::sync::watch::Receiver<u64>) {
    let _ = tokio::time::timeout(Duration::from_secs(5), store.wake().wait(hints)).await;
}

async fn take(app: &App, worker: WorkerId, max: u32) -> Result<ClaimResponse> {
    if max == 0 {
        let has_work = match app.store.has_work(worker).await {
            Err(store::Error::Refused(_)) => false,
            found => found?,
        };
        return Ok(ClaimResponse { has_work, assignments: Vec::new() });
    }
    let assignments = match app.store.claim_within_slots(worker, max).await {
        Err(store::Error::Refused(_)) => Vec::new(),
        claimed => claimed?,
    };
    let assignments: Vec<_> = assignments.into_iter().map(without_paths).collect();
    Ok(ClaimResponse { has_work: !assignments.is_empty(), assignments })
}

/// Where a source lies on the server is nothing to a worker on another machine: it gets the name only.
fn without_paths(mut assignment: Assignment) -> Assignment {
    if let Some(payload) = assignment.payload.as_object_mut() {
        if let Some(Value::String(source)) = payload.get_mut("source") {
            let name = std::path::Path::new(source.as_str()).file_name();
            *source = name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        }
        payload.remove("seen");
    }
    assignment
}

/// Say how far things are; extends the leases of work that moves
#[utoipa::path(post, path = "/api/worker/progress", tag = "worker", request_body = ProgressRequest, security(("worker" = [])),
    responses((status = 200, body = ProgressResponse), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn progress(
    Caller { worker }: Caller,
    State(app): State<App>,
    Large(said): Large<ProgressRequest>,
) -> Result<Json<ProgressResponse>> {
    if said.reports.len() > 1000 {
        return Err(Error::Invalid("at most 1000 reports fit into one request".into()));
    }
    let (renewals, told): (Vec<_>, Vec<_>) =
        said.reports.iter().enumerate().partition(|(_, report)| report.is_renewal);
    let mut answers = vec![Verdict::Accepted; said.reports.len()];
    let renewed: Vec<Renewal> = renewals
        .iter()
        .map(|(_, it)| Renewal { proof: it.proof.shown_by(worker), progress: it.progress })
        .collect();
    let reported: Vec<Progress> = told.iter().map(|(_, report)| progress_of(worker, report)).collect();
    let mut refused = Vec::new();
    let mut fill = |places: &[(usize, &Report)], given: Vec<Answer>| {
        for ((place, report), answer) in places.iter().zip(given) {
            if is_of_another(&answer) {
                refused.push(report.proof.shown_by(worker));
            }
            answers[*place] = answer.into();
        }
    };
    if !renewed.is_empty() {
        fill(&renewals, app.store.renew(&renewed).await?);
    }
    if !reported.is_empty() {
        fill(&told, app.store.progress(&reported).await?);
    }
    rejections::of_proofs(&app, &refused).await;
    Ok(Json(ProgressResponse { answers }))
}

/// Whether another execution holds the lease, or committed. Its proof may be another worker's.
fn is_of_another(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(Refusal::StaleToken | Refusal::CommittedByOther))
}

fn progress_of(worker: WorkerId, report: &Report) -> Progress {
    let step = report.step.as_deref().map(bounds::step);
    let proof = report.proof.shown_by(worker);
    Progress { proof, progress: report.progress, step, permille: report.permille, kept: None }
}

/// Hand in a result. The server looks at every file before it commits
#[utoipa::path(post, path = "/api/worker/complete", tag = "worker", request_body = CompleteRequest, security(("worker" = [])),
    responses((status = 200, body = Verdict), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn complete(
    Caller { worker }: Caller,
    State(app): State<App>,
    Large(mut said): Large<CompleteRequest>,
) -> Result<Json<Verdict>> {
    let proof = said.proof.shown_by(worker);
    if let Some(result) = &mut said.result {
        verify::name_in_full(proof.execution(), result);
    }
    let ownership = app.store.ownership(proof).await?;
    if ownership == Ownership::Lost {
        verify::discard(&app, proof.execution()).await;
    }
    if ownership == Ownership::Foreign {
        rejections::of_proof(&app, proof).await;
    }
    let result = match ownership.current() {
        Ok(()) => verified(&app, proof, &said).await?,
        // The server accepted the first report, and its answer was lost.
        Err(Refusal::CommittedByYou) => None,
        Err(refusal) => return Err(Error::Refused(refusal)),
    };
    let commit = Commit {
        proof,
        result,
        publication: None,
        arrival: None,
        usage: said.usage,
        steps: bounds::steps(said.steps.clone()),
    };
    match app.desk.commit(&commit).await.map_err(away)? {
        Answer::Refused(refusal) => {
            let error = drop_files(&app, proof, refusal).await;
            if refusal == Refusal::BadResult {
                let refused = Error::unprocessable("bad_result", refusal.to_string());
                rejections::of_request(&app, worker, &refused).await;
            }
            Err(error)
        }
        answer => Ok(Json(answer.into())),
    }
}

/// The result to commit, once the result and every file of it are what they should be.
async fn verified(app: &App, proof: Proof, said: &CompleteRequest) -> Result<Option<Value>> {
    let verified = async {
        let checked = result::checked(app, proof, said).await?;
        verify::keep(app, proof.execution(), said).await?;
        if let Some((task, made)) = checked.compare {
            content::check(app, task, made).await?;
        }
        Ok(checked.result)
    };
    let verified: Result<_> = verified.await;
    if let Err(error) = &verified {
        rejections::of_request(app, proof.worker, error).await;
    }
    verified
}

/// Nothing is kept of an execution that lost its lease after it was seen to hold it.
pub(super) async fn drop_files(app: &App, proof: Proof, refusal: Refusal) -> Error {
    // A lease that ran out may still be renewed, and the same said again. What was committed stays.
    if !matches!(refusal, Refusal::LeaseExpired | Refusal::CommittedByYou) {
        verify::discard(app, proof.execution()).await;
    }
    Error::Refused(refusal)
}

fn away(error: wire::Error) -> Error {
    match error {
        wire::Error::Away(why) => {
            Error::Protocol { status: StatusCode::SERVICE_UNAVAILABLE, code: "database_away", detail: why }
        }
        wire::Error::Rejected(why) => Error::unprocessable("rejected", why),
    }
}

/// Say that the work did not succeed
#[utoipa::path(post, path = "/api/worker/fail", tag = "worker", request_body = FailRequest, security(("worker" = [])),
    responses((status = 200, body = Verdict), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn fail(
    Caller { worker }: Caller,
    State(app): State<App>,
    Large(said): Large<FailRequest>,
) -> Result<Json<Verdict>> {
    // Only the server itself finds a lease expired or withdraws work.
    use failure::Kind as K;
    if !matches!(said.kind, K::Transient | K::Permanent | K::StorageAway | K::DiskFull) {
        let what =
            format!("a worker cannot say `{}`; transient, permanent, storage_away or disk_full", said.kind);
        let refused = Error::unprocessable("bad_failure", what);
        rejections::of_request(&app, worker, &refused).await;
        return Err(refused);
    }
    let FailRequest { proof, kind, message, usage, steps } = said;
    let (message, steps) = (bounds::message(&message), bounds::steps(steps));
    end(&app, Failure { proof: proof.shown_by(worker), kind, message, usage, steps }).await
}

/// Give work back; uses up no attempt, up to a hundred times of a task
#[utoipa::path(post, path = "/api/worker/release", tag = "worker", request_body = ReleaseRequest, security(("worker" = [])),
    responses((status = 200, body = Verdict), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn release(
    Caller { worker }: Caller,
    State(app): State<App>,
    Large(said): Large<ReleaseRequest>,
) -> Result<Json<Verdict>> {
    let ReleaseRequest { proof, message, usage, steps } = said;
    let (message, steps) = (bounds::message(&message), bounds::steps(steps));
    let proof = proof.shown_by(worker);
    end(&app, Failure { proof, kind: FailureKind::Drained, message, usage, steps }).await
}

async fn end(app: &App, failure: Failure) -> Result<Json<Verdict>> {
    match app.desk.fail(&failure).await.map_err(away)? {
        answer @ Answer::Refused(refusal) => {
            if is_of_another(&answer) {
                rejections::of_proof(app, failure.proof).await;
            }
            Err(Error::Refused(refusal))
        }
        answer => {
            verify::discard(app, failure.proof.execution()).await;
            Ok(Json(answer.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_older("0.9.9", "0.10.0") && is_older("nonsense", "0.1.0") && is_older("", "0.1.0"));
        assert!(
            !is_older("0.10.0", "0.9.9") && !is_older("1.0.0-rc.1", "1.0.0") && !is_older("0.1.0", "0.1.0")
        );
    }
}
