//! Files and folders that are there as a whole or not at all, also after a loss of power.

use crate::bucket::Written;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

/// How long a file is, and its hash: all of it is read.
pub fn read_through(path: &Path) -> io::Result<Written> {
    let (mut file, mut digest, mut bytes, mut block) =
        (File::open(path)?, Sha256::new(), 0, vec![0; 256 << 10]);
    loop {
        match file.read(&mut block)? {
            0 => return Ok(Written { bytes, sha256: hex::encode(digest.finalize()) }),
            read => {
                digest.update(&block[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Puts a file under its final name, in place of one that may be there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let (folder, name) = match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => (folder, name.to_string_lossy()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file")),
    };
    let unfinished = folder.join(format!(".{name}.unfinished"));
    let mut file = File::create(&unfinished)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    sync(folder)
}

/// Moves a folder that is on the disk to its final name, in place of one that may be there.
pub fn place(from: &Path, to: &Path) -> io::Result<()> {
    let above = to.parent().ok_or(io::ErrorKind::InvalidInput)?;
    crate::remove(to)?;
    fs::create_dir_all(above)?;
    fs::rename(from, to)?;
    sync(above)
}

/// The same file under a second name, or a copy where the file system has no second names.
pub fn link(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error),
        Err(_) => fs::copy(from, to).map(drop),
        Ok(()) => Ok(()),
    }
}

/// Puts a finished file under its final name unless one is there already; whether this one is there now. Whoever comes
/// first stays.
pub fn first(from: &Path, to: &Path) -> io::Result<bool> {
    let (folder, name) = match (to.parent(), to.file_name()) {
        (Some(folder), Some(name)) => (folder, name.to_string_lossy()),
        _ => return Err(io::Error::new(io::ErrorKind::InvalidInput, "not the name of a file")),
    };
    let linked = match fs::hard_link(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let copied = unfinished(folder, &name);
            let linked =
                fs::copy(from, &copied).and_then(|_| sync(&copied)).and_then(|()| fs::hard_link(&copied, to));
            crate::remove(&copied)?;
            linked
        }
        linked => linked,
    };
    match linked {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        linked => linked.and_then(|()| sync(folder)).map(|()| true),
    }
}

/// Of this process alone.
fn unfinished(folder: &Path, name: &str) -> std::path::PathBuf {
    folder.join(format!(".{name}.{}.unfinished", std::process::id()))
}

/// Waits until everything below a folder is on the disk.
pub fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync_all(&entry.path())?,
            false => sync(&entry.path())?,
        }
    }
    sync(folder)
}

pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// To another file system, under the final name only when whole.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let unfinished = to.with_extension("unfinished");
    crate::remove(&unfinished)?;
    copy_tree(from, &unfinished)?;
    sync_all(&unfinished)?;
    fs::rename(&unfinished, to)?;
    fs::remove_dir_all(from)
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (entry, to) = entry.map(|entry| (entry.path(), to.join(entry.file_name())))?;
        match entry.is_dir() {
            true => copy_tree(&entry, &to)?,
            false => fs::copy(&entry, &to).map(drop)?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("master.m3u8");

        replace(&path, b"old").unwrap();
        replace(&path, b"new").unwrap();

        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn whoever_comes_first_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b, to] = ["a", "b", "to"].map(|name| folder.path().join(name));
        fs::write(&a, "a").unwrap();
        fs::write(&b, "b").unwrap();

        assert!(first(&a, &to).unwrap());
        assert!(!first(&b, &to).unwrap());

        assert_eq!(fs::read_to_string(to).unwrap(), "a");
    }

    #[test]
    fn a_folder_moves_to_another_file_system_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/b/c"), "c").unwrap();

        copy(&from, &to).unwrap();

        assert_eq!(fs::read_to_string(to.join("a/b/c")).unwrap(), "c");
        assert!(!from.exists());
    }
}
