//! Everything that is decided before a frame is encoded.

use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::plan::{self, Plan};
use media::settings::Settings;
use media::source::Source;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Serialize, Deserialize)]
pub(super) struct Payload {
    pub settings: Settings,
}

/// The plan, and what the stages below it are to do, a value for each of their tasks.
#[derive(Serialize)]
struct Planned {
    #[serde(flatten)]
    plan: Plan,
    segments: Value,
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let Payload { settings } = work.payload()?;
        let source: Source = work.result("probe")?;
        settings.check().map_err(|bad| Failed::permanent(bad.to_string()))?;
        let plan = plan::make(source, settings);
        let segments = json!({
            "encode": plan.pieces(),
            "encode_optional": plan.optional_pieces(),
            "audio": plan.audio,
            "measure": plan.picture.iter().flat_map(|picture| &picture.rungs).collect::<Vec<_>>(),
            "subtitles": plan.subtitles,
            "thumbnails": plan.thumbnails.iter().collect::<Vec<_>>(),
        });
        outcome(&Planned { plan, segments })
    })
}
