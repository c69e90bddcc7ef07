//! Where a worker reads and writes without the server in between, if files are in a bucket that can sign URLs.
//!
//! Credentials never leave the server: a URL is for one object of one execution, for a while, and what is put by it must be
//! what was declared.

use super::rejections;
use crate::app::App;
use crate::auth::Caller;
use crate::body::{Json, Large};
use crate::data::{Data, is_tame};
use crate::problem::{Error, Result};
use axum::extract::State;
use files::bucket::{Digests, Signed};
use files::{Bucket, Place};
use rules::ExecutionId;
use std::path::Path;
use std::time::Duration;
use store::hold::Ownership;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use wire::http::{Direct, DirectOutput, DirectRequest, DirectResponse, Output, Problem};

const MOST_AT_ONCE: usize = 1000;

/// A worker that needs a URL for longer asks again.
const LIVES: Duration = Duration::from_secs(3600);

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(direct))
}

/// Ask where to read the source and write the outputs without the server in between
#[utoipa::path(post, path = "/api/worker/direct", tag = "worker", request_body = DirectRequest, security(("worker" = [])),
    responses((status = 200, body = DirectResponse), (status = "4XX", body = Problem, content_type = "application/problem+json")))]
async fn direct(
    Caller { worker }: Caller,
    State(app): State<App>,
    Large(asked): Large<DirectRequest>,
) -> Result<Json<DirectResponse>> {
    let proof = asked.proof.shown_by(worker);
    let ownership = app.store.ownership(proof).await?;
    if ownership == Ownership::Foreign {
        rejections::of_proof(&app, proof).await;
    }
    ownership.current().map_err(Error::Refused)?;
    if asked.outputs.len() > MOST_AT_ONCE {
        return Err(Error::Invalid(format!("at most {MOST_AT_ONCE} outputs fit into one request")));
    }
    let Some(bucket) = app.data.bucket() else { return Ok(Json(DirectResponse::default())) };
    for output in &asked.outputs {
        if let Err(error) = check(&app, output) {
            rejections::of_request(&app, worker, &error).await;
            return Err(error);
        }
    }
    let files = asked.outputs.iter().map(|it| (it.output.path.as_str(), it.output.bytes));
    app.allowances.take(&app, proof.execution(), files).await?;
    let source = if asked.source { source(&app, proof.task.job()).await? } else { None };
    let mut outputs = Vec::new();
    for output in &asked.outputs {
        match place(bucket, proof.execution(), output).await {
            Ok(Some(place)) => outputs.push(place),
            Ok(None) => break,
            Err(error) => {
                rejections::of_request(&app, worker, &error).await;
                return Err(error);
            }
        }
    }
    if outputs.len() < asked.outputs.len() {
        outputs.clear();
    }
    Ok(Json(DirectResponse { source, outputs }))
}

async fn source(app: &App, job: rules::JobId) -> Result<Option<Direct>> {
    let Some(video) = app.store.video_of_job(job).await? else { return Ok(None) };
    let Some(source) = app.store.entry(video).await?.source else { return Ok(None) };
    match app.data.source(Path::new(&source)) {
        Place::Bucket(bucket, name) => Ok(bucket.sign_get(&name, LIVES).await?.map(told)),
        Place::Disk(_) | Place::Below(..) => Ok(None),
    }
}

fn check(app: &App, DirectOutput { output, .. }: &DirectOutput) -> Result<()> {
    if !is_tame(&output.path) {
        return Err(wrong(output, "no path for an output"));
    }
    if output.bytes > app.options.max_output_bytes {
        return Err(Error::TooLarge(format!("an output may have {} bytes", app.options.max_output_bytes)));
    }
    Ok(())
}

async fn place(bucket: &Bucket, execution: ExecutionId, asked: &DirectOutput) -> Result<Option<Direct>> {
    let DirectOutput { output, md5 } = asked;
    let digest = |text: &str, bytes: usize| hex::decode(text).ok().filter(|digest| digest.len() == bytes);
    let (Some(md5), Some(sha256)) = (digest(md5, 16), digest(&output.sha256, 32)) else {
        return Err(wrong(output, "its MD5 and SHA-256 must be in hex"));
    };
    let name = Data::incoming_object(execution, &output.path);
    let signed = bucket.sign_put(&name, LIVES, Digests { md5: &md5, sha256: &sha256 }).await?;
    Ok(signed.map(told))
}

fn wrong(output: &Output, what: &str) -> Error {
    Error::unprocessable("bad_output", format!("{}: {what}", output.path))
}

fn told(signed: Signed) -> Direct {
    Direct { url: signed.url, headers: signed.headers.into_iter().collect() }
}
