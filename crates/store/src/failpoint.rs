//! Places where a test can kill the whole process, as `kill -9` would, or stop it. Absent from release builds.
//!
//! `VODMILL_FAILPOINT=claim.before:2` kills the process at the second time it is about to make a claim durable;
//! `claim.after:1` right after the first claim became durable. `VODMILL_FAILPOINT_ACTION=stop` stops it instead
//! (SIGSTOP), with its transaction open. `VODMILL_FAILPOINT_ACTION=FILE`, at places between transactions, makes that file
//! and waits until somebody has removed it, while all else in the process goes on.

#[cfg(debug_assertions)]
pub fn reached(step: &str, moment: &str) {
    if is_now(step, moment) {
        let is_stop = action().is_some_and(|action| action == "stop");
        // SAFETY: raising a signal on ourselves touches no memory.
        unsafe { libc::raise(if is_stop { libc::SIGSTOP } else { libc::SIGKILL }) };
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
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
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

#[cfg(not(debug_assertions))]
pub fn reached(_step: &str, _moment: &str) {}

#[cfg(not(debug_assertions))]
pub async fn between(_step: &str, _moment: &str) {}
