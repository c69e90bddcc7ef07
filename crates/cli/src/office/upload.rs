//! A video on its way to a server, by tus 1.0: after a cut it goes on at the byte the server has.

use super::fault::Fault;
use super::server::Server;
use anyhow::{Context, bail};
use base64::Engine;
use futures_util::TryStreamExt;
use reqwest::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use reqwest::{Body, Method, RequestBuilder};
use std::fs::Metadata;
use std::io::SeekFrom;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::time::sleep;
use tokio_util::io::ReaderStream;

/// How long nothing may move: on a connection, in all, and at the end, while the server reads the file through.
const SILENCE: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(300);
const CONCLUSION: Duration = Duration::from_secs(3600);

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

const BLOCK: usize = 256 << 10;

pub struct Upload<'a> {
    server: &'a Server,
    path: &'a Path,
    found: Metadata,
    /// Who wants to know how many bytes have been sent.
    tell: Arc<dyn Fn(u64) + Send + Sync>,
}

/// What the server has.
enum State {
    At(u64),
    /// It is a video by now, of this number.
    Video(String),
}

impl<'a> Upload<'a> {
    pub fn new(
        server: &'a Server,
        path: &'a Path,
        found: Metadata,
        tell: impl Fn(u64) + Send + Sync + 'static,
    ) -> Self {
        Upload { server, path, found, tell: Arc::new(tell) }
    }

    /// Returns when the server has made a video of it; its number.
    pub async fn send(&self, metadata: &[(&str, String)]) -> anyhow::Result<String> {
        let id = self.begin(metadata).await?;
        let (mut at, mut moved, mut wait) = (0, Instant::now(), FIRST_WAIT);
        let mut tried = self.append(&id, 0).await?;
        loop {
            let fault = match tried {
                Ok(State::Video(video)) => return Ok(video),
                Ok(State::At(offset)) => {
                    if offset > at {
                        (at, moved, wait) = (offset, Instant::now(), FIRST_WAIT);
                    }
                    tried = self.append(&id, offset).await?;
                    continue;
                }
                Err(fault) => fault,
            };
            if !is_passing(&fault) || moved.elapsed() > PATIENCE {
                return Err(fault).with_context(|| format!("sending {}", self.path.display()));
            }
            tracing::debug!("the upload was cut: {fault}");
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
            tried = self.look(&id).await;
        }
    }

    async fn begin(&self, metadata: &[(&str, String)]) -> anyhow::Result<String> {
        let base64 = base64::engine::general_purpose::STANDARD;
        let pairs = metadata.iter().map(|(key, value)| format!("{key} {}", base64.encode(value)));
        let request = self
            .request(Method::POST, &["uploads"])
            .timeout(SILENCE)
            .header("upload-length", self.found.len())
            .header("upload-metadata", pairs.collect::<Vec<_>>().join(","));
        let response = self.server.send(request).await?;
        let id = text(response.headers(), "location").and_then(|place| place.rsplit('/').next());
        Ok(id.map(str::to_owned).ok_or_else(|| self.stranger("no place for an upload"))?)
    }

    /// How far the server is.
    async fn look(&self, id: &str) -> Result<State, Fault> {
        let response = self.server.send_head(self.request(Method::HEAD, &["uploads", id])).await?;
        self.state(response.headers())
    }

    /// Sends the file from `offset` on. Only what is wrong with the file itself is an error at once.
    async fn append(&self, id: &str, offset: u64) -> anyhow::Result<Result<State, Fault>> {
        let file = self.open(offset).await.with_context(|| format!("cannot read {}", self.path.display()))?;
        let left = self.found.len().saturating_sub(offset);
        let sent = Arc::new(AtomicU64::new(offset));
        let (count, tell) = (sent.clone(), self.tell.clone());
        tell(offset);
        let stream = ReaderStream::with_capacity(file.take(left), BLOCK).inspect_ok(move |block| {
            let length = block.len() as u64;
            tell(count.fetch_add(length, Ordering::Relaxed) + length);
        });
        let request = self
            .request(Method::PATCH, &["uploads", id])
            .header(CONTENT_TYPE, "application/offset+octet-stream")
            .header(CONTENT_LENGTH, left)
            .header("upload-offset", offset)
            .body(Body::wrap_stream(stream));
        Ok(tokio::select! {
            answer = self.server.send(request) => answer.and_then(|answer| self.state(answer.headers())),
            () = self.standstill(&sent) => {
                Err(Fault::Away { address: self.server.address(), why: "nothing moves any more".into() })
            }
        })
    }

    async fn open(&self, offset: u64) -> anyhow::Result<File> {
        let mut file = File::open(self.path).await?;
        let now = file.metadata().await?;
        if now.len() != self.found.len() || now.modified()? != self.found.modified()? {
            bail!("it was changed while it was being sent; submit it again when it is whole");
        }
        file.seek(SeekFrom::Start(offset)).await?;
        Ok(file)
    }

    /// Returns when no byte has moved for too long.
    async fn standstill(&self, sent: &AtomicU64) {
        let (mut last, mut moved) = (sent.load(Ordering::Relaxed), Instant::now());
        loop {
            sleep(Duration::from_secs(1)).await;
            let now = sent.load(Ordering::Relaxed);
            if now != last {
                (last, moved) = (now, Instant::now());
            }
            let patience = if now == self.found.len() { CONCLUSION } else { SILENCE };
            if moved.elapsed() > patience {
                return;
            }
        }
    }

    fn state(&self, headers: &HeaderMap) -> Result<State, Fault> {
        if let Some(video) = text(headers, "x-vodmill-video") {
            return Ok(State::Video(video.into()));
        }
        let offset = text(headers, "upload-offset").and_then(|offset| offset.parse().ok());
        let offset = offset.filter(|offset| *offset <= self.found.len());
        offset.map(State::At).ok_or_else(|| self.stranger("no offset of an upload"))
    }

    fn request(&self, method: Method, parts: &[&str]) -> RequestBuilder {
        self.server.request(method, parts.iter().copied()).header("tus-resumable", "1.0.0")
    }

    fn stranger(&self, what: &str) -> Fault {
        Fault::Stranger { address: self.server.address(), what: what.into(), is_busy: false }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The server is away, or has not noticed yet that the connection before this one is dead.
fn is_passing(fault: &Fault) -> bool {
    let is_cut = matches!(fault, Fault::Problem { status: 409 | 423, code, .. }
        if matches!(code.as_str(), "offset_mismatch" | "upload_busy"));
    fault.is_away() || is_cut
}
