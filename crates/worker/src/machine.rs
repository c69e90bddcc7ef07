//! How much the machine has left.

use std::io;
use std::path::Path;

use wire::http::Load;

/// As the heartbeat tells it; what cannot be found out is zero.
pub(crate) fn load(folder: &Path) -> Load {
    Load {
        cpu: waiting_processes().unwrap_or_default(),
        memory_free_bytes: memory_free().unwrap_or_default(),
        disk_free_bytes: disk_free(folder).unwrap_or_default(),
    }
}

/// What programs can still be given without swapping, in bytes; none where the system does not say.
pub(crate) fn memory_free() -> Option<u64> {
    available(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// What all programs together can be given, in bytes: of the machine, or of the container this runs in.
pub(crate) fn memory_total() -> Option<u64> {
    const OF_CONTAINER: [&str; 2] =
        ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
    let of_container = OF_CONTAINER.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let of_container = of_container.filter_map(|text| text.trim().parse().ok());
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    of_container.chain(kibibytes(&meminfo, "MemTotal:")).min()
}

fn available(meminfo: &str) -> Option<u64> {
    kibibytes(meminfo, "MemAvailable:")
}

/// In bytes.
fn kibibytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// What this user may still write to the disk that holds `folder`, in bytes. A folder that is not there yet will be on
/// the disk of the one it is made in.
pub(crate) fn disk_free(folder: &Path) -> io::Result<u64> {
    let there = folder.ancestors().find(|above| above.exists()).unwrap_or(Path::new("."));
    files::space(there).map(|(_, free)| free)
}

fn waiting_processes() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_from_the_line_that_says_so() {
        let meminfo =
            "MemTotal:       16303428 kB\nMemFree:          200000 kB\nMemAvailable:    8000000 kB\n";

        assert_eq!(available(meminfo), Some(8_000_000 * 1024));
        assert_eq!(available("MemFree: 1 kB\n"), None);
        assert_eq!(available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn a_folder_that_is_not_there_yet_has_the_room_of_the_one_above() {
        let folder = tempfile::tempdir().unwrap();

        let free = disk_free(&folder.path().join("not/there/yet")).unwrap();

        assert!(free > 0);
    }
}
