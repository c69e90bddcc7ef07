//! A job of one's own stages.

use super::Args;
use crate::office::Office;
use crate::settings::{Settings, Usage};
use crate::{Done, output};
use anyhow::Context;
use rules::Priority;
use rules::spec::{self, Spec};
use std::io::Read;
use std::path::{Path, PathBuf};
use store::submit::{NewJob, Submitted};

/// `-`, or a file called so.
pub fn is_one(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    path.as_os_str() == "-" || matches!(extension.to_ascii_lowercase().as_str(), "toml" | "json")
}

pub async fn submit(args: Args, settings: &Settings) -> anyhow::Result<Done> {
    if args.video.is_any()? {
        let what = "what is to become of a video cannot be said of a job's spec";
        return Err(Usage(format!("{}: {what}", args.file.display())).into());
    }
    let new = NewJob {
        spec: wanted(&args, settings).map_err(|error| hint(&args.file, error))?,
        video: None,
        idempotency_key: args.idempotency_key,
    };
    let office = Office::open_or_make(settings).await?;
    let submitted =
        office.submit(&new).await.with_context(|| format!("cannot submit {}", args.file.display()))?;
    let (id, is_new) = (submitted.id(), matches!(submitted, Submitted::New(_)));
    if args.json {
        output::json(&serde_json::json!({ "id": id, "is_new": is_new }))?;
    } else if is_new {
        output::line(&format!("submitted job {id}"));
    } else {
        output::line(&format!("job {id} was submitted before with this key"));
    }
    if args.watch {
        crate::command::watch::follow(&office, id, args.json).await
    } else {
        Ok(Done::Yes)
    }
}

fn wanted(args: &Args, settings: &Settings) -> anyhow::Result<Spec> {
    let mut spec = parse(&read(&args.file)?, &args.file.display().to_string(), settings)?;
    if let Some(priority) = args.priority {
        spec.priority = Priority::try_from(priority).map_err(|error| Usage(error.to_string()))?;
    }
    if let Some(user) = &args.user {
        spec.user = user.clone();
    }
    Ok(spec)
}

/// Somebody may have meant a video.
fn hint(file: &Path, error: anyhow::Error) -> anyhow::Error {
    if is_one(file) || !file.is_file() {
        return error;
    }
    Usage(format!("{error:#}; if it is a video, name the server it is for with --server")).into()
}

/// Reads no more than a spec may have, however large the file.
fn read(path: &PathBuf) -> anyhow::Result<String> {
    let limit = 4 * spec::MAX_BYTES as u64;
    let mut text = String::new();
    let outcome = if path.as_os_str() == "-" {
        std::io::stdin().take(limit + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(limit + 1).read_to_string(&mut text))
    };
    outcome.map_err(|error| Usage(format!("cannot read {}: {error}", path.display())))?;
    if text.len() as u64 > limit {
        let max = spec::MAX_BYTES;
        return Err(Usage(format!(
            "{} is too large for a job's spec; {max} bytes are allowed",
            path.display()
        ))
        .into());
    }
    Ok(text)
}

fn parse(text: &str, name: &str, settings: &Settings) -> anyhow::Result<Spec> {
    let wrong = |error: String| Usage(format!("{name}: {}", error.trim_end()));
    let mut value: serde_json::Value = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?
    } else {
        toml::from_str(text).map_err(|error| wrong(error.to_string()))?
    };
    if let (Some(attempts), Some(table)) = (settings.max_retry_attempts, value.as_object_mut()) {
        table.entry("max_attempts").or_insert(attempts.into());
    }
    Ok(serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?)
}
