//! The generation under its final name, and the video's pointer to it.

use super::package::Packaged;
use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use rules::VideoId;
use serde::{Deserialize, Serialize};
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
        let generation = work.publish(&packaged, &output, generation).await?;
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
