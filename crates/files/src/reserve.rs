//! The part of the disks that stays free: without it nothing can be uploaded, made or committed.

use crate::space;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: u64 = 1 << 20;

/// Who writes measures again after so much, whoever wrote it.
const MEASURED_EVERY: u64 = 16 * MIB;

/// Which folders must have how much room. Clones count together what they write.
#[derive(Debug, Clone, Default)]
pub struct Reserve {
    bytes: u64,
    folders: Vec<(&'static str, PathBuf)>,
    /// Written since it was last measured.
    written: Arc<AtomicU64>,
}

impl Reserve {
    /// Folders come with their names: anybody may ask for the server's health, and their places are no stranger's business.
    pub fn new<'a>(bytes: u64, folders: impl IntoIterator<Item = (&'static str, &'a Path)>) -> Self {
        let folders = folders.into_iter().map(|(name, folder)| (name, folder.to_owned()));
        Reserve { bytes, folders: folders.collect(), written: Arc::default() }
    }

    /// For those who write into this folder alone.
    pub fn of(&self, folder: &str) -> Self {
        let folders = self.folders.iter().filter(|(name, _)| *name == folder).cloned();
        Reserve { bytes: self.bytes, folders: folders.collect(), written: Arc::default() }
    }

    /// Which folder's disk is short of room, if one is. A folder that is not there yet is on the disk of the one above it.
    pub fn shortage(&self) -> Option<String> {
        self.room_for(0).err()
    }

    /// Why so many more bytes would not leave the reserve free, if they would not.
    pub fn room_for(&self, more: u64) -> Result<(), String> {
        if self.bytes == 0 {
            return Ok(());
        }
        for (name, folder) in &self.folders {
            let there = folder.ancestors().find(|above| above.exists());
            let Some(Ok((_, free))) = there.map(space) else { continue };
            if free < self.bytes.saturating_add(more) {
                return Err(self.told(name, free, more));
            }
        }
        Ok(())
    }

    /// As [`Reserve::room_for`], of a block about to be written. Measures now and then.
    pub fn room_to_go_on(&self, block: usize) -> Result<(), String> {
        let written = self.written.fetch_add(block as u64, Ordering::Relaxed) + block as u64;
        if written >= MEASURED_EVERY {
            // Only success is remembered: in a shortage, everybody hears of it at the next block.
            self.room_for(block as u64)?;
            self.written.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn told(&self, name: &str, free: u64, more: u64) -> String {
        let (free, reserve, more) = (free / MIB, self.bytes / MIB, more / MIB);
        let coming = if more > 0 {
            format!(" when {more} MiB more have come")
        } else {
            String::new()
        };
        format!("{free} MiB are free on the disk of the {name}, and {reserve} are to stay free{coming}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_writes_hears_of_a_shortage() {
        let here = [("data folder", Path::new("/")), ("work folder", Path::new("/"))];
        let (plenty, nothing) = (Reserve::new(1, here), Reserve::new(u64::MAX, here));
        assert!(plenty.room_for(0).is_ok() && plenty.room_for(u64::MAX).is_err());
        assert!(nothing.of("data folder").shortage().is_some_and(|why| why.contains("data folder")));
        assert!(nothing.of("another").shortage().is_none() && Reserve::new(0, here).shortage().is_none());

        let clone = nothing.clone();
        assert!(nothing.room_to_go_on(15 << 20).is_ok());
        assert!(clone.room_to_go_on(1 << 20).is_err(), "all who write count together");
        assert!(nothing.room_to_go_on(1).is_err());
    }
}
