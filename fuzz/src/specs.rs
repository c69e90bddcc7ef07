//! What a client asks for: jobs, and settings of a video.

use media::plan::{self, Plan};
use media::settings::Settings;
use rules::TaskId;
use rules::spec::{MAX_SEGMENTS, Spec};
use serde::de::DeserializeOwned;

/// JSON if it begins with a brace, and TOML if not: as the program reads it.
fn read<T: DeserializeOwned>(data: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(data).ok()?;
    let value: serde_json::Value = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).ok()?,
        false => toml::from_str(text).ok()?,
    };
    serde_json::from_value(value).ok()
}

/// A job's spec.
pub fn spec(data: &[u8]) {
    let Some(spec) = read::<Spec>(data) else { return };
    let again: Spec = serde_json::from_value(serde_json::to_value(&spec).expect("JSON")).expect("a spec");
    assert_eq!(again, spec, "a spec that is kept reads back the same");
    let Ok(stages) = spec.resolve() else { return };
    assert_eq!(stages.len(), spec.stages.len());
    let tasks: i64 = spec.stages.iter().filter_map(|stage| stage.known_tasks()).map(i64::from).sum();
    assert!(tasks <= TaskId::PER_JOB, "{tasks} tasks");
    for stage in &spec.stages {
        stage.work().expect("a spec that resolves says what to do");
        stage.lane(spec.pool.as_ref()).expect("and what it asks of a worker");
    }
}

/// Settings of a video, for a source with picture and sound.
pub fn settings(data: &[u8]) {
    let Some(settings) = read::<Settings>(data) else { return };
    if settings.check().is_err() {
        return;
    }
    let source = crate::probing::source(include_bytes!("../corpus/probe/talk.mkv")).expect("a good file");
    is_sound(&plan::make(source, settings));
}

/// What any plan must be, whatever it was made of.
pub(crate) fn is_sound(plan: &Plan) {
    assert!(plan.duration().is_finite() && plan.duration() >= 0.0);
    let pieces = plan.pieces();
    assert!(pieces.len() + plan.optional_pieces().len() <= MAX_SEGMENTS, "{} pieces", pieces.len());
    if let Some(picture) = &plan.picture {
        for rung in &picture.rungs {
            let is_name =
                |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
            assert!(
                !rung.name.is_empty() && rung.name.bytes().all(is_name),
                "{:?} names a folder",
                rung.name
            );
            assert!(
                rung.width > 0 && rung.height > 0 && rung.width % 2 == 0 && rung.height % 2 == 0,
                "{rung:?}"
            );
        }
    }
    let text = serde_json::to_string(plan).expect("a plan can be written down");
    let again: Plan = serde_json::from_str(&text).expect("and read back");
    assert_eq!(again.pieces().len(), pieces.len());
}
