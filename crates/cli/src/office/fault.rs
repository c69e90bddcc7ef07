//! What a server's answer comes to that is not the one asked for: what happened, and what to do.

use reqwest::header::CONTENT_TYPE;
use reqwest::{Response, StatusCode};
use wire::http::Problem;

/// Nobody explains an error at greater length.
const LONGEST_PROBLEM: usize = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the server at {address} cannot be reached: {why}; is it running, and is the address right?")]
    Away { address: String, why: String },
    #[error(
        "what answers at {address} is not a Vodmill server ({what}); \
         is the address right, or does something in between want a login?"
    )]
    Stranger { address: String, what: String, is_busy: bool },
    #[error(
        "the server at {address} does not let you in: {detail}; \
         VODMILL_ADMIN_SECRET must be the secret that `vodmill serve` was given, or showed at its first start"
    )]
    Secret { address: String, detail: String },
    #[error("{detail}")]
    Problem { status: u16, code: String, detail: String },
    #[error("cannot speak HTTP: {0}")]
    Http(String),
}

impl Fault {
    /// Worth another try, by somebody who can wait.
    pub fn is_away(&self) -> bool {
        match self {
            Fault::Away { .. } => true,
            Fault::Stranger { is_busy, .. } => *is_busy,
            Fault::Problem { status, .. } => matches!(status, 429 | 500 | 502..=504),
            Fault::Secret { .. } | Fault::Http(_) => false,
        }
    }

    /// Something else must be typed.
    pub fn is_usage(&self) -> bool {
        let is_about_use = |code: &str| code != "idempotency_key_reused";
        matches!(self, Fault::Problem { status: 400 | 422, code, .. } if is_about_use(code))
    }

    pub fn of(address: String, error: reqwest::Error) -> Self {
        Fault::Away { address, why: because(&error.without_url()) }
    }
}

/// The innermost causes say it; those around them only that there was one.
fn because(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => because(source),
        None => error.to_string(),
    }
}

/// Passes on what succeeded. Only a server of ours speaks problem+json.
pub async fn judge(address: String, response: Response) -> Result<Response, Fault> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let what = describe(&response);
    let body = read(&address, response, LONGEST_PROBLEM).await?;
    match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => Err(explain(address, status, problem)),
        Err(_) => Err(Fault::Stranger { address, what, is_busy: is_busy(status) }),
    }
}

/// As [`judge`] for answers to HEAD, which cannot explain themselves.
pub fn judge_head(address: String, response: Response) -> Result<Response, Fault> {
    let status = response.status();
    match status {
        _ if status.is_success() => Ok(response),
        StatusCode::UNAUTHORIZED => {
            Err(Fault::Secret { address, detail: "it does not know the secret".into() })
        }
        _ if status.is_client_error() => {
            let detail = format!("the server answers {status}");
            Err(Fault::Problem { status: status.as_u16(), code: String::new(), detail })
        }
        _ => Err(Fault::Stranger { what: describe(&response), address, is_busy: is_busy(status) }),
    }
}

/// `200 OK, text/html`
pub fn describe(response: &Response) -> String {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.map(|kind| kind.split(';').next().unwrap_or_default());
    match kind {
        Some(kind) => format!("{}, {kind}", response.status()),
        None => response.status().to_string(),
    }
}

/// A gateway whose server is not there says so.
fn is_busy(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || matches!(status.as_u16(), 502..=504)
}

fn explain(address: String, status: StatusCode, problem: Problem) -> Fault {
    let detail = if problem.detail.is_empty() { problem.title } else { problem.detail };
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Fault::Secret { address, detail },
        _ => {
            let request = problem.request_id.filter(|_| status.is_server_error());
            let request = request.map(|id| format!(" (request {id})")).unwrap_or_default();
            Fault::Problem {
                status: status.as_u16(),
                code: problem.code,
                detail: format!("{detail}{request}"),
            }
        }
    }
}

/// The body, if it is not absurdly long.
pub async fn read(address: &str, mut response: Response, longest: usize) -> Result<Vec<u8>, Fault> {
    let mut body = Vec::new();
    while let Some(block) = response.chunk().await.map_err(|error| Fault::of(address.into(), error))? {
        if body.len() + block.len() > longest {
            let what = format!("an answer of more than {longest} bytes");
            return Err(Fault::Stranger { address: address.into(), what, is_busy: false });
        }
        body.extend_from_slice(&block);
    }
    Ok(body)
}
