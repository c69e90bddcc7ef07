//! Before a commit: every file is there, is what it was said to be, and is the only one; then they are kept.

use super::outputs::hash;
use crate::app::App;
use crate::data::is_tame;
use crate::problem::{Error, Result};
use files::{Bucket, Step};
use rules::ExecutionId;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use wire::http::{CompleteRequest, Output};

/// Workers of older versions know an execution by its name without the token. Where their result says so, it gets the
/// whole name, which is that of the folder with their files.
pub fn name_in_full(execution: ExecutionId, result: &mut Value) {
    let object: &mut Map<String, Value> = match result {
        Value::Array(values) => return values.iter_mut().for_each(|value| name_in_full(execution, value)),
        Value::Object(object) => object,
        _ => return,
    };
    for (field, value) in object {
        match value {
            Value::String(named) if field == "execution" && *named == execution.short().to_string() => {
                *named = execution.to_string();
            }
            value => name_in_full(execution, value),
        }
    }
}

/// Moves what an execution brought to where others read it. Killed after that and before the commit, the same said again
/// finds it there.
pub async fn keep(app: &App, execution: ExecutionId, said: &CompleteRequest) -> Result<()> {
    if said.outputs.is_empty() {
        return Ok(());
    }
    if let Some(bucket) = app.data.bucket() {
        return check_objects(bucket, execution, &said.outputs).await;
    }
    let kept = app.data.parts().folder(&execution.to_string());
    if kept.is_dir() {
        return check_files(&kept, &said.outputs).await;
    }
    let incoming = app.data.incoming(execution);
    let _ = tokio::fs::remove_dir_all(incoming.join(".partial")).await;
    check_files(&incoming, &said.outputs).await?;
    let parts = app.data.parts();
    let keep = move || Step::KeepOutputs.around(|| parts.keep(execution, &incoming));
    let moved = tokio::task::spawn_blocking(keep).await;
    let moved = moved.map_err(|error| Error::Internal(error.to_string()))?;
    moved.map_err(|error| Error::disk("keeping what the worker made", &error))
}

/// Only for an execution that is the caller's own.
pub async fn discard(app: &App, execution: ExecutionId) {
    for folder in [app.data.incoming(execution), app.data.parts().folder(&execution.to_string())] {
        if let Err(error) = Step::Discard.around(|| files::remove(&folder)) {
            tracing::warn!(job.id = %execution.task.job(), task.id = %execution.task, execution.id = %execution, "cannot remove {}: {error}; the janitor will", folder.display());
        }
    }
    let Some(bucket) = app.data.bucket().cloned() else { return };
    // Nobody needs to wait for it.
    tokio::spawn(async move {
        let folder = format!("parts/{execution}");
        if let Err(error) = Step::DiscardObjects.across(bucket.remove_all(&folder)).await {
            tracing::warn!(execution.id = %execution, "cannot remove what {execution} made: {error}; the janitor will");
        }
    });
}

/// In a bucket they are where others read them already, and nobody does before the commit names them. Of each the size is
/// compared here; its hash was by whoever took it, the server or the store, and is once more by whoever reads it next.
async fn check_objects(bucket: &Bucket, execution: ExecutionId, outputs: &[Output]) -> Result<()> {
    let folder = format!("parts/{execution}/");
    let mut found: HashMap<String, u64> = HashMap::new();
    for object in bucket.list(&folder).await? {
        found.insert(object.name.strip_prefix(&folder).unwrap_or(&object.name).to_owned(), object.bytes);
    }
    let wrong = |output: &Output, what: String| {
        Error::unprocessable("output_mismatch", format!("{}: {what}", output.path))
    };
    for output in outputs {
        match found.remove(&output.path) {
            Some(bytes) if bytes == output.bytes => {}
            Some(bytes) => return Err(wrong(output, format!("has {bytes} bytes, not {}", output.bytes))),
            None => return Err(wrong(output, "was not uploaded".into())),
        }
    }
    match found.keys().next() {
        Some(more) => Err(Error::unprocessable(
            "output_mismatch",
            format!("{more} was uploaded and is not in the manifest"),
        )),
        None => Ok(()),
    }
}

async fn check_files(folder: &Path, outputs: &[Output]) -> Result<()> {
    for output in outputs {
        let wrong =
            |what: String| Error::unprocessable("output_mismatch", format!("{}: {what}", output.path));
        if !is_tame(&output.path) {
            return Err(wrong("no path for an output".into()));
        }
        let path = folder.join(&output.path);
        let found = tokio::fs::metadata(&path).await.map_err(|_| wrong("was not uploaded".into()))?;
        if found.len() != output.bytes {
            return Err(wrong(format!("has {} bytes, not {}", found.len(), output.bytes)));
        }
        let hash = hash(&path).await.map_err(|error| Error::disk("reading the output", &error))?;
        if !hash.eq_ignore_ascii_case(&output.sha256) {
            return Err(wrong(format!("has the SHA-256 {hash}, not {}", output.sha256)));
        }
    }
    let declared: BTreeSet<&str> = outputs.iter().map(|output| output.path.as_str()).collect();
    let folder = folder.to_owned();
    let listed = tokio::task::spawn_blocking(move || list(&folder, &folder)).await;
    let listed = listed.map_err(|error| Error::Internal(error.to_string()))?;
    let listed = listed.map_err(|error| Error::disk("listing the outputs", &error))?;
    match listed.iter().find(|path| !declared.contains(path.as_str())) {
        Some(more) => Err(Error::unprocessable(
            "output_mismatch",
            format!("{more} was uploaded and is not in the manifest"),
        )),
        None => Ok(()),
    }
}

fn list(root: &Path, folder: &Path) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            found.extend(list(root, &entry.path())?);
        } else {
            let path = entry.path();
            found.push(path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned());
        }
    }
    Ok(found)
}
