//! The part of the disks that stays free: without it nothing can be uploaded, made or committed.

use std::path::{Path, PathBuf};

const MIB: u64 = 1 << 20;

/// Which folders must have how much room.
#[derive(Debug, Clone, Default)]
pub struct Reserve {
    bytes: u64,
    folders: Vec<(&'static str, PathBuf)>,
}

impl Reserve {
    /// Folders come with their names: anybody may ask for the server's health, and their places are no stranger's business.
    pub fn new<'a>(bytes: u64, folders: impl IntoIterator<Item = (&'static str, &'a Path)>) -> Self {
        let folders = folders.into_iter().map(|(name, folder)| (name, folder.to_owned()));
        Reserve { bytes, folders: folders.collect() }
    }

    /// Which folder's disk is short of room, if one is. A folder that is not there yet is on the disk of the one above it.
    pub(crate) fn shortage(&self) -> Option<String> {
        self.folders.iter().find_map(|(name, folder)| {
            let there = folder.ancestors().find(|above| above.exists())?;
            let (_, free) = files::space(there).ok()?;
            let (free_mib, reserve_mib) = (free / MIB, self.bytes / MIB);
            (free < self.bytes).then(|| {
                format!(
                    "{free_mib} MiB are free on the disk of the {name}, and {reserve_mib} are to stay free"
                )
            })
        })
    }
}
