//! Places where a test can kill the whole process, as `kill -9` would, or stop it. Absent from release builds.
//!
//! `VODMILL_FAILPOINT=claim.before:2` kills the process at the second time it is about to make a claim durable;
//! `claim.after:1` right after the first claim became durable. `VODMILL_FAILPOINT_ACTION=stop` stops it instead
//! (SIGSTOP), with its transaction open.

#[cfg(debug_assertions)]
pub fn reached(step: &str, moment: &str) {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: LazyLock<Option<(String, u64)>> = LazyLock::new(|| {
        let wanted = std::env::var("VODMILL_FAILPOINT").ok()?;
        let (name, times) = wanted.rsplit_once(':').unwrap_or((&wanted, "1"));
        Some((name.to_owned(), times.parse().unwrap_or(1)))
    });
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let Some((name, times)) = &*WANTED else { return };
    if name.strip_prefix(step).and_then(|rest| rest.strip_prefix('.')) != Some(moment) {
        return;
    }
    if SEEN.fetch_add(1, Ordering::SeqCst) + 1 == *times {
        let is_stop = std::env::var("VODMILL_FAILPOINT_ACTION").is_ok_and(|action| action == "stop");
        // SAFETY: raising a signal on ourselves touches no memory.
        unsafe { libc::raise(if is_stop { libc::SIGSTOP } else { libc::SIGKILL }) };
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_step: &str, _moment: &str) {}
