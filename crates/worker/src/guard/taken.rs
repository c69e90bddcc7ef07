//! What a command takes beside what the kernel limits: threads, and memory that it has made read-only or shared, which
//! `RLIMIT_DATA` does not count.

/// As `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    /// That is there, in memory or swapped out, and in no file.
    pub memory_bytes: u64,
    pub threads: u64,
}

impl Taken {
    /// `None` for a process that is gone, and on systems without `/proc`.
    pub fn by(pid: i32) -> Option<Self> {
        std::fs::read_to_string(format!("/proc/{pid}/status")).ok().map(|status| Taken::parse(&status))
    }

    fn parse(status: &str) -> Self {
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0)
        };
        let kibibytes: u64 = ["RssAnon", "RssShmem", "VmSwap"].map(number).iter().sum();
        Taken { memory_bytes: kibibytes << 10, threads: number("Threads") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_without_a_file_and_threads_are_counted() {
        let status = "Name:\tThreads: 9\nVmRSS:\t  999 kB\nRssAnon:\t     100 kB\nRssFile:\t 50 kB\nRssShmem:\t 20 kB\n\
                      VmSwap:\t       3 kB\nThreads:\t7\n";

        assert_eq!(Taken::parse(status), Taken { memory_bytes: 123 << 10, threads: 7 });
        assert_eq!(Taken::parse(""), Taken { memory_bytes: 0, threads: 0 });
    }
}
