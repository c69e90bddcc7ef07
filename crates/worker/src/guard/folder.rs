//! How much the files of a working directory take together.

use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Looking costs a call for each file.
const PAUSE: Duration = Duration::from_secs(1);

/// More files than that are too much too: no command makes them, and looking at them would take the guard too long.
const MOST_FILES: usize = 100_000;

/// The unit in which systems tell what room a file takes, whatever that of the disk.
const BLOCK: u64 = 512;

pub(super) struct Folder {
    path: PathBuf,
    limit: u64,
    looked_at: Option<Instant>,
    is_too_large: bool,
}

impl Folder {
    pub fn of_this_process(limit: u64) -> Self {
        Folder { path: ".".into(), limit, looked_at: None, is_too_large: false }
    }

    /// As far as can be told without looking too often.
    pub fn is_too_large(&mut self, now: Instant) -> bool {
        if self.looked_at.is_none_or(|at| now.saturating_duration_since(at) >= PAUSE) {
            self.looked_at = Some(now);
            self.look();
        }
        self.is_too_large
    }

    /// Nothing is left that writes to it.
    pub fn is_too_large_at_last(&mut self) -> bool {
        self.look();
        self.is_too_large
    }

    fn look(&mut self) {
        self.is_too_large |= size(&self.path).is_none_or(|bytes| bytes > self.limit);
    }
}

/// In bytes, without following links; `None` for more files than anybody needs, and for what cannot be looked into.
fn size(folder: &Path) -> Option<u64> {
    let (mut folders, mut files, mut bytes) = (vec![folder.to_owned()], 0, 0_u64);
    while let Some(folder) = folders.pop() {
        for entry in there(fs::read_dir(folder)).ok()?.into_iter().flatten() {
            let Some((entry, found)) = look(entry).ok()? else { continue };
            if found.is_dir() {
                folders.push(entry.path());
            }
            bytes = bytes.saturating_add(found.len().max(found.blocks().saturating_mul(BLOCK)));
            files += 1;
            if files > MOST_FILES {
                return None;
            }
        }
    }
    Some(bytes)
}

fn look(entry: io::Result<DirEntry>) -> io::Result<Option<(DirEntry, Metadata)>> {
    let entry = entry?;
    let found = there(entry.metadata())?;
    Ok(found.map(|found| (entry, found)))
}

/// What vanishes meanwhile takes nothing.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
