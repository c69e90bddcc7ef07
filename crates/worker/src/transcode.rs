//! A video file becomes a stream: the kinds of work a transcoding job consists of, and the job itself.
//!
//! | stage | what it commits |
//! | --- | --- |
//! | `ingest` | the file itself, where it was named by its address |
//! | `probe` | what the file is |
//! | `plan` | everything that follows from that, and the pieces of the stages below |
//! | `encode` | segments of one chunk, in all rungs of a codec |
//! | `encode_optional` | segments of one chunk, in a rung that the stream is shown without where it fails |
//! | `audio`, `subtitles`, `thumbnails` | a track each, whole; the small pictures |
//! | `package` | the complete generation, proved by the gate |
//! | `measure` | how near a rung comes to the source, where that was asked for |
//! | `publish` | the generation under its final name, and the video's pointer to it |
//!
//! Each task writes into its execution's own folder, and what it commits names that folder; so nothing of an execution
//! that lost its lease is ever used.

mod audio;
mod carry;
mod check;
mod compare;
mod encode;
mod gate;
mod generation;
mod ingest;
mod measure;
mod package;
mod partial;
mod plan;
mod probe;
mod publish;
mod source;
mod spec;
mod subtitles;
mod thumbnails;
mod tools;
mod turns;

pub use carry::FILE as PRESENTATION;
pub use check::{CheckError, ResultCheck};
pub use ingest::{Fetch, Imports};
pub use measure::Likeness;
pub use package::Packaged;
pub use probe::look;
pub use publish::Published;
pub use source::Seen;
pub use spec::{Order, spec};
pub use tools::{BadOutput, Tools};
pub(crate) use tools::{disk, is_full};

use crate::handler::{BoxFuture, Failed, Handler, Handlers, Outcome};
use crate::{Context, handler};
use pipeline::StageKind;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use wire::Assignment;

/// Every kind of work of a transcoding job.
pub const KINDS: [&str; 11] = [
    "ingest",
    "probe",
    "plan",
    "encode",
    "encode_optional",
    "audio",
    "subtitles",
    "thumbnails",
    "package",
    "measure",
    "publish",
];

impl Handlers {
    /// The stages of a transcoding job. A worker that reaches its files only through a server gets none of those that
    /// only a server runs.
    pub fn with_transcoding(self, tools: &Tools) -> Self {
        let can_run = |kind: &StageKind| tools.depot.can_gather() || !kind.is_server_only();
        let stage = |kind| Stage { kind, tools: tools.clone(), run: run_of(kind) };
        StageKind::ALL.into_iter().filter(can_run).fold(self, |handlers, kind| handlers.with(stage(kind)))
    }
}

fn run_of(kind: StageKind) -> Run {
    match kind {
        StageKind::Ingest => ingest::run,
        StageKind::Probe => probe::run,
        StageKind::Plan => plan::run,
        StageKind::Encode | StageKind::EncodeOptional => encode::run,
        StageKind::Audio => audio::run,
        StageKind::Subtitles => subtitles::run,
        StageKind::Thumbnails => thumbnails::run,
        StageKind::Package => package::run,
        StageKind::Measure => measure::run,
        StageKind::Publish => publish::run,
    }
}

type Run = for<'a> fn(Work<'a>) -> BoxFuture<'a, Result<Outcome, Failed>>;

struct Stage {
    kind: StageKind,
    tools: Tools,
    run: Run,
}

impl Handler for Stage {
    fn kind(&self) -> &str {
        self.kind.as_str()
    }

    fn run<'a>(
        &'a self,
        job: &'a Assignment,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Failed>> {
        (self.run)(Work { tools: &self.tools, job, context })
    }
}

/// One task, and what its stage needs to do it.
#[derive(Clone, Copy)]
struct Work<'a> {
    tools: &'a Tools,
    job: &'a Assignment,
    context: &'a Context,
}

impl Work<'_> {
    /// The stage's own part of the job's spec.
    fn payload<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        self.parse(&self.job.payload, "payload")
    }

    /// What the plan says of this task.
    fn input<T: DeserializeOwned>(&self) -> Result<T, Failed> {
        self.parse(self.job.input.as_ref().unwrap_or(&Value::Null), "input")
    }

    /// What the only task of an earlier stage committed.
    fn result<T: DeserializeOwned>(&self, stage: &str) -> Result<T, Failed> {
        self.results(stage)?.into_iter().next().ok_or_else(|| missing(stage))
    }

    /// What the tasks of an earlier stage committed, without those that were given up.
    fn results<T: DeserializeOwned>(&self, stage: &str) -> Result<Vec<T>, Failed> {
        let results = self.job.results.get(stage).ok_or_else(|| missing(stage))?;
        results.iter().filter(|result| !result.is_null()).map(|result| self.parse(result, stage)).collect()
    }

    fn parse<T: DeserializeOwned>(&self, value: &Value, what: &str) -> Result<T, Failed> {
        T::deserialize(value).map_err(|error| {
            Failed::permanent(format!("the {what} of stage `{}` cannot be read: {error}", self.job.stage))
        })
    }
}

fn missing(stage: &str) -> Failed {
    Failed::permanent(format!(
        "nothing was handed on from stage `{stage}`; is it among the stages that this one reads?"
    ))
}

fn outcome(result: &impl Serialize) -> Result<Outcome, Failed> {
    let value = serde_json::to_value(result);
    value
        .map(handler::Outcome::from)
        .map_err(|error| Failed::permanent(format!("the result cannot be written: {error}")))
}
