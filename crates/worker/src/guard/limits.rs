//! What a command may use. The kernel enforces it per process, not over the whole tree; the
//! guard sees to the working directory.

use std::io;

use serde::{Deserialize, Serialize};

/// `None` leaves what the worker itself has. A hard limit of the worker is never raised.
///
/// Core dumps are always switched off: a crashing encoder would fill the disk with its frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Private writable memory (`RLIMIT_DATA`): heap, anonymous mappings and thread stacks at their full
    /// size. Allocations beyond it fail. Not the address space, of which ffmpeg and GPU drivers reserve
    /// far more than they touch; where `RLIMIT_DATA` means the old `brk` heap only, it is the address
    /// space after all.
    ///
    /// The guard looks several times a second at what the command has in memory and in no file, however it got it, and
    /// ends a command that has clearly more.
    pub memory_bytes: Option<u64>,
    /// CPU time. SIGXCPU at the limit, SIGKILL two seconds of CPU later.
    pub cpu_seconds: Option<u64>,
    /// Size of any one file. SIGXFSZ on the write that would pass it.
    pub file_bytes: Option<u64>,
    /// Descriptors. Opening more fails.
    pub open_files: Option<u64>,
    /// Size of all files in its working directory together, or the room they take if that is more. The guard looks once a
    /// second and at the end, and ends a command that is over it, or whose folders it cannot look into.
    pub folder_bytes: Option<u64>,
    /// Of the command itself, not of what it starts. The guard looks several times a second, and ends a command that has
    /// more.
    pub threads: Option<u64>,
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

#[cfg(target_os = "linux")]
const MEMORY: Resource = libc::RLIMIT_DATA;
#[cfg(not(target_os = "linux"))]
const MEMORY: Resource = libc::RLIMIT_AS;

const CPU_SECONDS_TO_REACT: u64 = 2;

impl Limits {
    /// Limits the calling process. Runs between fork and exec: system calls only.
    pub(super) fn apply(&self) -> io::Result<()> {
        lower(libc::RLIMIT_CORE, 0, 0)?;
        if let Some(bytes) = self.memory_bytes {
            lower(MEMORY, bytes, bytes)?;
        }
        if let Some(seconds) = self.cpu_seconds {
            lower(libc::RLIMIT_CPU, seconds, seconds.saturating_add(CPU_SECONDS_TO_REACT))?;
        }
        if let Some(bytes) = self.file_bytes {
            lower(libc::RLIMIT_FSIZE, bytes, bytes)?;
        }
        if let Some(files) = self.open_files {
            lower(libc::RLIMIT_NOFILE, files, files)?;
        }
        Ok(())
    }
}

fn lower(resource: Resource, soft: u64, hard: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the result and outlives the call.
    check(unsafe { libc::getrlimit(resource, &raw mut limit) })?;
    let most = limit.rlim_max;
    limit = libc::rlimit { rlim_cur: most.min(soft), rlim_max: most.min(hard) };
    // SAFETY: `limit` is initialised and only read.
    check(unsafe { libc::setrlimit(resource, &raw const limit) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
