//! Whether the database's disk was full a moment ago: reading goes on, so only those who write see it.

use crate::error::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For so long after the last refusal: what fits into the room that is left is written all the while.
const MOMENT: Duration = Duration::from_secs(30);

#[derive(Clone, Default)]
pub(crate) struct Fullness(Arc<Mutex<Option<(Instant, String)>>>);

impl Fullness {
    pub fn note<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error @ Error::Full(_)) = &result {
            let now = Some((Instant::now(), error.to_string()));
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
        }
        result
    }

    pub fn reason(&self) -> Option<String> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(at, _)| at.elapsed() < MOMENT).map(|(_, reason)| reason.clone())
    }
}
