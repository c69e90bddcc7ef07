//! Fuzz targets: one function for each parser of bytes that Vodmill does not trust.
//!
//! A target panics if its parser breaks a promise: round trips, offsets inside the input, bounded output, files only
//! below their folder. [`run`] adds two promises that hold for all of them: bounded memory and bounded time.
//!
//! - `tests/replay.rs` replays the corpora and mutates them for a moment, in `make test`.
//! - `fuzz_targets/` has a program for each target that libFuzzer drives by coverage: `make fuzz TARGET=mp4`.
//!
//! To add a target: write the function, name it in [`TARGETS`], copy one of `fuzz_targets/` and its `[[bin]]`, and put
//! some inputs into `corpus/NAME`. An input that broke a promise stays in the corpus for ever.

mod containers;
mod memory;
pub mod mutate;
mod probing;
mod requests;
mod scratch;
mod specs;
mod texts;

pub use containers::{mp4, mp4_cut, segment, ts};
pub use probing::probe;
pub use requests::{archive, lease_token, names, range, requests, tus_metadata};
pub use specs::{settings, spec};
pub use texts::{playlist, webvtt};

use std::time::{Duration, Instant};

pub type Target = fn(&[u8]);

/// Name, function, and the memory that its parser may take for an input of a few kilobytes.
pub const TARGETS: &[(&str, Target, usize)] = &[
    // A fragment may have 2^20 samples.
    ("mp4", mp4, 128 << 20),
    ("mp4_cut", mp4_cut, 128 << 20),
    ("segment", segment, 128 << 20),
    ("ts", ts, 32 << 20),
    ("playlist", playlist, 64 << 20),
    ("webvtt", webvtt, 32 << 20),
    ("probe", probe, 128 << 20),
    ("settings", settings, 32 << 20),
    ("spec", spec, 32 << 20),
    ("archive", archive, 256 << 20),
    ("tus_metadata", tus_metadata, 1 << 20),
    ("range", range, 1 << 20),
    ("lease_token", lease_token, 1 << 20),
    ("names", names, 1 << 20),
    ("requests", requests, 8 << 20),
];

/// Far above what any input needs, so that a busy machine is not mistaken for a slow parser.
const LONGEST: Duration = Duration::from_secs(20);

/// Runs one target on one input; panics if the parser breaks a promise.
pub fn run(name: &str, data: &[u8]) {
    let (_, target, memory) =
        TARGETS.iter().find(|(known, ..)| *known == name).expect("a target of this name");
    let begun = Instant::now();
    let peak = memory::peak(|| target(data));
    let limit = memory + 64 * data.len();
    assert!(peak <= limit, "{name}: {} bytes of input took {peak} bytes of memory", data.len());
    let took = begun.elapsed();
    assert!(took < LONGEST, "{name}: {} bytes of input took {took:?}", data.len());
}
