//! Names of things. Each is its own type, so that a task cannot be passed for a job.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A job: one request for work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

/// A video: what jobs work on and viewers see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VideoId(pub i64);

/// One immutable output of a video.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GenerationId(pub i64);

/// A worker process: one *incarnation*, never reused after a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(pub Uuid);

/// Grows by one with each claim of a task; orders its executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub i64);

/// Random, new with each claim. A worker proves with it that its claim is the latest, also when a lossy
/// failover of the database has handed out the same [`Fence`] twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i64);

/// A task of a job. The job's number stands in the upper bits, so a job's tasks are neighbours in every index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub i64);

/// One attempt at a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId {
    pub task: TaskId,
    pub fence: Fence,
}

impl TaskId {
    const BITS: u32 = 20;
    /// How many tasks one job may have.
    pub const PER_JOB: i64 = 1 << Self::BITS;

    pub const fn new(job: JobId, ordinal: i64) -> Self {
        TaskId((job.0 << Self::BITS) | (ordinal & (Self::PER_JOB - 1)))
    }

    pub const fn job(self) -> JobId {
        JobId(self.0 >> Self::BITS)
    }

    /// Position within the job, from 0.
    pub const fn ordinal(self) -> i64 {
        self.0 & (Self::PER_JOB - 1)
    }

    /// First and last id a task of `job` can have.
    pub const fn range(job: JobId) -> (TaskId, TaskId) {
        (TaskId::new(job, 0), TaskId::new(job, Self::PER_JOB - 1))
    }
}

macro_rules! number {
    ($($type:ident),+) => {$(
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    )+};
}
number!(JobId, VideoId, GenerationId, WorkerId, Fence);

/// A token is a capability: it never shows itself in a log.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}-{}", self.job().0, self.ordinal()))
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TaskId({self})")
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.task, self.fence))
    }
}

/// A text that is no id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a {1}; it looks like {2}")]
pub struct BadId(String, &'static str, &'static str);

impl FromStr for JobId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let number: Option<i64> = text.parse().ok();
        number
            .filter(|n| (1..1 << (62 - TaskId::BITS)).contains(n))
            .map(JobId)
            .ok_or_else(|| BadId(text.chars().take(64).collect(), "job id", "42"))
    }
}

impl FromStr for TaskId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId(text.chars().take(64).collect(), "task id", "42-7");
        let (job, ordinal) = text.split_once('-').ok_or_else(bad)?;
        let job: JobId = job.parse().map_err(|_| bad())?;
        let ordinal: i64 = ordinal.parse().map_err(|_| bad())?;
        if !(0..Self::PER_JOB).contains(&ordinal) {
            return Err(bad());
        }
        Ok(TaskId::new(job, ordinal))
    }
}

impl FromStr for WorkerId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = |_| BadId(text.chars().take(64).collect(), "worker id", "a UUID");
        Uuid::parse_str(text).map(WorkerId).map_err(bad)
    }
}

/// Ids that have a written form travel in JSON as that form.
macro_rules! as_text {
    ($($type:ident),+) => {$(
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
                out.collect_str(self)
            }
        }
    )+};
}
as_text!(TaskId, ExecutionId);

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
    }
}

impl FromStr for ExecutionId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId(text.chars().take(64).collect(), "execution id", "42-7.1");
        let (task, fence) = text.rsplit_once('.').ok_or_else(bad)?;
        let fence = fence.parse().map_err(|_| bad())?;
        Ok(ExecutionId { task: task.parse().map_err(|_| bad())?, fence: Fence(fence) })
    }
}

impl<'de> Deserialize<'de> for ExecutionId {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_id_keeps_its_job_and_reads_back() {
        let id = TaskId::new(JobId(42), 7);

        assert_eq!(id.job(), JobId(42));
        assert_eq!(id.ordinal(), 7);
        assert_eq!(id.to_string(), "42-7");
        assert_eq!("42-7".parse(), Ok(id));
        assert!(TaskId::range(JobId(42)).1 < TaskId::new(JobId(43), 0));
    }

    #[test]
    fn nonsense_is_no_id() {
        for text in ["", "-1", "0", "x", "99999999999999999999", "8796093022208", "1-1"] {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        for text in ["", "7", "7-", "-7", "7-1048576", "7--1", "7-1-1"] {
            assert!(text.parse::<TaskId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_does_not_show_itself() {
        assert_eq!(format!("{:?}", Token(123_456)), "Token(…)");
    }
}
