//! How much is measured.

/// More calls make steadier figures and longer runs.
#[derive(Debug, Clone)]
pub struct Sizes {
    /// Interleaved repetitions of which the median counts.
    pub rounds: usize,
    /// Calls in a round, by how many tasks each takes: 1, 100, 1000.
    pub calls: [usize; 3],
    /// Tasks drained in a round in batches, and one at a time.
    pub drained: usize,
    pub drained_singly: usize,
    /// Jobs of one task drained in a round.
    pub drained_jobs: usize,
    /// Submissions on an idle system.
    pub wakes: usize,
    pub fan_ins: usize,
    pub fan_in_segments: u32,
    /// READY tasks behind which claims are measured, and finished ones.
    pub backlogs: Vec<usize>,
    pub history: usize,
    pub backlog_claims: usize,
    pub leases: usize,
}

impl Sizes {
    pub fn full() -> Self {
        Sizes {
            rounds: 5,
            calls: [200, 30, 6],
            drained: 40_000,
            drained_singly: 4_000,
            drained_jobs: 4_000,
            wakes: 200,
            fan_ins: 40,
            fan_in_segments: 600,
            backlogs: vec![1_000, 100_000, 1_000_000],
            history: 1_000_000,
            backlog_claims: 40,
            leases: 10_000,
        }
    }

    pub fn quick() -> Self {
        Sizes {
            rounds: 3,
            calls: [60, 10, 3],
            drained: 10_000,
            drained_singly: 1_000,
            drained_jobs: 1_000,
            wakes: 50,
            fan_ins: 10,
            backlogs: vec![1_000, 100_000],
            history: 0,
            backlog_claims: 20,
            ..Sizes::full()
        }
    }

    /// For tests: every part runs, no figure means anything.
    pub fn tiny() -> Self {
        Sizes {
            rounds: 1,
            calls: [2, 1, 1],
            drained: 200,
            drained_singly: 40,
            drained_jobs: 20,
            wakes: 2,
            fan_ins: 1,
            fan_in_segments: 20,
            backlogs: vec![300],
            history: 300,
            backlog_claims: 1,
            leases: 100,
        }
    }
}
