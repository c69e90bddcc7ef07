//! What a worker shows with every report about an execution.

use rules::{ExecutionId, Fence, TaskId, Token, WorkerId};
use serde::{Deserialize, Serialize};

/// Names an execution and its lease, as a worker sends it. It is public and says nothing about the sender: only
/// [`LeaseToken::shown_by`], with an authenticated worker, makes a [`Proof`] of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseToken {
    pub task: TaskId,
    pub fence: Fence,
    pub token: Token,
}

/// A lease token and the worker that shows it. The store accepts a report only if both match the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proof {
    pub task: TaskId,
    pub fence: Fence,
    pub token: Token,
    /// Servers of older versions do not tell a remote worker its id, and it has no use for it.
    #[serde(default = "nobody")]
    pub worker: WorkerId,
}

fn nobody() -> WorkerId {
    WorkerId(uuid::Uuid::nil())
}

impl LeaseToken {
    pub fn shown_by(self, worker: WorkerId) -> Proof {
        let LeaseToken { task, fence, token } = self;
        Proof { task, fence, token, worker }
    }

    /// For requests that have no body to put it in: `42-7.1.-123456`.
    pub fn to_header(self) -> String {
        format!("{}.{}.{}", self.task, self.fence, self.token.0)
    }

    pub fn from_header(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        Some(LeaseToken {
            task: parts.next()?.parse().ok()?,
            fence: Fence(parts.next()?.parse().ok()?),
            token: Token(parts.next()?.parse().ok()?),
        })
    }
}

impl Proof {
    pub fn execution(&self) -> ExecutionId {
        ExecutionId { task: self.task, fence: self.fence, token: self.token }
    }

    pub fn lease_token(&self) -> LeaseToken {
        LeaseToken { task: self.task, fence: self.fence, token: self.token }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rules::JobId;

    #[test]
    fn a_lease_token_reads_back_from_its_header_and_nonsense_does_not() {
        let token = LeaseToken { task: TaskId::new(JobId(42), 7), fence: Fence(1), token: Token(-123_456) };

        assert_eq!(LeaseToken::from_header(&token.to_header()), Some(token));
        for text in ["", "42-7", "42-7.1", "42-7.1.x", "42.1.1", "42-7.1.1.1"] {
            assert_eq!(LeaseToken::from_header(text), None, "{text}");
        }
    }

    #[test]
    fn a_proof_of_an_older_server_names_no_worker() {
        let proof: Proof = serde_json::from_str(r#"{"task":"42-7","fence":1,"token":5}"#).unwrap();

        assert!(proof.worker.0.is_nil());
    }
}
