//! One trace for each job, from its upload through every task on every worker: how its context travels.
//!
//! Spans with [`TARGET`] are for traces, and are in no log. Whether and where traces are sent is the program's affair: it
//! gives a [`Carrier`], without which there is no context, and spans cost next to nothing.

use std::sync::OnceLock;
use tracing::Span;

/// That of spans which are part of a trace.
pub const TARGET: &str = "trace";

/// The header, and the column, that a context travels in, as W3C has it.
pub const HEADER: &str = "traceparent";

/// Knows how a span's context is written.
pub trait Carrier: Send + Sync {
    /// The context of the span that this task is in, if that is part of a trace.
    fn current(&self) -> Option<String>;

    /// Makes `span`, which has not begun, part of the trace of this context. One that cannot be read is ignored.
    fn adopt(&self, span: &Span, context: &str);
}

static CARRIER: OnceLock<Box<dyn Carrier>> = OnceLock::new();

/// From now on there are traces. The first to say so decides.
pub fn carry(carrier: impl Carrier + 'static) {
    let _ = CARRIER.set(Box::new(carrier));
}

pub fn is_on() -> bool {
    CARRIER.get().is_some()
}

pub fn current() -> Option<String> {
    CARRIER.get()?.current()
}

pub fn adopt(span: &Span, context: Option<&str>) {
    if let (Some(carrier), Some(context)) = (CARRIER.get(), context) {
        carrier.adopt(span, context);
    }
}
