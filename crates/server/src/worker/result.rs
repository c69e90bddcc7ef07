//! Whether a worker's result is what its task was to make.
//!
//! Later stages build paths, playlists and arguments from results, so a result is compared with the plan before anything
//! is committed. What is stored is what was understood: unknown fields are dropped.

use super::allowance::{MOST_FILES, Most};
use super::content;
use crate::app::App;
use crate::problem::{Error, Result};
use media::plan::{AudioTrack, Piece, Plan};
use pipeline::result::{ExpectedTrack, Uploaded, check_files};
use pipeline::{BadResult, StageKind, TrackResult};
use rules::ExecutionId;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::HashMap;
use store::results::Work;
use wire::http::{CompleteRequest, Output};
use wire::{Assignment, Proof};

/// The result to commit, and what is to be compared with the source before.
pub struct Checked {
    pub result: Option<Value>,
    pub compare: Option<(Assignment, TrackResult)>,
}

impl From<Option<Value>> for Checked {
    fn from(result: Option<Value>) -> Self {
        Checked { result, compare: None }
    }
}

pub async fn checked(app: &App, proof: Proof, said: &CompleteRequest) -> Result<Checked> {
    let execution = proof.execution();
    let work = app.store.work_of(execution.task).await?;
    let is_planned = work.results.contains_key(StageKind::Plan.as_str());
    match work.kind.parse::<StageKind>() {
        Ok(kind) if kind.is_server_only() => {
            Err(bad(format!("only a server runs the stage `{kind}`; a worker cannot complete it")))
        }
        Ok(_) if is_planned => {
            let mut made = tracks(&work, execution, said)?;
            let task = assignment(app, proof, work).await?;
            // It is committed only if the comparison passes.
            made.is_compared = content::compares(app, &task);
            let result = serde_json::to_value(&made).map_err(|error| Error::Internal(error.to_string()))?;
            Ok(Checked { result: Some(result), compare: Some((task, made)) })
        }
        // A job of another shape, whose results mean something to the person who submitted it only.
        Ok(_) | Err(_) => {
            own_files(execution, said)?;
            Ok(said.result.clone().into())
        }
    }
}

/// The task as it was assigned, with the source's path on this machine and what the probe found.
async fn assignment(app: &App, proof: Proof, mut work: Work) -> Result<Assignment> {
    let (job, probe) = (proof.task.job(), StageKind::Probe.as_str());
    work.results.insert(probe.into(), app.store.results_of_stage(job, probe).await?);
    Ok(Assignment {
        proof,
        job,
        stage: work.stage,
        kind: work.kind,
        payload: work.payload,
        segment: 0,
        input: work.input,
        results: work.results,
        attempt: 1,
        max_attempts: 1,
        lease_ms: 0,
        timeout_ms: None,
        stall_ms: None,
        traceparent: None,
    })
}

fn tracks(work: &Work, execution: ExecutionId, said: &CompleteRequest) -> Result<TrackResult> {
    let plan: Plan = planned(plan_of(work), "the plan")?;
    let made = TrackResult::deserialize(said.result.as_ref().unwrap_or(&Value::Null))
        .map_err(|error| bad(format!("the result cannot be read: {error}")))?;
    let expected = expected(work, &plan)?;
    made.check(&execution.to_string(), &expected).map_err(wrong)?;
    made.check_demands(&expected).map_err(wrong)?;
    let uploaded = said.outputs.iter().map(|it| (it.path.as_str(), (it.bytes, it.sha256.as_str())));
    let uploaded: Uploaded<'_> = uploaded.collect();
    if uploaded.len() != said.outputs.len() {
        return Err(bad("a file is in the manifest twice".into()));
    }
    check_files(made.files(), &uploaded).map_err(wrong)?;
    Ok(made)
}

fn expected(work: &Work, plan: &Plan) -> Result<Vec<ExpectedTrack>> {
    Ok(match (work.kind.parse(), &plan.picture) {
        (Ok(StageKind::Audio), _) => {
            vec![plan.expected_sound(&planned::<AudioTrack>(work.input.as_ref(), "the input")?)]
        }
        (_, Some(picture)) => picture.expected(&planned::<Piece>(work.input.as_ref(), "the input")?),
        (_, None) => Vec::new(),
    })
}

/// The most that an execution may bring.
pub async fn most_of(app: &App, execution: ExecutionId) -> Result<Most> {
    let any = Most { bytes: app.options.max_output_bytes, files: MOST_FILES };
    let work = app.store.work_of(execution.task).await?;
    let is_track = work.kind.parse().is_ok_and(|kind: StageKind| !kind.is_server_only());
    let Some(plan) = plan_of(&work).filter(|_| is_track) else { return Ok(any) };
    let tracks = expected(&work, &planned(Some(plan), "the plan")?)?;
    let most = tracks.iter().map(ExpectedTrack::most);
    let (files, bytes) = most.fold((0_usize, 0_u64), |(files, bytes), (more_files, more_bytes)| {
        (files.saturating_add(more_files), bytes.saturating_add(more_bytes))
    });
    Ok(Most { bytes: bytes.min(any.bytes), files })
}

fn plan_of(work: &Work) -> Option<&Value> {
    work.results.get(StageKind::Plan.as_str())?.first()
}

/// What the server itself gave the worker, which has no part in it where it cannot be read.
fn planned<T: DeserializeOwned>(value: Option<&Value>, what: &str) -> Result<T> {
    T::deserialize(value.unwrap_or(&Value::Null))
        .map_err(|error| Error::unprocessable("bad_plan", format!("{what} cannot be read: {error}")))
}

fn wrong(why: BadResult) -> Error {
    bad(why.to_string())
}

fn bad(why: String) -> Error {
    Error::unprocessable("bad_result", why)
}

/// Files and executions that a result of any shape names are its own.
fn own_files(execution: ExecutionId, said: &CompleteRequest) -> Result<()> {
    let outputs: HashMap<&str, &Output> =
        said.outputs.iter().map(|output| (output.path.as_str(), output)).collect();
    let Some(result) = &said.result else { return Ok(()) };
    walk(result, &mut |object| {
        if let Some(Value::String(named)) = object.get("execution")
            && *named != execution.to_string()
        {
            return Err(bad(format!("the result of {execution} names execution {named}")));
        }
        let (Some(Value::String(path)), Some(Value::String(sha256))) =
            (object.get("path"), object.get("sha256"))
        else {
            return Ok(());
        };
        match outputs.get(path.as_str()) {
            Some(output) if output.sha256.eq_ignore_ascii_case(sha256) => Ok(()),
            Some(_) => Err(bad(format!("{path}: the result and the manifest do not agree"))),
            None => Err(bad(format!("the result names {path}, which was not uploaded"))),
        }
    })
}

fn walk(value: &Value, look: &mut impl FnMut(&serde_json::Map<String, Value>) -> Result<()>) -> Result<()> {
    match value {
        Value::Array(values) => values.iter().try_for_each(|value| walk(value, look)),
        Value::Object(object) => {
            look(object)?;
            object.values().try_for_each(|value| walk(value, look))
        }
        _ => Ok(()),
    }
}
