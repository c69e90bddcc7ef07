//! The words themselves.

use crate::Proof;
use rules::placement::Capabilities;
use rules::{JobId, VideoId, WorkerId, failure, phase, task};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// In the process of a server. To people it is a local worker.
    Server,
    /// In a process of its own, with access to the database.
    Local,
    Remote,
}

impl Kind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Kind::Server | Kind::Local => "local",
            Kind::Remote => "remote",
        }
    }
}

/// A worker introduces itself. The id is of this incarnation: a restart brings a new one.
#[derive(Debug, Clone)]
pub struct Hello {
    pub worker: WorkerId,
    pub name: String,
    pub kind: Kind,
    pub hostname: String,
    pub version: String,
    pub slots: u32,
    pub capabilities: Capabilities,
    pub metadata: Value,
}

#[derive(Debug, Clone)]
pub struct Heartbeat {
    pub worker: WorkerId,
    pub phase: phase::Phase,
    pub running: u32,
    pub is_draining: bool,
    /// It goes away now; this is its last word.
    pub is_leaving: bool,
    pub done: u64,
    pub failed: u64,
    /// Why it takes nothing new although a slot is free: its machine has too little disk or memory left.
    pub refusal: Option<String>,
}

/// A leased task, with all that is needed to do it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    pub proof: Proof,
    pub job: JobId,
    pub stage: String,
    pub kind: String,
    /// What the kind of work needs to know, as the job's spec gives it.
    pub payload: Value,
    pub segment: i64,
    /// What the plan says of this segment.
    pub input: Option<Value>,
    /// What the stages that this one reads have committed, by their names, in order of segment; null for a task that
    /// was given up. A plan comes without its segments.
    #[serde(default)]
    pub results: BTreeMap<String, Vec<Value>>,
    pub attempt: u32,
    pub max_attempts: u32,
    /// How long the lease lasts; to be renewed well before.
    pub lease_ms: i64,
    pub timeout_ms: Option<i64>,
    pub stall_ms: Option<i64>,
    /// The trace that the job is part of, as W3C writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}

#[derive(Debug, Clone, Copy)]
pub struct Renewal {
    pub proof: Proof,
    /// Grows only while the work itself moves.
    pub progress: i64,
}

#[derive(Debug, Clone)]
pub struct Progress {
    pub proof: Proof,
    pub progress: i64,
    pub step: Option<String>,
    /// How much is done, in thousandths.
    pub permille: Option<u16>,
    /// Durable progress: how much the next execution continues from if this one is interrupted. It spares attempts, so a
    /// remote worker has no way to say it.
    pub kept: Option<i64>,
}

#[derive(Debug, Clone)]
pub struct Commit {
    pub proof: Proof,
    /// What the work found out or made: a plan, a manifest.
    pub result: Option<Value>,
    /// A new generation of a video, to become visible with this commit.
    pub publication: Option<Publication>,
    /// The file that the job's video is made of is there now.
    pub arrival: Option<Arrival>,
    pub usage: Usage,
    pub steps: Vec<StepRecord>,
}

#[derive(Debug, Clone)]
pub struct Failure {
    pub proof: Proof,
    pub kind: failure::Kind,
    pub message: String,
    pub usage: Usage,
    pub steps: Vec<StepRecord>,
}

/// What an execution has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub wall_ms: i64,
    pub cpu_ms: i64,
    pub peak_memory_bytes: i64,
    pub bytes_in: i64,
    pub bytes_out: i64,
}

/// One command an execution ran.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StepRecord {
    pub kind: String,
    pub command: String,
    pub exit_code: Option<i64>,
    pub signal: Option<i64>,
    pub stdout_tail: String,
    pub stderr_tail: String,
    pub duration_ms: i64,
    pub is_success: bool,
    pub error: Option<String>,
}

/// A file that came from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arrival {
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Publication {
    pub video: VideoId,
    pub manifest: Value,
    pub renditions: Vec<Rendition>,
}

#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Rendition {
    pub name: String,
    pub codec: String,
    pub width: Option<i64>,
    pub height: Option<i64>,
    pub bandwidth: Option<i64>,
    pub bytes: i64,
}

/// What a word came to. A refusal is final: the worker stops that work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Accepted,
    /// The same commit was accepted before; its answer had been lost.
    AlreadyAccepted,
    Refused(task::Refusal),
}
