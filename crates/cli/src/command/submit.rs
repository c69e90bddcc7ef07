use crate::settings::{Settings, Usage};
use crate::{Done, output};
use anyhow::Context;
use rules::Priority;
use rules::spec::{self, Spec};
use std::io::Read;
use std::path::PathBuf;
use store::submit::{NewJob, Submitted};

/// Submit a job of command stages, described in a TOML or JSON file
///
/// See examples/demo.toml for the format.
#[derive(clap::Args)]
pub struct Args {
    /// The file; `-` reads standard input
    spec: PathBuf,
    /// The same key again means the same job; with another spec it is an error
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// 0 to 10, 10 first; over what the file says
    #[arg(long, value_name = "N")]
    priority: Option<i64>,
    /// Whose job it is; over what the file says
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Follow the job until it ends
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    pub async fn run(self, settings: &Settings) -> anyhow::Result<Done> {
        let mut spec = parse(&read(&self.spec)?, &self.spec.display().to_string(), settings)?;
        if let Some(priority) = self.priority {
            spec.priority = Priority::try_from(priority).map_err(|error| Usage(error.to_string()))?;
        }
        if let Some(user) = self.user {
            spec.user = user;
        }
        let store = settings.open().await?;
        let new = NewJob { spec, video: None, idempotency_key: self.idempotency_key };
        let submitted =
            store.submit(&new).await.with_context(|| format!("cannot submit {}", self.spec.display()))?;
        let (id, is_new) = (submitted.id(), matches!(submitted, Submitted::New(_)));
        if self.json {
            output::json(&serde_json::json!({ "id": id, "is_new": is_new }))?;
        } else if is_new {
            output::line(&format!("submitted job {id}"));
        } else {
            output::line(&format!("job {id} was submitted before with this key"));
        }
        if self.watch {
            super::watch::follow(&store, id, self.json).await
        } else {
            Ok(Done::Yes)
        }
    }
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
