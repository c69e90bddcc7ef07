//! One file on its way to the server, or past it to where the server keeps its files.

use std::io::{self, SeekFrom};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use files::Step;
use futures_util::TryStreamExt;
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use reqwest::{Body, Method, RequestBuilder, Response};
use rules::task::Refusal;
use tokio::fs::File;
use tokio::io::AsyncSeekExt;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::io::ReaderStream;
use tracing::debug;
use wire::Proof;
use wire::http::header::{PROOF, SHA256, UPLOAD_OFFSET};
use wire::http::{Direct, DirectOutput, Output, code};

use super::direct::{Way, judge};
use super::fault::Fault;
use super::{Client, range};
use crate::Context;
use crate::handler::Failed;
use crate::pace::Pace;
use crate::transcode::disk;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// How often a file that arrives damaged is sent again.
const REPETITIONS: u32 = 3;

/// How many tries in a row may bring a file no further: then another worker may have a better line.
const TRIES_IN_VAIN: u32 = 12;

const CHUNK: usize = 64 << 10;

pub(super) struct Upload<'a> {
    pub client: &'a Client,
    pub proof: Proof,
    pub context: &'a Context,
    pub folder: &'a Path,
    pub way: &'a Way,
}

/// What is to be done after a try that failed.
enum Next {
    /// Ask how far the server is, and go on there.
    Continue,
    StartOver,
}

/// What has been tried for one file.
struct Tries {
    repetitions: u32,
    /// How much of it has ever been there.
    farthest: u64,
    in_vain: u32,
}

impl Tries {
    fn reached(&mut self, offset: u64) {
        if offset > self.farthest {
            (self.farthest, self.in_vain) = (offset, 0);
        }
    }

    fn repeat(&mut self) -> bool {
        let may = self.repetitions > 0;
        self.repetitions = self.repetitions.saturating_sub(1);
        may
    }
}

impl Upload<'_> {
    /// Returns when the file is there, as it was declared; `place` is where to put it, if not at the server.
    pub async fn send(&self, file: &DirectOutput, place: Option<Direct>) -> Result<(), Failed> {
        failpoint::reached("upload", "before");
        if !self.send_directly(file, place).await? {
            self.send_to_server(&file.output).await?;
        }
        Ok(())
    }

    /// Whether it is there: if not, the server has to take it.
    async fn send_directly(&self, file: &DirectOutput, place: Option<Direct>) -> Result<bool, Failed> {
        let (mut pace, mut place) = (Pace::new(FIRST_WAIT, LONGEST_WAIT), place);
        while self.way.is_open() {
            if place.is_none() {
                place = self.way.outputs(std::slice::from_ref(file)).await.unwrap_or_default().pop();
            }
            let Some(to) = place.take() else { return Ok(false) };
            match self.put_directly(&file.output, &to).await? {
                Ok(()) => {
                    self.way.succeeded();
                    return Ok(true);
                }
                Err(fault) => debug!("uploading {} past the server broke off: {fault}", file.output.path),
            }
            self.way.failed();
            // The work is done; that nobody takes it is not its standing still.
            self.context.progress.beat();
            sleep(pace.next()).await;
        }
        Ok(false)
    }

    async fn put_directly(&self, output: &Output, to: &Direct) -> Result<Result<(), Fault>, Failed> {
        let path = self.folder.join(&output.path);
        let file = open(&path, 0).await.map_err(|error| disk("reading", &path, &error))?;
        let moved = Moved::default();
        let mut request = self.client.stranger(Method::PUT, &to.url).header(CONTENT_LENGTH, output.bytes);
        for (name, value) in &to.headers {
            request = request.header(name, value);
        }
        let sending = request.body(self.body(file, output.bytes, moved.clone())).send();
        let sending = async { judge(sending.await).map(drop) };
        let answer = tokio::select! {
            answer = Step::SendDirect.across(sending) => answer,
            () = moved.none_for(self.silence()) => Err(Fault::away("nothing moves")),
        };
        Ok(answer)
    }

    /// Returns when the server has the file, as it was declared.
    async fn send_to_server(&self, output: &Output) -> Result<(), Failed> {
        let mut pace = Pace::new(FIRST_WAIT, LONGEST_WAIT);
        let (mut offset, mut tries) = (0, Tries { repetitions: REPETITIONS, farthest: 0, in_vain: 0 });
        loop {
            let fault = match self.put(output, offset).await? {
                Ok(()) => return Ok(()),
                Err(fault) => fault,
            };
            debug!("uploading {} broke off: {fault}", output.path);
            offset = match self.judge(output, fault, &mut tries)? {
                Next::Continue => {
                    sleep(pace.next()).await;
                    self.offset(output, &mut pace, &mut tries).await?
                }
                Next::StartOver => 0,
            };
            tries.reached(offset);
        }
    }

    fn judge(&self, output: &Output, fault: Fault, tries: &mut Tries) -> Result<Next, Failed> {
        let is_damaged = |code: &str| matches!(code, code::HASH_MISMATCH | code::SIZE_MISMATCH);
        match fault {
            Fault::Away { why, is_absent, is_storage } => {
                self.context.progress.beat();
                tries.in_vain += u32::from(!is_absent);
                if tries.in_vain >= TRIES_IN_VAIN {
                    let tried =
                        format!("{} did not get through in {TRIES_IN_VAIN} tries: {why}", output.path);
                    return Err(match is_storage || self.way.is_broken() {
                        true => Failed::storage_away(tried),
                        false => Failed::transient(tried),
                    });
                }
                Ok(Next::Continue)
            }
            // It may be renewed yet; if it is not, whoever renews it ends the execution.
            Fault::Refused(Refusal::LeaseExpired) => Ok(Next::Continue),
            Fault::Refused(refusal) => {
                self.context.lose(refusal);
                Err(Failed::transient(refusal.to_string()))
            }
            Fault::Rejected { code, .. } if is_damaged(&code) && tries.repeat() => Ok(Next::StartOver),
            // It does not agree where to go on, or not all of the request came through.
            Fault::Rejected { status: 400 | 409 | 416, .. } if tries.repeat() => Ok(Next::StartOver),
            Fault::Dismissed(why) | Fault::Rejected { detail: why, .. } => {
                Err(Failed::transient(format!("the server does not take {}: {why}", output.path)))
            }
        }
    }

    /// Sends the file from `offset` on. Only the disk's failure is an error at once.
    async fn put(&self, output: &Output, offset: u64) -> Result<Result<(), Fault>, Failed> {
        let path = self.folder.join(&output.path);
        let file = open(&path, offset).await.map_err(|error| disk("reading", &path, &error))?;
        let moved = Moved::default();
        let body = self.body(file, output.bytes - offset, moved.clone());
        let mut request = self
            .request(Method::PUT, output)
            .header(SHA256, &output.sha256)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, output.bytes - offset);
        if offset > 0 {
            request = request.header(CONTENT_RANGE, range::content(&(offset..output.bytes), output.bytes));
        }
        let answer = self.client.send(request.body(body), moved.none_for(self.silence())).await;
        Ok(answer.and_then(|response| taken(&response)))
    }

    fn silence(&self) -> Duration {
        self.client.patience().within(self.context.stall()).silence
    }

    fn body(&self, file: File, bytes: u64, moved: Moved) -> Body {
        use tokio::io::AsyncReadExt;
        let progress = self.context.progress.clone();
        let chunks = ReaderStream::with_capacity(file.take(bytes), CHUNK);
        Body::wrap_stream(chunks.inspect_ok(move |_| {
            moved.now();
            progress.beat();
        }))
    }

    /// Where to go on: how much of the file the server has. One that has all of it and did not say so is sent it again,
    /// for only its answer to that says that it is right.
    async fn offset(&self, output: &Output, pace: &mut Pace, tries: &mut Tries) -> Result<u64, Failed> {
        loop {
            match self.client.send_head(self.request(Method::HEAD, output)).await {
                Ok(response) => {
                    let offset = has(&response).filter(|offset| *offset < output.bytes);
                    return Ok(offset.unwrap_or_default());
                }
                Err(Fault::Rejected { .. }) => return Ok(0),
                Err(fault) => {
                    self.judge(output, fault, tries)?;
                    sleep(pace.next()).await;
                }
            }
        }
    }

    fn request(&self, method: Method, output: &Output) -> RequestBuilder {
        let parts = ["outputs"].into_iter().chain(output.path.split('/'));
        self.client.request(method, parts).header(PROOF, self.proof.lease_token().to_header())
    }
}

async fn open(path: &Path, offset: u64) -> io::Result<File> {
    let mut file = File::open(path).await?;
    file.seek(SeekFrom::Start(offset)).await?;
    Ok(file)
}

fn has(response: &Response) -> Option<u64> {
    response.headers().get(UPLOAD_OFFSET)?.to_str().ok()?.trim().parse().ok()
}

/// A page for people, whatever its status, is not by the server.
fn taken(response: &Response) -> Result<(), Fault> {
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("json");
    match kind.contains("json") {
        true => Ok(()),
        false => Err(Fault::away(format!("the answer is {kind}, and not what a Vodmill server would say"))),
    }
}

/// When the last bytes went out.
#[derive(Clone)]
struct Moved(Arc<Mutex<Instant>>);

impl Default for Moved {
    fn default() -> Self {
        Moved(Arc::new(Mutex::new(Instant::now())))
    }
}

impl Moved {
    fn now(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Returns when nothing has moved for so long.
    async fn none_for(self, silence: Duration) {
        loop {
            let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() >= silence {
                return;
            }
            sleep_until(last + silence).await;
        }
    }
}
