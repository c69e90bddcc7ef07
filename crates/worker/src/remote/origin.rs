//! Where a source's bytes come from: straight from a bucket, from where the server says, or through the server.

use std::ops::Range;
use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use files::{Bucket, bucket};
use futures_util::TryStreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{CONTENT_RANGE, ETAG, HeaderName, RANGE};
use reqwest::{Method, Response, StatusCode};
use tokio::time::{sleep, timeout};
use wire::Proof;
use wire::http::header::PROOF;

use super::direct::{Way, judge};
use super::fault::Fault;
use super::{Client, Patience, range};

#[derive(Debug)]
pub(super) enum Origin {
    Server {
        client: Client,
        proof: Proof,
        way: Way,
    },
    /// Under this name.
    Bucket(Bucket, String),
}

/// The same file has the same bytes from wherever it is read, and names them in as many ways.
#[derive(Debug, Default)]
pub(super) struct Versions {
    bytes: OnceLock<u64>,
    server: OnceLock<String>,
    direct: OnceLock<String>,
}

/// A part of the file.
pub(super) struct Answer {
    pub first: u64,
    pub bytes: u64,
    etag: String,
    is_direct: bool,
    body: Body,
}

enum Body {
    Http(Response),
    Bucket(BoxStream<'static, bucket::Result<Bytes>>),
}

impl Origin {
    pub fn server(client: &Client, proof: Proof) -> Self {
        Origin::Server { client: client.clone(), proof, way: Way::new(client, proof) }
    }

    pub fn patience(&self) -> Patience {
        match self {
            Origin::Server { client, .. } => client.patience(),
            Origin::Bucket(..) => Patience::default(),
        }
    }

    /// Asks for these bytes; nobody waits for the answer for longer than `silence`.
    pub async fn fetch(&self, range: &Range<u64>, silence: Duration) -> Result<Answer, Fault> {
        match self {
            Origin::Bucket(bucket, name) => from_bucket(bucket, name, range, silence).await,
            Origin::Server { client, proof, way } => {
                match past_the_server(client, way, range, silence).await? {
                    Some(answer) => Ok(answer),
                    None => through_the_server(client, *proof, range, silence).await,
                }
            }
        }
    }

    /// How the reading of an answer went; a way that often fails is left.
    pub fn settle(&self, is_direct: bool, is_success: bool) {
        if let (Origin::Server { way, .. }, true) = (self, is_direct) {
            if is_success { way.succeeded() } else { way.failed() }
        }
    }
}

async fn from_bucket(
    bucket: &Bucket,
    name: &str,
    range: &Range<u64>,
    silence: Duration,
) -> Result<Answer, Fault> {
    let asked = timeout(silence, bucket.read(name, Some(range.clone()))).await;
    let reading = asked.map_err(|_| silent())?.map_err(fault)?;
    Ok(Answer {
        first: reading.range.start,
        bytes: reading.whole.bytes,
        etag: reading.whole.etag,
        is_direct: true,
        body: Body::Bucket(reading.stream),
    })
}

fn fault(error: bucket::Error) -> Fault {
    match error {
        bucket::Error::NotFound(_) => {
            Fault::Rejected { status: 404, code: String::new(), detail: "it is not there any more".into() }
        }
        error => Fault::away(error.to_string()),
    }
}

fn silent() -> Fault {
    Fault::away("the storage does not answer")
}

async fn past_the_server(
    client: &Client,
    way: &Way,
    range: &Range<u64>,
    silence: Duration,
) -> Result<Option<Answer>, Fault> {
    let Some(direct) = way.source().await? else { return Ok(None) };
    let mut request = client.stranger(Method::GET, &direct.url).header(RANGE, range::header(range));
    for (name, value) in &direct.headers {
        request = request.header(name, value);
    }
    let asked = timeout(silence, request.send()).await;
    let answer = match asked {
        Ok(answer) => judge(answer).and_then(|response| answered(response, true)),
        Err(_) => Err(silent()),
    };
    if answer.is_err() {
        way.failed();
    }
    answer.map(Some)
}

async fn through_the_server(
    client: &Client,
    proof: Proof,
    range: &Range<u64>,
    silence: Duration,
) -> Result<Answer, Fault> {
    let request = client
        .request(Method::GET, ["source"])
        .header(PROOF, proof.lease_token().to_header())
        .header(RANGE, range::header(range));
    let response = client.send(request, sleep(silence)).await?;
    answered(response, false)
}

/// Of which file an answer is a part, and where in it that begins. An answer that does not say so is not the server's,
/// whatever its status: a page of some proxy. Not all stores say 206 with it.
fn answered(response: Response, is_direct: bool) -> Result<Answer, Fault> {
    let text = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
    let given = text(CONTENT_RANGE).and_then(range::given);
    let is_part = is_direct || response.status() == StatusCode::PARTIAL_CONTENT;
    match (response.status(), text(ETAG).map(str::to_owned), given.filter(|_| is_part)) {
        (_, Some(etag), Some((first, bytes))) => {
            Ok(Answer { first, bytes, etag, is_direct, body: Body::Http(response) })
        }
        (status, ..) => Err(Fault::away(format!("the answer, {status}, is no part of a file"))),
    }
}

impl Answer {
    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// The end of an answer that should go on is an error too.
    pub async fn next(&mut self, silence: Duration) -> Result<Bytes, Fault> {
        let next = async {
            match &mut self.body {
                Body::Http(response) => response.chunk().await.map_err(Fault::of),
                Body::Bucket(stream) => stream.try_next().await.map_err(fault),
            }
        };
        match timeout(silence, next).await {
            Ok(Ok(Some(chunk))) => Ok(chunk),
            Ok(Ok(None)) => Err(Fault::away("the answer ends too early")),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::away(format!("nothing came for {silence:?}"))),
        }
    }
}

impl Versions {
    /// Whether an answer is of the file that all before it were of.
    pub fn agree(&self, answer: &Answer) -> bool {
        let etag = if answer.is_direct { &self.direct } else { &self.server };
        *self.bytes.get_or_init(|| answer.bytes) == answer.bytes
            && *etag.get_or_init(|| answer.etag.clone()) == answer.etag
    }

    /// How long the file is, once an answer has said so.
    pub fn bytes(&self) -> u64 {
        self.bytes.get().copied().unwrap_or_default()
    }
}
