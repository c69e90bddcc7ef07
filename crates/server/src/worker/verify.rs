//! Before a commit: every file is there, is what it was said to be, and is the only one; then they are kept.

use super::outputs::hash;
use crate::app::App;
use crate::data::{Data, is_tame};
use crate::problem::{Error, Result};
use files::{Bucket, Step, bucket};
use futures_util::{StreamExt, TryStreamExt, stream};
use rules::ExecutionId;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use wire::http::{CompleteRequest, Output};

/// How many objects are copied at a time.
const COPIES: usize = 8;

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
        keep_objects(bucket, execution, &said.outputs).await?;
        remove_objects(bucket.clone(), vec![Data::incoming_object(execution, "")]);
        return Ok(());
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
    app.allowances.forget(execution);
    for folder in [app.data.incoming(execution), app.data.parts().folder(&execution.to_string())] {
        if let Err(error) = Step::Discard.around(|| files::remove(&folder)) {
            tracing::warn!(job.id = %execution.task.job(), task.id = %execution.task, execution.id = %execution, "cannot remove {}: {error}; the janitor will", folder.display());
        }
    }
    let Some(bucket) = app.data.bucket().cloned() else { return };
    remove_objects(bucket, vec![Data::incoming_object(execution, ""), format!("parts/{execution}/")]);
}

/// In the background: no request waits for it.
fn remove_objects(bucket: Bucket, folders: Vec<String>) {
    tokio::spawn(async move {
        for folder in folders {
            if let Err(error) = Step::DiscardObjects.across(bucket.remove_all(&folder)).await {
                tracing::warn!("cannot remove {folder} from the storage: {error}; the janitor will");
            }
        }
    });
}

/// Copies what came inside the bucket to where others read it. From then on the worker cannot replace it, whatever URLs it
/// has; what was copied before stays. Of each the size is compared here; its hash was by the store or the server that took it,
/// and is once more by all who read the copy.
async fn keep_objects(bucket: &Bucket, execution: ExecutionId, outputs: &[Output]) -> Result<()> {
    let (incoming, kept) = (Data::incoming_object(execution, ""), format!("parts/{execution}/"));
    let before = sizes(bucket, &kept).await?;
    let missing: Vec<&Output> = outputs.iter().filter(|it| !before.contains_key(&it.path)).collect();
    if !missing.is_empty() {
        let mut came = sizes(bucket, &incoming).await?;
        came.retain(|path, _| !before.contains_key(path));
        compare_sizes(missing.iter().copied(), came)?;
        let copy = |output: &Output| {
            let (from, to) = (format!("{incoming}{}", output.path), format!("{kept}{}", output.path));
            async move {
                match Step::KeepObject.across(bucket.copy_new(&from, &to)).await {
                    Err(bucket::Error::Taken(_)) => Ok(()),
                    copied => copied,
                }
            }
        };
        let copies: Vec<_> = missing.into_iter().map(copy).collect();
        stream::iter(copies).buffer_unordered(COPIES).try_collect::<()>().await?;
    }
    compare_sizes(outputs.iter(), sizes(bucket, &kept).await?)
}

async fn sizes(bucket: &Bucket, folder: &str) -> Result<HashMap<String, u64>> {
    let listed = bucket.list(folder).await?.into_iter();
    Ok(listed.map(|it| (it.name.strip_prefix(folder).unwrap_or(&it.name).to_owned(), it.bytes)).collect())
}

fn compare_sizes<'a>(
    outputs: impl Iterator<Item = &'a Output>,
    mut found: HashMap<String, u64>,
) -> Result<()> {
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
