//! The folder executions work in.
//!
//! ```text
//! <folder>/lock                      held while somebody moves in or clears away
//! <folder>/<worker>/lock             held as long as that worker lives
//! <folder>/<worker>/<execution>/     a working directory
//! <folder>/kept/<task>/              what an execution leaves for the next one; see `kept`
//! ```
//!
//! A worker's folder whose lock can be taken belongs to nobody: the kernel let go of it when its process
//! died.

use std::fs::{self, DirEntry, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rules::{ExecutionId, TaskId, WorkerId};
use tracing::{debug, info, warn};

use crate::kept;

const LOCK: &str = "lock";
const KEPT: &str = "kept";

/// Workers look for what others left more often than this.
const SETTLED: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(crate) struct Workshop {
    shared: PathBuf,
    own: PathBuf,
    /// Holds the lock until dropped.
    _lock: File,
}

impl Workshop {
    pub fn open(shared: &Path, worker: WorkerId) -> io::Result<Self> {
        fs::create_dir_all(shared)?;
        // Commands run elsewhere, so a relative path would mean another place to them.
        let shared = shared.canonicalize()?;
        let own = shared.join(worker.to_string());
        // Without it, a neighbour could take the new folder for a dead one's before its lock is held.
        let _moving_in = locked(&shared)?;
        fs::create_dir_all(&own)?;
        let lock = locked(&own)?;
        Ok(Workshop { shared, own, _lock: lock })
    }

    pub fn folder(&self, execution: ExecutionId) -> PathBuf {
        self.own.join(execution.to_string())
    }

    /// Where an execution leaves what the next one of its task continues from.
    pub fn kept_folder(&self, task: TaskId) -> PathBuf {
        self.shared.join(KEPT).join(task.to_string())
    }

    /// Removes what dead predecessors left behind, as far as it can be removed.
    pub fn clear_away(&self) -> io::Result<()> {
        let _clearing = locked(&self.shared)?;
        for entry in fs::read_dir(&self.shared)?.flatten().filter(is_a_workers) {
            if is_abandoned(&entry.path()) {
                info!("removing {}, left by a worker that is gone", entry.path().display());
                if let Err(error) = files::remove(&entry.path()) {
                    warn!("cannot remove {}: {error}; remove it by hand", entry.path().display());
                }
            }
        }
        kept::clear_away(&self.shared.join(KEPT))
    }

    /// Removes the worker's own folder.
    pub fn close(&self) -> io::Result<()> {
        files::remove(&self.own)
    }
}

/// What workers that are gone left in the folder they shared, and nobody has removed since. Changes nothing.
pub fn left_behind(shared: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(shared) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let left = entries.flatten().filter(|entry| is_a_workers(entry) && is_settled(entry));
    Ok(left.map(|entry| entry.path()).filter(|folder| is_abandoned(folder)).collect())
}

/// Made a while ago: its worker has had time to take the lock, and a later one to remove it.
fn is_settled(entry: &DirEntry) -> bool {
    let made = entry.metadata().and_then(|found| found.modified());
    made.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > SETTLED))
}

fn locked(folder: &Path) -> io::Result<File> {
    let file = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK))?;
    file.lock()?;
    Ok(file)
}

/// Whatever else lies in the folder is not ours to remove.
fn is_a_workers(entry: &DirEntry) -> bool {
    let is_named_so = entry.file_name().to_str().is_some_and(|name| name.parse::<WorkerId>().is_ok());
    is_named_so && entry.file_type().is_ok_and(|kind| kind.is_dir())
}

fn is_abandoned(folder: &Path) -> bool {
    match File::options().write(true).open(folder.join(LOCK)).map(|file| file.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock)) => false,
        // Killed between making the folder and its lock, or in the middle of closing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => true,
        Ok(Err(TryLockError::Error(error))) | Err(error) => {
            debug!("cannot tell whether {} is still in use: {error}", folder.display());
            false
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn open(folder: &Path) -> Workshop {
        Workshop::open(folder, WorkerId(Uuid::now_v7())).unwrap()
    }

    #[test]
    fn what_the_dead_left_is_removed_and_the_living_keep_theirs() {
        let folder = tempfile::tempdir().unwrap();
        let dead = open(folder.path());
        let dead_work = dead.own.join("1-0.1");
        fs::create_dir(&dead_work).unwrap();
        fs::write(dead_work.join("half.mp4"), "…").unwrap();
        let alive = open(folder.path());
        let (stranger, torn) =
            (folder.path().join("holiday"), folder.path().join(Uuid::now_v7().to_string()));
        fs::create_dir(&stranger).unwrap();
        fs::create_dir(&torn).unwrap();
        let left = dead.own.clone();
        drop(dead);

        open(folder.path()).clear_away().unwrap();

        assert!(!left.exists(), "nobody holds its lock");
        assert!(!torn.exists(), "killed before it had a lock");
        assert!(alive.own.exists());
        assert!(stranger.exists(), "not made by a worker");
    }

    /// The rest of the test, which has a thread of its own, meets files as a user without rights.
    #[cfg(target_os = "linux")]
    fn become_nobody() {
        // SAFETY: takes no pointers, and means the calling thread alone.
        unsafe { libc::setfsuid(65534) };
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_nobody_may_list_is_removed_and_what_cannot_be_removed_holds_up_nothing() {
        use std::os::unix::fs::PermissionsExt;
        let shared = tempfile::tempdir().unwrap();
        let folder = || shared.path().join(Uuid::now_v7().to_string());
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set_mode(shared.path(), 0o777);
        // Of another user, if this one is root.
        let foreign = folder();
        fs::create_dir_all(foreign.join("work")).unwrap();
        become_nobody();
        let hidden: Vec<PathBuf> = std::iter::repeat_with(folder).take(8).collect();
        for folder in &hidden {
            fs::create_dir_all(folder.join("work/hidden")).unwrap();
            fs::write(folder.join("work/hidden/half.mp4"), "…").unwrap();
            set_mode(&folder.join("work/hidden"), 0o300);
            set_mode(&folder.join("work"), 0o300);
        }

        open(shared.path()).clear_away().unwrap();

        let left: Vec<_> = hidden.iter().filter(|folder| folder.exists()).collect();
        assert_eq!(left, [] as [&PathBuf; 0]);
    }

    #[test]
    fn a_worker_that_leaves_takes_its_folder_along() {
        let folder = tempfile::tempdir().unwrap();
        let workshop = open(folder.path());

        workshop.close().unwrap();

        assert!(!workshop.own.exists());
        assert!(folder.path().exists());
    }
}
