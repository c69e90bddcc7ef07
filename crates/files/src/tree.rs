//! A folder whose files are written once and never changed again.
//!
//! Names lead to nothing outside of it, and through no symbolic link, whoever put one there. Nothing here opens a file for
//! writing that exists.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, linkat, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Everybody may read it, and nobody may write it.
const READ_ONLY: u32 = 0o444;

#[derive(Debug)]
pub struct Tree {
    root: OwnedFd,
}

impl Tree {
    /// A folder that is there. Links may lead to the folder itself, for that is the operator's choice.
    pub fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);
        Ok(Tree { root: openat(CWD, root, flags, Mode::empty())? })
    }

    /// As [`Tree::open`]; makes the folder if it is missing.
    pub fn make(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        Tree::open(root)
    }

    /// Opens a file for reading.
    pub fn read(&self, name: &str) -> io::Result<File> {
        let (folder, last) = self.folder_of(name, false)?;
        // A pipe would wait for a writer.
        let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = openat(&folder, last, flags, Mode::empty()).map_err(|error| match error {
            Errno::LOOP => io::Error::new(io::ErrorKind::InvalidInput, "it is a symbolic link"),
            error => error.into(),
        });
        let file = File::from(opened?);
        match file.metadata()?.is_file() {
            true => Ok(file),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        }
    }

    /// Makes a file that is not there yet, for everybody to read.
    pub fn create_new(&self, name: &str, content: &[u8]) -> io::Result<()> {
        let mut file = self.new_file(name)?;
        file.write_all(content)?;
        file.set_permissions(Permissions::from_mode(READ_ONLY))
    }

    /// Gives a file of another tree a second name here, or copies it where the file system has no second names.
    pub fn link(&self, from: &Tree, its_name: &str, name: &str) -> io::Result<()> {
        let (its_folder, its_last) = from.folder_of(its_name, false)?;
        let (folder, last) = self.folder_of(name, true)?;
        match linkat(&its_folder, its_last, &folder, last, AtFlags::empty()) {
            Ok(()) => {}
            Err(error @ (Errno::EXIST | Errno::NOENT)) => return Err(error.into()),
            Err(_) => {
                let mut file = self.new_file(name)?;
                io::copy(&mut from.read(its_name)?, &mut file)?;
                return file.set_permissions(Permissions::from_mode(READ_ONLY));
            }
        }
        // A link gives a symbolic link itself a second name, and what it leads to none.
        let found = statat(&folder, last, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            return Ok(());
        }
        unlinkat(&folder, last, AtFlags::empty())?;
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{its_name} is not a regular file")))
    }

    fn new_file(&self, name: &str) -> io::Result<File> {
        let (folder, last) = self.folder_of(name, true)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(&folder, last, flags, Mode::from_raw_mode(0o644))?))
    }

    /// The folder that a file is in, and its name there.
    fn folder_of<'n>(&self, name: &'n str, make: bool) -> io::Result<(OwnedFd, &'n str)> {
        let mut folder = self.root.as_fd().try_clone_to_owned()?;
        let mut parts = name.split('/').peekable();
        while let Some(part) = parts.next() {
            if matches!(part, "" | "." | "..") || part.contains('\0') {
                return Err(io::Error::new(io::ErrorKind::InvalidFilename, "it leads out of its folder"));
            }
            if parts.peek().is_none() {
                return Ok((folder, part));
            }
            if make {
                match mkdirat(&folder, part, Mode::from_raw_mode(0o755)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            folder = openat(&folder, part, FOLDER, Mode::empty())?;
        }
        Err(io::ErrorKind::InvalidFilename.into())
    }
}

/// Takes from all files below a folder the right to be written. What is neither file nor folder is refused.
pub fn seal(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (kind, path) = (entry.file_type()?, entry.path());
        if kind.is_dir() {
            seal(&path)?;
        } else if kind.is_file() {
            fs::set_permissions(&path, Permissions::from_mode(READ_ONLY))?;
        } else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{} is neither a file nor a folder", path.display()),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn text(mut file: File) -> String {
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn a_file_is_made_once_and_read_only() {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::make(&folder.path().join("tree")).unwrap();

        tree.create_new("a/b", b"first").unwrap();
        let again = tree.create_new("a/b", b"second").unwrap_err();

        assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(text(tree.read("a/b").unwrap()), "first");
        let mode = fs::metadata(folder.path().join("tree/a/b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }

    #[test]
    fn no_name_and_no_link_leads_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tree");
        let tree = Tree::make(&path).unwrap();
        fs::write(folder.path().join("secret"), "secret").unwrap();
        symlink(folder.path(), path.join("up")).unwrap();
        symlink("../secret", path.join("link")).unwrap();

        for name in ["../secret", "/etc/passwd", "up/secret", "link", "a/../../secret", "", "a//b", "."] {
            assert!(tree.read(name).is_err(), "{name}");
            assert!(tree.create_new(name, b"x").is_err(), "{name}");
            tree.create_new(&format!("own-{}", name.len()), b"x").ok();
            assert!(tree.link(&tree, name, "new").is_err(), "{name}");
        }

        assert_eq!(fs::read_to_string(folder.path().join("secret")).unwrap(), "secret");
        assert!(!path.join("new").exists() && fs::symlink_metadata(path.join("new")).is_err());
    }

    #[test]
    fn a_second_name_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        let (from, to) = (Tree::make(&from).unwrap(), Tree::make(&to).unwrap());
        from.create_new("a/b", b"text").unwrap();

        to.link(&from, "a/b", "c/d").unwrap();

        assert_eq!(text(to.read("c/d").unwrap()), "text");
        assert_eq!(to.link(&from, "a/b", "c/d").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_sealed_folder_has_no_links_and_nothing_to_write() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("a")).unwrap();
        fs::write(folder.path().join("a/b"), "text").unwrap();

        seal(folder.path()).unwrap();
        let mode = fs::metadata(folder.path().join("a/b")).unwrap().permissions().mode();
        symlink("b", folder.path().join("a/link")).unwrap();

        assert_eq!(mode & 0o777, 0o444);
        assert!(seal(folder.path()).is_err());
        crate::remove(folder.path()).unwrap();
    }
}
