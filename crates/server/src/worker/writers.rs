//! Who writes an output that is coming in: of several requests that bring the same one, the latest.
//!
//! A worker whose connection falls silent sends again on another. What the first held back may still arrive, and must not
//! be mixed with what the second brings.

use crate::problem::{Error, Result};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

type Latest = Arc<tokio::sync::Mutex<u64>>;

#[derive(Default)]
pub struct Writers(Mutex<HashMap<PathBuf, Latest>>);

impl Writers {
    /// From now on this one writes, and no earlier one.
    pub async fn enter(&self, file: &Path) -> Writer<'_> {
        let latest = self.files().entry(file.to_owned()).or_default().clone();
        let mut number = latest.lock().await;
        *number += 1;
        let own = *number;
        drop(number);
        Writer { writers: self, file: file.to_owned(), latest, own }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<PathBuf, Latest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub struct Writer<'a> {
    writers: &'a Writers,
    file: PathBuf,
    latest: Latest,
    own: u64,
}

impl Writer<'_> {
    /// Does this, unless a later request has taken over; none does meanwhile.
    pub async fn write<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let latest = self.latest.lock().await;
        if *latest != self.own {
            return Err(Error::conflict("superseded", "a later request brings this output"));
        }
        work.await
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let mut files = self.writers.files();
        // The map's and this one's.
        if Arc::strong_count(&self.latest) <= 2 {
            files.remove(&self.file);
        }
    }
}
