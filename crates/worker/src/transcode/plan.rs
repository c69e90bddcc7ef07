//! Everything that is decided before a frame is encoded.

use super::{Work, outcome};
use crate::handler::{BoxFuture, Failed, Outcome};
use media::limits::Exceeded;
use media::plan::{self, Piece, Plan};
use media::settings::Settings;
use media::source::Source;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::time::Duration;

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

/// Adds to each piece which seconds of the video it covers, so that a message about its task can say so, and how much longer
/// than others it may take.
fn with_seconds(plan: &Plan, pieces: Vec<Piece>) -> Result<Vec<Value>, Failed> {
    let rate = plan.picture.as_ref().map_or(0.0, |picture| picture.manner.rate.to_f64());
    let with_seconds = |piece: Piece| {
        let extra = plan.encoding_patience(&piece);
        let covers = [piece.chunk.first_frame, piece.chunk.end_frame].map(|frame| frame as f64 / rate);
        let mut value = with_extra(piece, extra)?;
        if let Some(fields) = value.as_object_mut().filter(|_| rate > 0.0) {
            fields.insert("covers_seconds".into(), json!(covers));
        }
        Ok(value)
    };
    let added: Result<Vec<Value>, serde_json::Error> = pieces.into_iter().map(with_seconds).collect();
    added.map_err(|error| Failed::permanent(error.to_string()))
}

fn with_extra(input: impl Serialize, extra: Duration) -> Result<Value, serde_json::Error> {
    let mut value = serde_json::to_value(input)?;
    if let Some(fields) = value.as_object_mut() {
        fields.insert("extra_ms".into(), json!(u64::try_from(extra.as_millis()).unwrap_or(u64::MAX)));
    }
    Ok(value)
}

fn sounds(plan: &Plan) -> Result<Vec<Value>, Failed> {
    let sound = |track| with_extra(track, plan.sound_patience());
    let sounds: Result<Vec<Value>, serde_json::Error> = plan.audio.iter().map(sound).collect();
    sounds.map_err(|error| Failed::permanent(error.to_string()))
}

pub(super) fn run(work: Work<'_>) -> BoxFuture<'_, Result<Outcome, Failed>> {
    Box::pin(async move {
        let Payload { settings } = work.payload()?;
        let mut source: Source = work.result("probe")?;
        settings.check().map_err(|bad| Failed::permanent(bad.to_string()))?;
        let (limits, refused) = (&work.tools.file_limits, |bad: Exceeded| Failed::permanent(bad.to_string()));
        limits.check_settings(&settings).map_err(refused)?;
        limits.check_source(&source).map_err(refused)?;
        limits.trim(&mut source);
        let plan = plan::make(source, settings);
        limits.check_plan(&plan).map_err(refused)?;
        let segments = json!({
            "encode": with_seconds(&plan, plan.pieces())?,
            "encode_optional": with_seconds(&plan, plan.optional_pieces())?,
            "audio": sounds(&plan)?,
            "measure": plan.picture.iter().flat_map(|picture| &picture.rungs).collect::<Vec<_>>(),
            "subtitles": plan.subtitles,
            "thumbnails": plan.thumbnails.iter().collect::<Vec<_>>(),
        });
        outcome(&Planned { plan, segments })
    })
}
