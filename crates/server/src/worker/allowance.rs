//! How much an execution may bring: the bytes and files that its task can make, all of them together.
//!
//! A worker that fills the disk up to the reserve would keep all others from bringing anything.

use super::result;
use crate::app::App;
use crate::problem::{Error, Result};
use rules::ExecutionId;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Files of a task of which no plan says what it makes. No sandbox lets a task make more.
pub const MOST_FILES: usize = 100_000;

/// After this the allowance is made again, from what lies in the execution's folder.
const REMEMBERED: Duration = Duration::from_secs(600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Most {
    pub bytes: u64,
    pub files: usize,
}

/// The allowances of executions that bring files to this server.
#[derive(Default)]
pub struct Allowances(Mutex<HashMap<ExecutionId, Arc<Mutex<Allowance>>>>);

struct Allowance {
    most: Most,
    bytes: u64,
    /// The size of each file, by the hash of its path.
    files: HashMap<u64, u64>,
    used: Instant,
}

impl Allowances {
    /// Counts files that are to come, or says that they are too many. One that comes again takes the place of the first.
    pub async fn take(
        &self,
        app: &App,
        execution: ExecutionId,
        files: impl Iterator<Item = (&str, u64)>,
    ) -> Result<()> {
        let allowance = self.of(app, execution).await?;
        let mut allowance = locked(&allowance);
        for (path, bytes) in files {
            allowance.take(path, bytes)?;
        }
        Ok(())
    }

    pub async fn most(&self, app: &App, execution: ExecutionId) -> Result<Most> {
        Ok(locked(&*self.of(app, execution).await?).most)
    }

    pub fn forget(&self, execution: ExecutionId) {
        locked(&self.0).remove(&execution);
    }

    async fn of(&self, app: &App, execution: ExecutionId) -> Result<Arc<Mutex<Allowance>>> {
        if let Some(known) = locked(&self.0).get(&execution) {
            locked(known).used = Instant::now();
            return Ok(known.clone());
        }
        let most = result::most_of(app, execution).await?;
        let incoming = app.data.incoming(execution);
        let files = tokio::task::spawn_blocking(move || brought(&incoming)).await;
        let files = files.map_err(|error| Error::Internal(error.to_string()))?;
        let files = files.map_err(|error| Error::disk("listing the outputs", &error))?;
        let new = Allowance { most, bytes: files.values().sum(), files, used: Instant::now() };
        let mut known = locked(&self.0);
        known.retain(|_, it| locked(it).used.elapsed() < REMEMBERED);
        Ok(known.entry(execution).or_insert_with(|| Arc::new(Mutex::new(new))).clone())
    }
}

impl Allowance {
    fn take(&mut self, path: &str, bytes: u64) -> Result<()> {
        let (key, Most { bytes: most, files }) = (key(&hash(path)), self.most);
        let before = self.files.get(&key).copied();
        let after = self.bytes.saturating_sub(before.unwrap_or(0)).saturating_add(bytes);
        if after > most {
            return Err(Error::TooLarge(format!(
                "{path}: the outputs of this execution have {after} bytes then; its task makes at most {most}, and the \
                 setting max_output_gb limits what any may bring"
            )));
        }
        if before.is_none() && self.files.len() >= files {
            return Err(Error::TooLarge(format!(
                "{path}: this execution has brought {files} files, and its task makes no more"
            )));
        }
        self.files.insert(key, bytes);
        self.bytes = after;
        Ok(())
    }
}

/// By which the partial file of an output is called, too.
pub fn hash(path: &str) -> String {
    hex::encode(Sha256::digest(path.as_bytes()))
}

fn key(hash: &str) -> u64 {
    hash.get(..16).and_then(|digits| u64::from_str_radix(digits, 16).ok()).unwrap_or_default()
}

/// What lies in the folder of an execution.
fn brought(incoming: &Path) -> std::io::Result<HashMap<u64, u64>> {
    let partial = incoming.join(super::outputs::PARTIAL);
    let (mut found, mut folders) = (HashMap::new(), vec![incoming.to_owned()]);
    while let Some(folder) = folders.pop() {
        for (path, bytes) in entries(&folder)? {
            let Some(bytes) = bytes else {
                folders.push(path);
                continue;
            };
            let name = path.strip_prefix(incoming).unwrap_or(&path).to_string_lossy();
            let hash = match path.parent() == Some(&partial) {
                true => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                false => hash(&name),
            };
            let before: &mut u64 = found.entry(key(&hash)).or_default();
            *before = bytes.max(*before);
        }
    }
    Ok(found)
}

/// Folders, and files with their sizes. What is removed meanwhile is passed over.
fn entries(folder: &Path) -> std::io::Result<Vec<(PathBuf, Option<u64>)>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let sized = |entry: std::fs::DirEntry| {
        let found = entry.metadata().ok()?;
        Some((entry.path(), (!found.is_dir()).then_some(found.len())))
    };
    Ok(entries.flatten().filter_map(sized).collect())
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn all_files_of_an_execution_count_and_each_of_them_once() {
        let most = Most { bytes: 10, files: 2 };
        let mut allowance = Allowance { most, bytes: 0, files: HashMap::new(), used: Instant::now() };

        assert!(allowance.take("a", 6).is_ok());
        assert!(allowance.take("b", 5).is_err(), "too many bytes");
        assert!(allowance.take("a", 10).is_ok(), "in place of the first");
        assert!(allowance.take("a", 1).is_ok());
        assert!(allowance.take("b", 0).is_ok());
        assert!(allowance.take("c", 0).is_err(), "too many files");
    }

    #[test]
    fn what_came_before_a_restart_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = |path: &Path, bytes: usize| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; bytes]).unwrap();
        };
        file(&folder.path().join("720p/a.m4s"), 3);
        file(&folder.path().join(super::super::outputs::PARTIAL).join(hash("720p/b.m4s")), 4);

        let found = brought(folder.path()).unwrap();

        let of = |path: &str| found.get(&key(&hash(path))).copied();
        assert_eq!((of("720p/a.m4s"), of("720p/b.m4s"), found.len()), (Some(3), Some(4), 2));
        assert!(brought(&folder.path().join("none")).unwrap().is_empty());
    }
}
