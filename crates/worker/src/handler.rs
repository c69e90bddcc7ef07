//! Kinds of work. The core carries their payloads and results and never looks inside.

mod command;
mod noop;
mod sleep;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use rules::failure;
use serde_json::Value;
use wire::{Arrival, Assignment, Publication};

use crate::context::Context;
pub use command::Command;
pub use noop::Noop;
pub use sleep::Sleep;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Does one kind of work.
///
/// It is to return soon after `context.stop` is cancelled; one that doesn't is dropped. Whatever it writes,
/// it writes below a path of the execution's own: it may have lost its lease without knowing it yet.
pub trait Handler: Send + Sync + 'static {
    /// The word stages name it by; a capability of every worker that has this handler.
    fn kind(&self) -> &str;

    fn run<'a>(&'a self, job: &'a Assignment, context: &'a Context)
    -> BoxFuture<'a, Result<Outcome, Failed>>;
}

/// What successful work leaves behind.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    pub result: Option<Value>,
    pub publication: Option<Publication>,
    pub arrival: Option<Arrival>,
}

impl From<Value> for Outcome {
    fn from(result: Value) -> Self {
        Outcome { result: Some(result), ..Outcome::default() }
    }
}

/// Why work did not succeed, as a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failed {
    pub kind: failure::Kind,
    pub message: String,
}

impl Failed {
    /// May succeed when tried again.
    pub fn transient(message: impl Into<String>) -> Self {
        Failed { kind: failure::Kind::Transient, message: message.into() }
    }

    /// Where files are kept did not answer or had no room; uses up no attempt.
    pub fn storage_away(message: impl Into<String>) -> Self {
        Failed { kind: failure::Kind::StorageAway, message: message.into() }
    }

    /// This machine's disk was full; uses up no attempt.
    pub fn disk_full(message: impl Into<String>) -> Self {
        Failed { kind: failure::Kind::DiskFull, message: message.into() }
    }

    /// Would fail again, here or elsewhere.
    pub fn permanent(message: impl Into<String>) -> Self {
        Failed { kind: failure::Kind::Permanent, message: message.into() }
    }
}

/// What a worker can do.
#[derive(Clone, Default)]
pub struct Handlers(BTreeMap<String, Arc<dyn Handler>>);

impl Handlers {
    /// `command`, `sleep` and `noop`.
    pub fn built_in() -> Self {
        Self::default().with(Command::default()).with(Sleep).with(Noop)
    }

    /// Adds a kind of work, in place of a handler of the same kind.
    pub fn with(mut self, handler: impl Handler) -> Self {
        self.0.insert(handler.kind().into(), Arc::new(handler));
        self
    }

    pub fn kinds(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(crate) fn get(&self, kind: &str) -> Option<&dyn Handler> {
        self.0.get(kind).map(AsRef::as_ref)
    }
}
