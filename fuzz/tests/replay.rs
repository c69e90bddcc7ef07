//! Each target on its corpus, and on a moment of seeded mutations. `make fuzz` looks longer, guided by coverage.
//!
//! A failure keeps its input in `target/fuzz-failures`, to be made smaller and added to the corpus.

#![allow(clippy::unwrap_used)]

use fuzz::mutate::Mutator;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = root().join("corpus").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|_| panic!("{} is missing", folder.display()));
    let mut inputs: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    inputs.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// The quoted words of a dictionary, as libFuzzer has them.
fn words(name: &str) -> Vec<Vec<u8>> {
    let text = fs::read_to_string(root().join(format!("dictionaries/{name}.dict"))).unwrap_or_default();
    let quoted = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    quoted.map(|word| word.replace("\\\"", "\"").replace("\\\\", "\\").into_bytes()).collect()
}

/// How long each target is mutated: VODMILL_FUZZ_SECONDS, or one second.
fn moment() -> Duration {
    let seconds = std::env::var("VODMILL_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs_f64(seconds.unwrap_or(1.0))
}

fn holds(name: &str, input: &[u8], what: &str) {
    if catch_unwind(AssertUnwindSafe(|| fuzz::run(name, input))).is_err() {
        let folder = root().join("../target/fuzz-failures");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join(name);
        fs::write(&file, input).unwrap();
        panic!("{name} breaks its promise on {what}; the input is in {}", file.display());
    }
}

fn survives(name: &str) {
    let corpus = corpus(name);
    for (path, input) in &corpus {
        holds(name, input, &path.display().to_string());
    }
    let seed = std::env::var("VODMILL_FUZZ_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let seeds = corpus.into_iter().map(|(_, input)| input).collect();
    let mut mutator = Mutator::new(seed, seeds, words(name));
    let (begun, mut round) = (Instant::now(), 0);
    while begun.elapsed() < moment() {
        round += 1;
        holds(name, &mutator.next_input(), &format!("round {round} of seed {seed}"));
    }
    assert!(
        round >= 20,
        "{name}: only {round} inputs in {:?}: the target is too slow to be of use",
        moment()
    );
    println!("{name}: {round} inputs");
}

macro_rules! targets {
    ($($name:ident),+ $(,)?) => {
        $(#[test] fn $name() { survives(stringify!($name)) })+

        #[test]
        fn every_target_is_tested_and_has_a_program() {
            let known: Vec<_> = fuzz::TARGETS.iter().map(|(name, ..)| *name).collect();
            assert_eq!(known, [$(stringify!($name)),+]);
            let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
            for name in known {
                assert!(root().join(format!("fuzz_targets/{name}.rs")).is_file(), "fuzz_targets/{name}.rs");
                assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name} is no [[bin]]");
            }
        }
    };
}

targets![
    mp4,
    mp4_cut,
    segment,
    ts,
    playlist,
    webvtt,
    probe,
    settings,
    spec,
    archive,
    tus_metadata,
    range,
    lease_token,
    names,
    requests,
];
