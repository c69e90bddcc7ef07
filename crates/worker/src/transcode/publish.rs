//! The generation under its final name, and the video's pointer to it.

use super::package::Packaged;
use super::tools::disk;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::manifest::Artifact;
use rules::VideoId;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::Path;
use wire::Publication;

#[derive(Serialize, Deserialize)]
pub(super) struct Payload {
    pub video: VideoId,
    pub output: String,
    pub generation: String,
}

/// What is now to be seen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Published {
    /// The generation's folder, below the output's.
    pub generation: String,
    pub packaged: Packaged,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let Payload { video, output, generation } = work.payload()?;
        let packaged: Packaged = work.result("package")?;
        let from = work.tools.depot.files()?.folder(&packaged.execution);
        let to = Path::new(&output).join(&generation);
        let files = packaged.files.clone();
        work.blocking(move || publish(&from, &to, &files)).await?;
        let renditions = packaged.renditions.clone();
        let manifest = serde_json::json!({
            "generation": generation,
            "duration": packaged.duration,
            "indexes": packaged.indexes,
            "files": packaged.files,
            "proof": packaged.proof,
        });
        let published = outcome(&Published { generation, packaged })?;
        Ok(Outcome { publication: Some(Publication { video, manifest, renditions }), ..published })
    })
}

/// Moves the folder as a whole. One that is there already is the same: put there by an execution that died before its
/// commit, for the name stands for the source and all settings. If it is not the same, it is taken away first.
fn publish(from: &Path, to: &Path, files: &[Artifact]) -> Result<(), Failed> {
    if is_complete(to, files) {
        return Ok(());
    }
    files::place(from, to).map_err(|error| disk("publishing", to, &error))
}

fn is_complete(folder: &Path, files: &[Artifact]) -> bool {
    files.iter().all(|file| {
        fs::metadata(folder.join(&file.path)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    })
}
