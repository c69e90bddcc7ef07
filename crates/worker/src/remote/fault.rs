//! What an answer comes to that is not the one asked for.

use reqwest::header::CONTENT_RANGE;
use reqwest::{Response, StatusCode};
use rules::task::Refusal;
use wire::http::{Problem, code};

/// Nobody explains an error at greater length.
const LONGEST_PROBLEM: usize = 64 << 10;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Nothing was decided, or it is not known whether it was: worth trying again.
    #[error("{why}")]
    Away {
        why: String,
        /// No connection at all: it is not only this request that fails.
        is_absent: bool,
        /// The server is there, and says that where it keeps files is away or full.
        is_storage: bool,
    },
    /// The word about an execution was refused.
    #[error("{0}")]
    Refused(Refusal),
    /// The server wants nothing more of this worker.
    #[error("{0}")]
    Dismissed(String),
    #[error("{detail}")]
    Rejected { status: u16, code: String, detail: String },
}

impl Fault {
    pub fn away(why: impl Into<String>) -> Self {
        Fault::Away { why: why.into(), is_absent: false, is_storage: false }
    }

    fn storage_away(why: String) -> Self {
        Fault::Away { why, is_absent: false, is_storage: true }
    }

    /// Without the URL, which a reader of logs need not see again and again.
    pub fn of(error: reqwest::Error) -> Self {
        let is_absent = error.is_connect();
        Fault::Away { why: outbound::told(error), is_absent, is_storage: false }
    }
}

impl From<Fault> for wire::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Away { why, .. } => wire::Error::Away(why),
            Fault::Refused(_) | Fault::Dismissed(_) | Fault::Rejected { .. } => {
                wire::Error::Rejected(fault.to_string())
            }
        }
    }
}

/// Passes on what succeeded. Only our own server speaks problem+json; whatever else stands in between and answers for
/// it, with a page for people, says nothing about the request.
pub(super) async fn judge(response: Response) -> Result<Response, Fault> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let by_status = format!("the server answers {status}");
    if status.is_redirection() {
        return Err(Fault::away(format!("{by_status}: it has moved, or something in between wants a login")));
    }
    if status == StatusCode::RANGE_NOT_SATISFIABLE && response.headers().contains_key(CONTENT_RANGE) {
        // It says all there is to say without a body.
        return Err(Fault::Rejected { status: status.as_u16(), code: String::new(), detail: by_status });
    }
    let body = read(response, LONGEST_PROBLEM).await?;
    match serde_json::from_slice::<Problem>(&body) {
        Err(_) => Err(Fault::away(format!("{by_status}, and not as a Vodmill server would"))),
        Ok(problem) => Err(explain(status, problem)),
    }
}

/// As [`judge`] for answers to HEAD, which cannot explain themselves; who asks for more will hear why.
pub(super) fn judge_head(response: Response) -> Result<Response, Fault> {
    let status = response.status();
    let detail = format!("the server answers {status}");
    match status {
        _ if status.is_success() => Ok(response),
        StatusCode::TOO_MANY_REQUESTS => Err(Fault::away(detail)),
        _ if status.is_client_error() => {
            Err(Fault::Rejected { status: status.as_u16(), code: String::new(), detail })
        }
        _ => Err(Fault::away(detail)),
    }
}

fn explain(status: StatusCode, problem: Problem) -> Fault {
    let detail = if problem.detail.is_empty() { problem.title } else { problem.detail };
    if let (StatusCode::CONFLICT, Some(refusal)) = (status, problem.refusal) {
        return Fault::Refused(refusal);
    }
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Fault::Dismissed(format!("the server does not accept this worker's key: {detail}"))
        }
        StatusCode::UPGRADE_REQUIRED => Fault::Dismissed(format!(
            "this worker, version {}, is too old for the server: {detail}",
            env!("CARGO_PKG_VERSION")
        )),
        StatusCode::CONFLICT if problem.code == code::SUPERSEDED => Fault::Dismissed(format!(
            "another process works with this key by now, and a key is for one: {detail}"
        )),
        StatusCode::TOO_MANY_REQUESTS => Fault::away(detail),
        _ if matches!(problem.code.as_str(), code::STORAGE_AWAY | code::DISK_FULL) => {
            Fault::storage_away(detail)
        }
        _ if status.is_server_error() => Fault::away(detail),
        _ => Fault::Rejected { status: status.as_u16(), code: problem.code, detail },
    }
}

/// The body, which must not be longer than `limit`.
pub(super) async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Fault::of)? {
        if body.len() + chunk.len() > limit {
            return Err(Fault::away(format!("an answer of more than {limit} bytes")));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}
