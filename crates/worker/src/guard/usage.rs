//! What a command and its descendants used.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    /// Of the largest single process, not the sum; never below what the guard itself takes, a few megabytes,
    /// because the command begins as a copy of it.
    pub peak_memory_bytes: u64,
}

impl Usage {
    pub fn cpu(&self) -> Duration {
        Duration::from_micros(self.user_us.saturating_add(self.system_us))
    }
}

/// Covers the descendants that were waited for, by the guard or by their own parent. One whose parent ignores
/// SIGCHLD is not counted by the kernel.
pub(super) fn of_reaped_children() -> Usage {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a valid place for the result; all zeroes, as it stays on failure, is a valid
    // `rusage`.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    Usage {
        user_us: micros(usage.ru_utime),
        system_us: micros(usage.ru_stime),
        peak_memory_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(MAXRSS_UNIT),
    }
}

#[cfg(target_vendor = "apple")]
const MAXRSS_UNIT: u64 = 1;
#[cfg(not(target_vendor = "apple"))]
const MAXRSS_UNIT: u64 = 1024;

fn micros(time: libc::timeval) -> u64 {
    let whole = u64::try_from(time.tv_sec).unwrap_or(0).saturating_mul(1_000_000);
    whole.saturating_add(u64::try_from(time.tv_usec).unwrap_or(0))
}
