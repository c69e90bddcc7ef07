//! The words of a worker that speaks to its desk over HTTP: bodies of `POST /api/worker/…`.
//!
//! A worker is known by its key, so none of these names it. Refusals travel as problem+json with status 409 and the
//! refusal's name in `refusal`; in answers to a batch they stand in the answer.

use crate::{Assignment, LeaseToken, StepRecord, Usage};
use rules::failure;
use rules::phase::Phase;
use rules::task::Refusal;
use rules::worker::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;
use uuid::Uuid;

/// The oldest worker this version works with.
pub const OLDEST_WORKER: &str = "0.1.0";

/// A person lets a worker in.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Registration {
    /// How people tell workers apart.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The upper bound of what it may be given: kinds of work, encoders, and whatever else tasks ask for. What the worker
    /// declares when it begins can only narrow it. Empty: all that it declares, except the server's own kinds of work.
    #[serde(default)]
    #[schema(max_items = 32)]
    pub capabilities: Vec<String>,
    /// It takes only jobs that name this pool. Default: only jobs that name no pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 32, pattern = "^[a-z0-9_-]+$")]
    pub pool: Option<String>,
    /// It takes only jobs of these users. Empty: of every user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 100)]
    pub users: Vec<String>,
    /// Anything, as JSON of at most 10 KB.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metadata: Value,
}

#[derive(Serialize, Deserialize, ToSchema)]
pub struct Registered {
    #[schema(value_type = Uuid)]
    pub worker_id: rules::WorkerId,
    /// Shown this once: only its hash is stored.
    pub api_key: String,
}

/// What a worker is; told when it begins, and whenever the desk has forgotten it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Description {
    pub hostname: String,
    pub version: String,
    pub slots: u32,
    pub capabilities: Vec<String>,
    /// Anything, as JSON of at most 10 KB.
    #[schema(value_type = Object)]
    pub metadata: Value,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatRequest {
    /// The process behind the key: a restart brings a new one, and the newest is the one that counts.
    pub incarnation: Uuid,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hello: Option<Description>,
    #[schema(value_type = String, example = "Polling")]
    pub phase: Phase,
    /// How many executions it is at.
    pub running: u32,
    #[serde(default)]
    pub is_draining: bool,
    /// It goes away now; this is its last word.
    #[serde(default)]
    pub is_leaving: bool,
    #[serde(default)]
    pub done: u64,
    #[serde(default)]
    pub failed: u64,
    #[serde(default)]
    pub load: Load,
    /// Why it takes nothing new although a slot is free: its machine has too little disk or memory left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
}

/// How busy a worker's machine is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Load {
    /// Processes that want a processor, over the last minute.
    pub cpu: f64,
    pub memory_free_bytes: u64,
    pub disk_free_bytes: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    /// What the worker is to be: a draining or disabled one takes nothing new.
    #[schema(value_type = String, example = "idle")]
    pub status: Status,
    /// How often it is expected to be heard of.
    pub heartbeat_interval_ms: i64,
    pub lease_ms: i64,
    pub server_version: String,
    /// As people know the worker: its logs and traces say so too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Uuid>)]
    pub worker_id: Option<rules::WorkerId>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimRequest {
    pub incarnation: Uuid,
    /// How many tasks it can take; 0 only asks whether there are any.
    #[schema(maximum = 100)]
    pub max: u32,
    /// How long the answer may wait for work, instead of saying that there is none.
    #[serde(default)]
    #[schema(maximum = 60000)]
    pub wait_ms: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimResponse {
    /// There may be more; only a claim decides.
    pub has_work: bool,
    #[schema(value_type = Vec<Object>)]
    pub assignments: Vec<Assignment>,
}

/// What a worker says of everything it is at, in one request. Each extends its lease if the work has moved.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProgressRequest {
    #[schema(max_items = 1000)]
    pub reports: Vec<Report>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Report {
    #[schema(value_type = Object)]
    pub proof: LeaseToken,
    /// Grows only while the work itself moves.
    pub progress: i64,
    /// What it is at. With it or `permille`, the execution is known to have begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// How much is done, in thousandths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 1000)]
    pub permille: Option<u16>,
    /// Says only that the work goes on.
    #[serde(default)]
    pub is_renewal: bool,
}

/// One answer for each report, in order.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProgressResponse {
    pub answers: Vec<Verdict>,
}

/// What a word came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Verdict {
    Accepted,
    /// The same was accepted before.
    AlreadyAccepted,
    /// Final: the worker stops that work and drops its files.
    Refused {
        #[schema(value_type = String, example = "stale_token")]
        refusal: Refusal,
    },
}

impl From<crate::Answer> for Verdict {
    fn from(answer: crate::Answer) -> Self {
        match answer {
            crate::Answer::Accepted => Verdict::Accepted,
            crate::Answer::AlreadyAccepted => Verdict::AlreadyAccepted,
            crate::Answer::Refused(refusal) => Verdict::Refused { refusal },
        }
    }
}

impl From<Verdict> for crate::Answer {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Accepted => crate::Answer::Accepted,
            Verdict::AlreadyAccepted => crate::Answer::AlreadyAccepted,
            Verdict::Refused { refusal } => crate::Answer::Refused(refusal),
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CompleteRequest {
    #[schema(value_type = Object)]
    pub proof: LeaseToken,
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub result: Option<Value>,
    /// Every file it has uploaded. The server looks that each is there, as it was said to be, and no other.
    #[serde(default)]
    #[schema(max_items = 100000)]
    pub outputs: Vec<Output>,
    #[schema(value_type = Object)]
    pub usage: Usage,
    #[schema(value_type = Vec<Object>)]
    #[serde(default)]
    pub steps: Vec<StepRecord>,
}

/// A file in the execution's own place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Output {
    /// Relative, with `/` between its parts.
    pub path: String,
    pub bytes: u64,
    pub sha256: String,
}

/// Asks where the bytes of an execution can be read and written without the server in between.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DirectRequest {
    #[schema(value_type = Object)]
    pub proof: LeaseToken,
    /// Where its source can be read.
    #[serde(default)]
    pub source: bool,
    /// Where these can be put.
    #[serde(default)]
    #[schema(max_items = 1000)]
    pub outputs: Vec<DirectOutput>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DirectOutput {
    #[serde(flatten)]
    pub output: Output,
    /// In hex; the store compares what arrives with it.
    pub md5: String,
}

/// What is not told goes through the server.
#[derive(Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct DirectResponse {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Direct>,
    /// One for each output, in order; or none at all.
    #[serde(default)]
    pub outputs: Vec<Direct>,
}

/// Good for a while, for one object, for whoever has it: not to be logged, and never an argument of a command.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub struct Direct {
    pub url: String,
    /// To be sent along as they are.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct FailRequest {
    #[schema(value_type = Object)]
    pub proof: LeaseToken,
    /// `transient` is worth another try, `permanent` is not. Two more are, and use up no attempt: `storage_away`, where
    /// files are kept did not answer or had no room, and `disk_full`, the worker's own disk had none.
    #[schema(value_type = String, example = "transient")]
    pub kind: failure::Kind,
    pub message: String,
    #[schema(value_type = Object)]
    pub usage: Usage,
    #[schema(value_type = Vec<Object>)]
    #[serde(default)]
    pub steps: Vec<StepRecord>,
}

/// Gives work back; uses up no attempt.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReleaseRequest {
    #[schema(value_type = Object)]
    pub proof: LeaseToken,
    #[serde(default)]
    pub message: String,
    #[schema(value_type = Object)]
    #[serde(default)]
    pub usage: Usage,
    #[schema(value_type = Vec<Object>)]
    #[serde(default)]
    pub steps: Vec<StepRecord>,
}

/// An error as RFC 9457 has it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Where this kind of error is explained.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// What happened, to what, and what to do.
    pub detail: String,
    /// Stays the same from version to version: for programs.
    pub code: String,
    /// Also in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Where a word about an execution was refused: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub refusal: Option<Refusal>,
}

/// Values of [`Problem::code`] that workers act on.
pub mod code {
    /// Another process speaks with this key by now.
    pub const SUPERSEDED: &str = "superseded";
    pub const WORKER_TOO_OLD: &str = "worker_too_old";
    /// What arrived is not what was declared: it is to be sent again, whole.
    pub const HASH_MISMATCH: &str = "hash_mismatch";
    pub const SIZE_MISMATCH: &str = "size_mismatch";
    /// Where the server keeps files cannot be reached for now, or has no room.
    pub const STORAGE_AWAY: &str = "storage_away";
    pub const DISK_FULL: &str = "disk_full";
}

/// Headers of our own.
pub mod header {
    /// An execution's proof, as [`crate::LeaseToken::to_header`] writes it: with sources and outputs.
    pub const PROOF: &str = "x-vodmill-proof";
    /// The SHA-256 of an uploaded file, in hex.
    pub const SHA256: &str = "x-vodmill-sha256";
    /// How many bytes of an unfinished upload are there already.
    pub const UPLOAD_OFFSET: &str = "upload-offset";
    pub const ADMIN_SECRET: &str = "x-admin-secret";
}
