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

/// Random, new with each claim. It tells a claim from every other claim of the same task, also when a crash of the
/// database has forgotten a claim and the same [`Fence`] was given twice. It is public: a report counts only with the API
/// key of the worker that holds the lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub i64);

/// A task of a job. The job's number stands in the upper bits, so a job's tasks are neighbours in every index.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub i64);

/// One attempt at a task: `42-7.1-0123456789abcdef`. Never given twice, because of the token. So it names files, folders,
/// objects and keys outside the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionId {
    pub task: TaskId,
    pub fence: Fence,
    pub token: Token,
}

/// An execution as it was written down, perhaps by a version whose names had no token: `42-7.1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionName {
    pub task: TaskId,
    pub fence: Fence,
    pub token: Option<Token>,
}

impl ExecutionId {
    /// Its name without the token, as older versions wrote it.
    pub fn short(self) -> ExecutionName {
        ExecutionName { task: self.task, fence: self.fence, token: None }
    }
}

impl From<ExecutionId> for ExecutionName {
    fn from(id: ExecutionId) -> Self {
        ExecutionName { task: id.task, fence: id.fence, token: Some(id.token) }
    }
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

/// Sixteen hexadecimal digits.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({self})")
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
        f.pad(&format!("{}.{}-{}", self.task, self.fence, self.token))
    }
}

impl fmt::Display for ExecutionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ExecutionName { task, fence, token } = *self;
        match token {
            Some(token) => fmt::Display::fmt(&ExecutionId { task, fence, token }, f),
            None => f.pad(&format!("{task}.{fence}")),
        }
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
as_text!(TaskId, ExecutionId, ExecutionName);

impl<'de> Deserialize<'de> for TaskId {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Only the one way in which it is written: no two texts name one execution.
impl FromStr for ExecutionName {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let bad = || BadId(text.chars().take(64).collect(), "execution id", "42-7.1-0123456789abcdef");
        let (task, attempt) = text.rsplit_once('.').ok_or_else(bad)?;
        let (fence, token) = match attempt.split_once('-') {
            Some((fence, token)) => {
                let token = u64::from_str_radix(token, 16).map_err(|_| bad())?;
                (fence, Some(Token(token.cast_signed())))
            }
            None => (attempt, None),
        };
        let fence = Fence(fence.parse().map_err(|_| bad())?);
        let name = ExecutionName { task: task.parse().map_err(|_| bad())?, fence, token };
        if name.to_string() == text { Ok(name) } else { Err(bad()) }
    }
}

impl FromStr for ExecutionId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let ExecutionName { task, fence, token } = text.parse()?;
        let bad = || BadId(text.chars().take(64).collect(), "whole execution id", "42-7.1-0123456789abcdef");
        Ok(ExecutionId { task, fence, token: token.ok_or_else(bad)? })
    }
}

impl<'de> Deserialize<'de> for ExecutionId {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        String::deserialize(input)?.parse().map_err(serde::de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for ExecutionName {
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
    fn an_execution_is_named_with_its_token_and_read_in_the_older_form_too() {
        let id = ExecutionId { task: TaskId::new(JobId(42), 7), fence: Fence(1), token: Token(-2) };

        assert_eq!(id.to_string(), "42-7.1-fffffffffffffffe");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().parse(), Ok(ExecutionName::from(id)));
        assert_eq!("42-7.1".parse(), Ok(id.short()));
        assert_eq!(id.short().to_string(), "42-7.1");
        assert!("42-7.1".parse::<ExecutionId>().is_err(), "it may be another execution's");
        for text in [
            "42-7.1-",
            "42-7.1-fe",
            "42-7.1-FFFFFFFFFFFFFFFE",
            "42-7.01",
            "42-7.+1",
            "42-7.1-+000000000000001",
        ] {
            assert!(text.parse::<ExecutionName>().is_err(), "{text}");
        }
    }
}
