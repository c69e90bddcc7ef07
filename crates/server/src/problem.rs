//! What a client is told when something goes wrong: RFC 9457. Status codes are chosen here and nowhere else.

use crate::connections::Reached;
use crate::request_id;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rules::task;
use std::time::Duration;
use wire::http::{Problem, code};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no such {0}")]
    NotFound(&'static str),
    #[error("{0}")]
    Invalid(String),
    /// Said who it is, and is not that.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// For so long nothing that is not known to be right is looked at from there.
    #[error("too many wrong secrets or keys came from this address; wait, and check which one it sends")]
    TooManyGuesses(Duration),
    /// The client has as many connections or requests as it may have before it authenticates.
    #[error("{}", .0.detail())]
    TooManyConnections(Reached),
    /// Also of connections that are closed by now.
    #[error(
        "too many requests came from this address within the last seconds; try again in some seconds, or authenticate"
    )]
    TooManyRequests,
    #[error("{detail}")]
    Conflict { code: &'static str, detail: String },
    /// A word about an execution that is not the speaker's any more.
    #[error("{0}")]
    Refused(task::Refusal),
    #[error("{0}")]
    TooLarge(String),
    #[error("{detail}")]
    Unprocessable { code: &'static str, detail: String },
    #[error("{0}")]
    WorkerTooOld(String),
    #[error("{detail}")]
    Protocol { status: StatusCode, code: &'static str, detail: String },
    #[error("no space is left on the server's disk: {0}")]
    Full(String),
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Told to the log; to the client only that it happened.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    pub fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Error::Conflict { code, detail: detail.into() }
    }

    pub fn unprocessable(code: &'static str, detail: impl Into<String>) -> Self {
        Error::Unprocessable { code, detail: detail.into() }
    }

    /// A file could not be read or written.
    pub fn disk(doing: &str, error: &std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::Full(doing.into()),
            std::io::ErrorKind::NotFound => Error::NotFound("file"),
            _ => Error::Internal(format!("{doing}: {error}")),
        }
    }

    /// Said again, it would be refused again; and nothing has come of it.
    pub fn is_refusal(&self) -> bool {
        use store::Error as E;
        match self {
            Error::Invalid(_) | Error::TooLarge(_) | Error::Conflict { .. } | Error::Unprocessable { .. } => {
                true
            }
            Error::Store(error) => matches!(error, E::Taken(_) | E::Invalid(_) | E::BadSpec(_)),
            Error::NotFound(_)
            | Error::Unauthorized(_)
            | Error::TooManyGuesses(_)
            | Error::TooManyConnections(_)
            | Error::TooManyRequests
            | Error::Refused(_)
            | Error::WorkerTooOld(_)
            | Error::Protocol { .. }
            | Error::Full(_)
            | Error::Internal(_) => false,
        }
    }

    /// Files cannot be reached for now.
    fn storage_away(detail: String) -> Self {
        Error::Protocol { status: StatusCode::SERVICE_UNAVAILABLE, code: code::STORAGE_AWAY, detail }
    }

    fn status_and_code(&self) -> (StatusCode, &'static str) {
        use StatusCode as S;
        match self {
            Error::NotFound(_) => (S::NOT_FOUND, "not_found"),
            Error::Invalid(_) => (S::BAD_REQUEST, "invalid_request"),
            Error::Unauthorized(_) => (S::UNAUTHORIZED, "unauthorized"),
            Error::TooManyGuesses(_) => (S::TOO_MANY_REQUESTS, "too_many_guesses"),
            Error::TooManyConnections(_) => (S::TOO_MANY_REQUESTS, "too_many_connections"),
            Error::TooManyRequests => (S::TOO_MANY_REQUESTS, "too_many_requests"),
            Error::Conflict { code, .. } => (S::CONFLICT, code),
            Error::Refused(_) => (S::CONFLICT, "refused"),
            Error::TooLarge(_) => (S::PAYLOAD_TOO_LARGE, "too_large"),
            Error::Unprocessable { code, .. } => (S::UNPROCESSABLE_ENTITY, code),
            Error::WorkerTooOld(_) => (S::UPGRADE_REQUIRED, "worker_too_old"),
            Error::Protocol { status, code, .. } => (*status, code),
            Error::Full(_) => (S::INSUFFICIENT_STORAGE, code::DISK_FULL),
            Error::Internal(_) => (S::INTERNAL_SERVER_ERROR, "internal"),
            Error::Store(error) => of_store(error),
        }
    }
}

impl From<files::bucket::Error> for Error {
    fn from(error: files::bucket::Error) -> Self {
        use files::bucket::Error as E;
        match error {
            E::NotFound(_) => Error::NotFound("file"),
            E::Taken(_) => Error::conflict("already_there", error.to_string()),
            E::Away { .. } | E::Changed(_) => {
                tracing::warn!("{error}");
                Error::storage_away("the storage does not answer; try again".into())
            }
            E::Disk(error) => Error::disk("moving a file", &error),
            E::Refused { .. } => Error::Internal(error.to_string()),
        }
    }
}

fn of_store(error: &store::Error) -> (StatusCode, &'static str) {
    use StatusCode as S;
    use store::Error as E;
    match error {
        E::NotFound(_) => (S::NOT_FOUND, "not_found"),
        E::KeyReused(_) => (S::UNPROCESSABLE_ENTITY, "idempotency_key_reused"),
        E::VersionMismatch { .. } => (S::PRECONDITION_FAILED, "version_mismatch"),
        E::Refused(store::Refusal::Worker(rules::worker::Refusal::Superseded)) => (S::CONFLICT, "superseded"),
        E::Refused(_) | E::Archived(_) => (S::CONFLICT, "refused"),
        E::BadSpec(_) => (S::UNPROCESSABLE_ENTITY, "bad_spec"),
        E::Taken(_) => (S::CONFLICT, "slug_taken"),
        E::Invalid(_) => (S::UNPROCESSABLE_ENTITY, "invalid"),
        E::BadKey => (S::UNAUTHORIZED, "unauthorized"),
        E::Full(_) => (S::INSUFFICIENT_STORAGE, code::DISK_FULL),
        E::Unavailable(_) | E::NoConnection | E::Contention(_) | E::ReadOnly(_) | E::Standby(_) => {
            (S::SERVICE_UNAVAILABLE, "database_away")
        }
        E::Newer { .. } | E::Older { .. } | E::Corrupt(_) | E::BadJson(_) | E::Database(_) => {
            (S::INTERNAL_SERVER_ERROR, "internal")
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let (status, code) = self.status_and_code();
        let request_id = request_id::current();
        let detail = if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(request.id = request_id, "{}", with_sources(&self));
            "the server could not do this; its log says why, under the request's id".into()
        } else {
            with_sources(&self)
        };
        let refusal = match &self {
            Error::Refused(refusal) => Some(*refusal),
            Error::Store(store::Error::Refused(store::Refusal::Task(refusal))) => Some(*refusal),
            _ => None,
        };
        let problem = Problem {
            kind: format!("/api/docs#{code}"),
            title: status.canonical_reason().unwrap_or("error").into(),
            status: status.as_u16(),
            detail,
            code: code.into(),
            request_id,
            refusal,
        };
        let mut response = respond(status, &problem);
        if let Error::TooManyGuesses(wait) = &self {
            // Whole seconds, and not a moment too early.
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        response
    }
}

fn respond(status: StatusCode, problem: &Problem) -> Response {
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::INSUFFICIENT_STORAGE {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    }
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"vodmill\""));
    }
    response
}

fn with_sources(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", with_sources(source)),
        None => error.to_string(),
    }
}
