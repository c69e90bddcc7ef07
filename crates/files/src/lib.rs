//! Where files are kept: a file under its final name is complete.
//!
//! ```text
//! <root>/<execution>/…     what one execution made, from just before its commit until its job is over
//! ```
//!
//! An execution writes where only it writes and moves the whole at once, so that one that lost its lease can overwrite
//! nothing. Whatever is under its final name is on the disk and not only on the way there.
//!
//! [`Bucket`] keeps files in an object store, where any machine can reach them; [`Place`] is one file, here or there.

pub mod bucket;
mod place;
mod reserve;
mod space;
mod step;
mod tree;
mod whole;

pub use bucket::Bucket;
pub use place::Place;
pub use reserve::Reserve;
pub use space::space;
pub use step::Step;
pub use tree::{Tree, seal};
pub use whole::{first, link, place, read_through, replace, sync_all};

use rules::ExecutionId;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A folder on this machine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Files {
    root: PathBuf,
}

impl Files {
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Files { root: root.into() }
    }

    /// Where what `execution` made is, once it is kept.
    pub fn folder(&self, execution: &str) -> PathBuf {
        self.root.join(execution)
    }

    /// Moves a folder to the execution's own place, where nothing is written again. When this returns, a loss of power cannot undo it.
    pub fn keep(&self, execution: ExecutionId, made: &Path) -> io::Result<()> {
        seal(made)?;
        sync_all(made)?;
        fs::create_dir_all(&self.root)?;
        let place = self.folder(&execution.to_string());
        match fs::rename(made, &place) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => whole::copy(made, &place)?,
            moved => moved?,
        }
        whole::sync(&self.root)
    }

    /// Removes everything but what these executions made. A folder that is already gone is no error.
    pub fn remove_all_but(&self, kept: &[String]) -> io::Result<()> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(|name| kept.iter().any(|kept| kept == name)) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

/// Removes a file or a whole folder, if it is there. A folder's mode does not keep its owner from that.
pub fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path).or_else(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => unlock(path).and_then(|()| fs::remove_dir_all(path)),
            _ => Err(error),
        }),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Lets the owner look into a folder and all below it, and change them.
fn unlock(folder: &Path) -> io::Result<()> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rules::{Fence, JobId, TaskId, Token};

    fn execution(token: i64) -> ExecutionId {
        ExecutionId { task: TaskId::new(JobId(1), 0), fence: Fence(1), token: Token(token) }
    }

    #[test]
    fn what_an_execution_made_is_kept_whole_and_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path().join("parts"));
        let made = |text: &str| {
            let made = folder.path().join("made");
            fs::create_dir_all(made.join("720p")).unwrap();
            fs::write(made.join("720p/seg-00001.m4s"), text).unwrap();
            made
        };

        files.keep(execution(1), &made("first")).unwrap();
        let again = files.keep(execution(1), &made("second"));

        assert!(again.is_err(), "its place is taken");
        let kept = files.folder(&execution(1).to_string()).join("720p/seg-00001.m4s");
        assert_eq!(fs::read_to_string(kept).unwrap(), "first");
        files.keep(execution(2), &made("of the same number")).unwrap();
    }

    #[test]
    fn only_what_is_named_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::at(folder.path());
        for name in ["1-0.1", "1-1.1", "1-1.2"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }

        files.remove_all_but(&["1-1.2".into()]).unwrap();
        Files::at(folder.path().join("nowhere")).remove_all_but(&[]).unwrap();

        let left: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["1-1.2"]);
    }
}
