//! Attacks over real HTTP on a real server: one file for each target. After each, honest work goes on.

mod bounds;
mod content;
mod forged;
mod forgotten;
mod hostile;
mod lease;
mod lies;
mod load;
mod local;
mod pages;
mod quota;
mod requests;
mod results;
mod sessions;
mod submissions;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Every file below a folder, with its content.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(tree(&entry.path())),
            false => drop(found.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    found
}
