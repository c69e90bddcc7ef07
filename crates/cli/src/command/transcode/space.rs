//! Whether there is room on the disk. The database is on it too: on a full one not even a failure can be recorded, and
//! whoever waits for that would wait for ever.

use super::folder::Folder;
use anyhow::bail;
use std::fs;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

/// An encoder that fails for want of room makes some at once; after so long nobody does.
const PATIENCE: Duration = Duration::from_secs(15);

const EVERY: Duration = Duration::from_secs(2);

/// About what it takes to record a failure.
const NEEDED: usize = 64 << 10;

pub struct Space<'a> {
    folder: &'a Folder,
    looked: Instant,
    full_since: Option<Instant>,
}

impl<'a> Space<'a> {
    pub fn new(folder: &'a Folder) -> Self {
        Space { folder, looked: Instant::now(), full_since: None }
    }

    /// An error when the disk has been full for so long that it is time to tell.
    pub fn look(&mut self) -> anyhow::Result<()> {
        if self.looked.elapsed() < EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        if !self.is_full() {
            self.full_since = None;
        } else if self.full_since.get_or_insert(self.looked).elapsed() > PATIENCE {
            let folder = self.folder.root().display();
            bail!(
                "no space is left on the disk of {folder}; make some, and the same command goes on from here"
            );
        }
        Ok(())
    }

    /// By trying: what a file system calls free need not be for everybody.
    fn is_full(&self) -> bool {
        let trial = self.folder.trial();
        let written = fs::write(&trial, vec![0; NEEDED]);
        let _ = fs::remove_file(&trial);
        written.is_err_and(|error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded))
    }
}
