//! Folders for parsers that read or write files. In memory where the machine has such a place.

use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A folder with a neighbour that nothing in it may reach.
pub struct Scratch {
    outer: TempDir,
}

/// What lies in the neighbour. It must never turn up anywhere else.
pub const SECRET: &[u8] = b"THE-NEIGHBOURS-SECRET";

impl Scratch {
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let outer = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let scratch = Scratch { outer: outer.expect("a temporary folder") };
        fs::write(scratch.outer.path().join("secret"), SECRET).expect("a file");
        fs::create_dir(scratch.folder()).expect("a folder");
        scratch
    }

    pub fn folder(&self) -> PathBuf {
        self.outer.path().join("own")
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.folder().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
        fs::write(path, content).expect("a file");
    }

    /// The neighbour is as it was, and nothing was added beside it.
    pub fn is_untouched(&self) {
        let names = fs::read_dir(self.outer.path()).expect("a folder").flatten();
        let mut names: Vec<_> = names.map(|entry| entry.file_name()).collect();
        names.sort();
        assert_eq!(names, ["own", "secret"], "something was written outside of the folder");
        assert_eq!(fs::read(self.outer.path().join("secret")).expect("the secret"), SECRET);
    }
}

/// All files below a folder, with what they hold.
pub fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder").flatten() {
            let kind = entry.file_type().expect("a type");
            assert!(kind.is_dir() || kind.is_file(), "{:?} is neither a file nor a folder", entry.path());
            match kind.is_dir() {
                true => folders.push(entry.path()),
                false => found.push((entry.path(), fs::read(entry.path()).expect("a file"))),
            }
        }
    }
    found
}
