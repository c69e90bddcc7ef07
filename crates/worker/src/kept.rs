//! What an execution leaves for the next one of its task: a folder on this machine that outlives it.
//!
//! One execution at a time has the folder, by a lock that the kernel lets go of when the process dies. A task that is not
//! tried again for [`KEPT_FOR`] begins anew.

use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rules::TaskId;
use tracing::{debug, info};

use crate::context::Context;
use crate::shared::blocking;

const LOCK: &str = "lock";

/// Longer than a task is spared for the storage's sake.
const KEPT_FOR: Duration = Duration::from_secs(86_400);

#[derive(Debug)]
pub(crate) struct KeptFolder {
    path: PathBuf,
    /// Holds the lock until dropped.
    _lock: File,
}

impl KeptFolder {
    /// The folder of the execution's task; none while another execution still uses it, or where the disk knows no locks.
    pub async fn of(context: &Context) -> Option<Self> {
        let path = context.kept_folder()?.to_owned();
        let opened = blocking({
            let path = path.clone();
            move || open(path)
        });
        opened.await.inspect_err(|error| debug!("cannot use {}: {error}", path.display())).ok().flatten()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub async fn remove(self) {
        let path = self.path.clone();
        let removed = blocking(move || fs::remove_dir_all(&self.path)).await;
        if let Err(error) = removed {
            debug!("cannot remove {}, a later worker will: {error}", path.display());
        }
    }
}

fn open(path: PathBuf) -> io::Result<Option<KeptFolder>> {
    fs::create_dir_all(&path)?;
    let lock = File::options().create(true).truncate(false).write(true).open(path.join(LOCK))?;
    match lock.try_lock() {
        Ok(()) => Ok(Some(KeptFolder { path, _lock: lock })),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Removes the folders that no execution has used for long.
pub(crate) fn clear_away(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries.flatten().filter(is_old) {
        if let Some(kept) = open(entry.path())? {
            info!("removing {}, whose task was not tried again", kept.path.display());
            fs::remove_dir_all(&kept.path)?;
        }
    }
    Ok(())
}

/// By when a file in it was last made or replaced. Whatever else lies there is not ours to remove.
fn is_old(entry: &DirEntry) -> bool {
    let is_of_a_task = entry.file_name().to_str().is_some_and(|name| name.parse::<TaskId>().is_ok());
    let changed = entry.metadata().and_then(|found| found.modified());
    is_of_a_task
        && changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > KEPT_FOR))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn one_execution_at_a_time_has_the_folder_and_it_goes_when_none_came_for_long() {
        let folder = tempfile::tempdir().unwrap();
        let [old, new, used, strange] = ["1-0", "1-1", "1-2", "photos"].map(|name| folder.path().join(name));
        for path in [&old, &new] {
            open(path.clone()).unwrap().unwrap();
        }
        let held = open(used.clone()).unwrap();
        assert!(open(used.clone()).unwrap().is_none(), "held");
        fs::create_dir(&strange).unwrap();
        let long_ago = SystemTime::now() - KEPT_FOR - Duration::from_secs(60);
        for path in [&old, &used, &strange] {
            File::open(path).unwrap().set_modified(long_ago).unwrap();
        }

        clear_away(folder.path()).unwrap();

        assert_eq!([&old, &new, &used, &strange].map(|path| path.exists()), [false, true, true, true]);
        drop(held);
    }
}
