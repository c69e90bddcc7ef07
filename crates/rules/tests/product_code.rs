//! The checks a commit rests on can be taken away for the model's own tests. No product code does so.

use std::fs;
use std::path::{Path, PathBuf};

const CRATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const FOR_THE_MODEL_ONLY: [&str; 3] = ["decide_with", "without_fence", "without_lease_at_commit"];

#[test]
fn no_product_code_takes_a_check_away() {
    let sources: Vec<PathBuf> =
        other_crates().iter().flat_map(|krate| rust_files(&krate.join("src"))).collect();
    assert!(!sources.is_empty(), "the other crates were not found");

    for source in sources {
        let text = fs::read_to_string(&source).expect("a source can be read");
        for name in FOR_THE_MODEL_ONLY {
            assert!(!text.contains(name), "{} uses {name}", source.display());
        }
    }
}

fn other_crates() -> Vec<PathBuf> {
    entries(Path::new(CRATES)).into_iter().filter(|path| !path.ends_with("rules")).collect()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|path| path.is_dir());
    let below = folders.iter().flat_map(|folder| rust_files(folder));
    files.iter().filter(|path| path.extension().is_some_and(|e| e == "rs")).cloned().chain(below).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    entries.map(|entry| entry.expect("a folder can be read").path()).collect()
}
