//! Places where a test can kill the whole process, as `kill -9` would, or stop it. Absent from release builds.
//!
//! `VODMILL_FAILPOINT=claim.before:2` kills the process at the second time it is about to make a claim durable;
//! `claim.after:1` right after the first claim became durable. `VODMILL_FAILPOINT_ACTION=stop` stops it instead
//! (SIGSTOP), with its transaction open. `die` ends the process as a crash does (SIGABRT) and leaves the supervisor of
//! `vodmill transcode` alive, and `exhaust` takes memory until the process dies of it: both are deaths of the work's making. `fill`
//! does so by writing to the memory, until the kernel kills the process: only in a memory cgroup with a limit.
//! `VODMILL_FAILPOINT_ACTION=FILE`, at places between transactions, makes that file and waits until somebody has removed it, while
//! all else in the process goes on.
//!
//! Who makes durable steps lists them by [`steps!`], and a test that all are killed.

use std::time::Duration;

/// The durable steps of a crate, `PruneWorkers` for `prune_workers`.
#[macro_export]
macro_rules! steps {
    ($(#[$told:meta])* $($step:ident),+ $(,)?) => {
        $(#[$told])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Step {
            $($step),+
        }

        impl Step {
            pub const ALL: &'static [Step] = &[$(Step::$step),+];

            /// `prune_workers` of `PruneWorkers`.
            pub fn name(self) -> String {
                $crate::name(&format!("{self:?}"))
            }
        }
    };
}

#[doc(hidden)]
pub fn name(step: &str) -> String {
    let mut name = String::new();
    for letter in step.chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}

#[cfg(debug_assertions)]
pub fn reached(step: &str, moment: &str) {
    if !is_now(step, moment) {
        return;
    }
    match action().as_deref() {
        Some("stop") => raise(libc::SIGSTOP),
        Some("die") => raise(libc::SIGABRT),
        Some("exhaust") => take_memory(0),
        Some("fill") => take_memory(1),
        _ => {
            // As a person does who kills the command: its supervisor dies too.
            if let Some(supervisor) = supervisor() {
                // SAFETY: sends a signal; touches no memory.
                unsafe { libc::kill(supervisor, libc::SIGKILL) };
            }
            raise(libc::SIGKILL);
        }
    }
}

#[cfg(debug_assertions)]
fn raise(signal: libc::c_int) {
    // SAFETY: raising a signal on ourselves touches no memory.
    unsafe { libc::raise(signal) };
}

/// The parent that would start this process again.
#[cfg(debug_assertions)]
fn supervisor() -> Option<i32> {
    std::env::var("VODMILL_SUPERVISED").ok()?.split_once(' ')?.0.parse().ok()
}

/// Takes memory until the process dies at its limit. With zeros it is only reserved, so that the machine does not suffer.
#[cfg(debug_assertions)]
fn take_memory(with: u8) {
    let mut taken: Vec<Vec<u8>> = Vec::new();
    loop {
        taken.push(vec![with; 64 << 20]);
        std::hint::black_box(&taken);
    }
}

/// As [`reached`], where no transaction is open.
#[cfg(debug_assertions)]
pub async fn between(step: &str, moment: &str) {
    if !is_now(step, moment) {
        return;
    }
    let Some(file) = action().map(std::path::PathBuf::from) else { return };
    let _ = std::fs::write(&file, "");
    while file.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[cfg(debug_assertions)]
fn action() -> Option<String> {
    std::env::var("VODMILL_FAILPOINT_ACTION").ok()
}

/// Whether this is the moment, and the time, that was asked for.
#[cfg(debug_assertions)]
fn is_now(step: &str, moment: &str) -> bool {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let wanted = std::env::var("VODMILL_FAILPOINT").ok()?;
        let (name, times) = wanted.rsplit_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), times.parse().unwrap_or(1)))
    });
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let Some((name, times)) = &*WANTED else { return false };
    name.strip_prefix(step).and_then(|rest| rest.strip_prefix('.')) == Some(moment)
        && SEEN.fetch_add(1, Ordering::SeqCst) + 1 == *times
}

/// By how many milliseconds a test has set this machine's clock: the text of the file that `VODMILL_CLOCK_FILE` names.
#[cfg(debug_assertions)]
pub fn wall_offset() -> i64 {
    use std::sync::LazyLock;
    static FILE: LazyLock<Option<std::path::PathBuf>> =
        LazyLock::new(|| std::env::var_os("VODMILL_CLOCK_FILE").map(Into::into));
    let text = FILE.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

#[cfg(not(debug_assertions))]
pub fn wall_offset() -> i64 {
    0
}

/// A span that a test may shorten by a variable, in seconds: what is done only after hours is done at once.
#[cfg(debug_assertions)]
pub fn shortened(variable: &str, usual: Duration) -> Duration {
    let seconds = std::env::var(variable).ok().and_then(|it| it.parse().ok());
    seconds.map_or(usual, Duration::from_secs_f64)
}

#[cfg(not(debug_assertions))]
pub fn shortened(_variable: &str, usual: Duration) -> Duration {
    usual
}

#[cfg(not(debug_assertions))]
pub fn reached(_step: &str, _moment: &str) {}

#[cfg(not(debug_assertions))]
pub async fn between(_step: &str, _moment: &str) {}
