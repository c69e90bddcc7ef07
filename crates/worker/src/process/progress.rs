//! What others may see of a running command: the lease keeper whether it moves, the page how far it is.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::capture::text;

const LINE_LIMIT: usize = 200;

/// A handle on shared state; clones see the same.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    beats: AtomicU64,
    /// How many hold it.
    holds: AtomicU64,
    /// The bits of an `f64` plus one, so that zero means none.
    fraction: AtomicU64,
    last_line: Mutex<String>,
}

impl Progress {
    /// Grows while the command makes progress. A lease is renewed only when it has grown since the last
    /// renewal.
    pub fn beats(&self) -> u64 {
        self.shared.beats.load(Ordering::Relaxed)
    }

    pub fn beat(&self) {
        if self.shared.holds.load(Ordering::Relaxed) == 0 {
            self.shared.beats.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// While it is held, no beat counts: what waits for its input does not move, whatever it says.
    pub fn hold(&self) -> Held {
        self.shared.holds.fetch_add(1, Ordering::Relaxed);
        Held(self.clone())
    }

    /// Between 0 and 1, if the command says how far it is.
    pub fn fraction(&self) -> Option<f64> {
        self.shared.fraction.load(Ordering::Relaxed).checked_sub(1).map(f64::from_bits)
    }

    /// Anything outside 0 to 1 is ignored.
    pub fn set_fraction(&self, fraction: f64) {
        if (0.0..=1.0).contains(&fraction) {
            self.shared.fraction.store(fraction.to_bits() + 1, Ordering::Relaxed);
        }
    }

    /// The beginning of the last line the command wrote to either stream that was not blank.
    pub fn last_line(&self) -> String {
        self.shared.last_line.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note(&self, line: &[u8]) {
        let line = text(line);
        let line = line.trim();
        if !line.is_empty() {
            let kept = &line[..line.floor_char_boundary(LINE_LIMIT)];
            kept.clone_into(&mut self.shared.last_line.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Takes a fraction from a line like `progress=42%` or `progress=0.42`. ffmpeg's `progress=continue` is
    /// none.
    pub(super) fn note_fraction(&self, line: &[u8]) {
        let value =
            line.trim_ascii().strip_prefix(b"progress=").and_then(|value| std::str::from_utf8(value).ok());
        let fraction = value.and_then(|value| match value.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok().map(|percent| percent / 100.0),
            None => value.parse().ok(),
        });
        if let Some(fraction) = fraction {
            self.set_fraction(fraction);
        }
    }
}

/// Lets beats count again when dropped.
#[derive(Debug)]
pub struct Held(Progress);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.shared.holds.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_read_from_the_lines_that_hold_one() {
        let after = |line: &str| {
            let progress = Progress::default();
            progress.note_fraction(line.as_bytes());
            progress.fraction()
        };

        assert_eq!(after("progress=42%"), Some(0.42));
        assert_eq!(after("progress=0.25 "), Some(0.25));
        assert_eq!(after("progress=0"), Some(0.0));
        assert_eq!(after("progress=100%"), Some(1.0));
        for none in
            ["progress=continue", "progress=101%", "progress=-1", "progress=NaN", "x progress=1", "progress="]
        {
            assert_eq!(after(none), None, "{none}");
        }
    }

    #[test]
    fn nothing_moves_while_it_is_held() {
        let progress = Progress::default();

        let (one, other) = (progress.hold(), progress.hold());
        progress.beat();
        drop(one);
        progress.beat();
        assert_eq!(progress.beats(), 0);
        drop(other);
        progress.beat();

        assert_eq!(progress.beats(), 1);
    }

    #[test]
    fn the_last_line_is_short_and_never_blank() {
        let progress = Progress::default();

        progress.note("ü".repeat(LINE_LIMIT).as_bytes());
        progress.note(b"  ");

        assert_eq!(progress.last_line(), "ü".repeat(LINE_LIMIT / 2));
    }
}
