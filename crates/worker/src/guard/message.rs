//! What the guard tells the worker over the lifeline, one JSON object a line: first [`Message::Started`] and
//! at the end [`Message::Ended`], or [`Message::NotStarted`] alone. A guard that falls silent without the
//! last word was killed.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

use super::usage::Usage;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    Started { pid: i32 },
    NotStarted { errno: Option<i32>, reason: String },
    Ended(Ended),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub status: Status,
    pub usage: Usage,
    /// Descendants that SIGKILL did not end in time.
    pub survivors: usize,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl Status {
    pub(crate) fn of(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Code(-1),
        }
    }

    pub fn is_success(self) -> bool {
        self == Self::Code(0)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}
