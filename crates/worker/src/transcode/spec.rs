//! A transcoding job as stages.

use super::ingest::Fetch;
use super::package::Payload as Package;
use super::plan::Payload as Plan;
use super::publish::Payload as Publish;
use super::source::{FromSource, Seen};
use media::settings::Settings;
use rules::job::Phase;
use rules::placement::Pool;
use rules::spec::{Spec, Stage};
use rules::{Priority, VideoId};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;

/// What is to become of one file.
#[derive(Debug, Clone)]
pub struct Order {
    /// For people.
    pub name: String,
    pub user: String,
    pub priority: Priority,
    pub video: VideoId,
    /// A path on the workers' machine, or a URL.
    pub source: String,
    /// How the source gets there, where it is not there yet.
    pub fetch: Option<Fetch>,
    /// How the source looks now, if that can be told: once it looks otherwise, nothing more is made of it.
    pub seen: Option<Seen>,
    pub settings: Settings,
    /// It is to be watched while it is made: the sound, without which nobody would, comes before the picture.
    pub is_early_playback: bool,
    /// The pool of remote workers that makes it.
    pub pool: Option<Pool>,
    /// Where generations of this video go, and what this one is called there.
    pub output: String,
    pub generation: String,
    /// The folder of the generation whose rungs are shown on beside those made now, and in place of which it comes.
    pub carry: Option<String>,
    /// An encoder that makes no frame for so long is killed, and its task tried again.
    pub stall: Duration,
    /// How long an encoding task may take beyond the time that the plan adds for its size. None: for ever.
    pub timeout: Option<Duration>,
    pub max_attempts: u32,
    pub backoff_initial: Duration,
}

/// ffprobe may be silent for longer than an encoder: while it looks for an index, it has nothing to say.
const PROBE_PATIENCE: u32 = 5;

/// For what no single command's silence gives away: far longer than the largest video takes.
const A_DAY_MS: u32 = 86_400_000;

pub fn spec(order: &Order) -> Result<Spec, serde_json::Error> {
    let source = value(&FromSource { source: order.source.clone(), seen: order.seen })?;
    let stall_ms = u32::try_from(order.stall.as_millis()).unwrap_or(u32::MAX);
    let encoders: Vec<String> =
        order.settings.codecs.iter().map(|codec| order.settings.encoder.encoder(*codec)).collect();
    let timeout_ms = order.timeout.map(|it| u32::try_from(it.as_millis()).unwrap_or(u32::MAX));
    let pieces = |kind: &str| Stage {
        needs: names(["plan"]),
        reads: names(["plan"]),
        expand: Some("plan".into()),
        stall_ms: Some(stall_ms),
        ..stage(kind, Phase::Processing, source.clone())
    };
    let timed = |kind: &str| Stage { timeout_ms, ..pieces(kind) };
    let publish =
        Publish { video: order.video, output: order.output.clone(), generation: order.generation.clone() };
    let package = Package {
        generation: order.generation.clone(),
        output: order.output.clone(),
        carry: order.carry.clone(),
        source: Some(FromSource { source: order.source.clone(), seen: order.seen }),
    };
    let mut parts = names(["encode", "audio", "subtitles", "thumbnails"]);
    let has_optional = order.settings.rungs.iter().any(|rung| rung.optional);
    if has_optional {
        parts.push("encode_optional".into());
    }
    let mut stages = vec![
        Stage {
            stall_ms: Some(stall_ms.saturating_mul(PROBE_PATIENCE)),
            ..stage("probe", Phase::Validating, source.clone())
        },
        Stage {
            needs: names(["probe"]),
            reads: names(["probe"]),
            ..stage("plan", Phase::Planning, value(&Plan { settings: order.settings.clone() })?)
        },
        Stage { requires: encoders.clone(), hedge: true, ..timed("encode") },
        timed("audio"),
        Stage { optional: true, ..pieces("subtitles") },
        Stage { optional: true, ..pieces("thumbnails") },
        Stage {
            needs: parts.clone(),
            reads: names(["probe", "plan"]).into_iter().chain(parts).collect(),
            timeout_ms: Some(A_DAY_MS),
            ..stage("package", Phase::Processing, value(&package)?)
        },
    ];
    if has_optional {
        // Last of the parts: what a stream cannot do without comes first.
        let optional = Stage { requires: encoders, optional: true, ..timed("encode_optional") };
        stages.insert(stages.len() - 1, optional);
    }
    if order.is_early_playback {
        let place = |kind: &str| stages.iter().position(|stage| stage.name == kind);
        if let (Some(picture), Some(sound)) = (place("encode"), place("audio")) {
            stages.swap(picture, sound);
        }
    }
    if let Some(fetch) = &order.fetch {
        // Nothing can be told of a file before it is here: so this belongs to the first phase, and not to the third.
        let ingest = stage("ingest", Phase::Validating, value(fetch)?);
        stages.insert(0, Stage { stall_ms: Some(stall_ms), ..ingest });
        stages[1].needs = names(["ingest"]);
    }
    let mut before = names(["package"]);
    if order.settings.measure {
        let both = names(["plan", "package"]);
        stages.push(Stage { needs: both.clone(), reads: both, optional: true, ..pieces("measure") });
        before.push("measure".into());
    }
    stages.push(Stage {
        needs: before,
        reads: names(["package"]),
        timeout_ms: Some(A_DAY_MS),
        ..stage("publish", Phase::UploadingOutputs, value(&publish)?)
    });
    Ok(Spec {
        name: order.name.clone(),
        user: order.user.clone(),
        priority: order.priority,
        max_attempts: order.max_attempts,
        backoff_initial_ms: u32::try_from(order.backoff_initial.as_millis()).unwrap_or(u32::MAX),
        backoff_max_ms: 300_000,
        pool: order.pool.clone(),
        max_tasks: None,
        stages,
    })
}

fn stage(kind: &str, phase: Phase, with: Value) -> Stage {
    Stage {
        name: kind.into(),
        phase,
        needs: Vec::new(),
        reads: Vec::new(),
        expand: None,
        segments: None,
        run: None,
        sleep_ms: None,
        kind: Some(kind.into()),
        with: Some(with),
        requires: Vec::new(),
        prefer_gpu: false,
        optional: false,
        hedge: false,
        timeout_ms: None,
        stall_ms: None,
        effect: None,
    }
}

fn value(payload: &impl Serialize) -> Result<Value, serde_json::Error> {
    serde_json::to_value(payload)
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(String::from).into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_of_an_order_fit_together() {
        let order = Order {
            name: "talk.mov".into(),
            user: "ann".into(),
            priority: Priority::default(),
            video: VideoId(1),
            source: "/talk.mov".into(),
            fetch: None,
            seen: None,
            settings: Settings::default(),
            is_early_playback: false,
            pool: None,
            output: "/out".into(),
            generation: "g1".into(),
            carry: None,
            stall: Duration::from_secs(60),
            timeout: None,
            max_attempts: 3,
            backoff_initial: Duration::from_secs(1),
        };

        let stages = spec(&order).unwrap().resolve().unwrap();

        let names: Vec<_> = stages.iter().map(|stage| stage.name.as_str()).collect();
        let expected = ["probe", "plan", "encode", "audio", "subtitles", "thumbnails", "package", "publish"];
        assert_eq!(names, expected);
        let mut settings = Settings::default();
        settings.rungs[0].optional = true;
        let optional = spec(&Order { settings, ..order.clone() }).unwrap();
        assert!(optional.resolve().is_ok());
        assert_eq!(
            (optional.stages[6].name.as_str(), optional.stages[6].optional),
            ("encode_optional", true)
        );
        let (url, to) = ("https://example.org/talk.mov".into(), order.source.clone());
        let fetch = Some(Fetch { url, to, max_bytes: 1, allow_private: false });
        let fetched = spec(&Order { fetch, ..order.clone() }).unwrap().resolve().unwrap();
        assert_eq!((fetched[0].name.as_str(), fetched[1].needs.as_slice()), ("ingest", [0].as_slice()));
        let timed = spec(&Order { timeout: Some(Duration::from_secs(1)), ..order.clone() }).unwrap();
        let timed = timed.stages.iter().filter(|stage| stage.timeout_ms == Some(1000));
        assert_eq!(timed.map(|stage| stage.name.as_str()).collect::<Vec<_>>(), ["encode", "audio"]);
        let early = spec(&Order { is_early_playback: true, ..order }).unwrap();
        let names: Vec<_> = early.stages[2..4].iter().map(|stage| stage.name.as_str()).collect();
        assert_eq!(names, ["audio", "encode"]);
    }
}
