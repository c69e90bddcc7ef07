//! Where output goes that is too long to be kept.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

type Take = dyn FnMut(&[u8]) -> ControlFlow<()> + Send;

/// Takes output piece by piece. Once it breaks off, the command is ended, and counts as having ended by itself.
#[derive(Clone)]
pub struct Sink(Arc<Mutex<Take>>);

impl Sink {
    pub fn new(take: impl FnMut(&[u8]) -> ControlFlow<()> + Send + 'static) -> Self {
        Sink(Arc::new(Mutex::new(take)))
    }

    pub(super) fn take(&self, bytes: &[u8]) -> ControlFlow<()> {
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(bytes)
    }
}

impl fmt::Debug for Sink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sink(…)")
    }
}
