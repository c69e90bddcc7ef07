//! Speaks to one server with one key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap};
use reqwest::{Method, RequestBuilder, Response, redirect};
use rules::ExecutionId;
use rules::backoff::Jitter;
use rules::breaker::{Breaker, Pass};
use serde::Serialize;
use serde::de::DeserializeOwned;
use telemetry::trace;
use tokio::sync::SetOnce;
use tokio::time::{Instant, sleep};
use tracing::error;
use wire::http::Output;

use super::fault::{self, Fault};
use super::{Address, BadKey, Key};

/// A plan with the results of thousands of tasks is some megabytes.
const LONGEST_ANSWER: usize = 256 << 20;

/// After this the way past the server is tried again.
const DETOUR: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Key(#[from] BadKey),
    #[error("cannot speak HTTP")]
    Http(#[from] reqwest::Error),
}

/// How long to wait for what.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For a connection. Default: 10 s.
    pub connect: Duration,
    /// For the next byte, or an answer, while a file is under way. Default: 30 s.
    pub silence: Duration,
    /// For the answer to a word. Default: 25 s.
    pub answer: Duration,
    /// For a source that cannot be read on. Default: 5 min.
    pub source: Duration,
}

impl Patience {
    /// As much of it as work may have that must not stand still for longer than this: it is given back before that is
    /// taken for its own fault.
    pub(super) fn within(self, stall: Option<Duration>) -> Self {
        let Some(stall) = stall else { return self };
        Patience { silence: self.silence.min(stall / 4), source: self.source.min(stall / 2), ..self }
    }
}

impl Default for Patience {
    fn default() -> Self {
        Patience {
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            answer: Duration::from_secs(25),
            source: Duration::from_secs(300),
        }
    }
}

/// Clones are one and the same.
#[derive(Debug, Clone)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    key: HeaderMap,
    /// Another one after each silence.
    http: RwLock<reqwest::Client>,
    /// For others than the server: without the key.
    strangers: reqwest::Client,
    address: Address,
    patience: Patience,
    breaker: Breaker,
    /// Why the server wants nothing more of this worker.
    dismissed: SetOnce<String>,
    /// Until when nobody tries to go past the server.
    detour: Mutex<Option<Instant>>,
    /// What executions have uploaded and not committed yet: their commit will list it.
    uploaded: Mutex<BTreeMap<ExecutionId, Vec<Output>>>,
}

impl Client {
    pub fn new(address: Address, key: &Key, patience: Patience) -> Result<Self, Error> {
        let key = HeaderMap::from_iter([(AUTHORIZATION, key.authorization()?)]);
        Ok(Client(Arc::new(Inner {
            http: RwLock::new(connections(&key, &address, patience)?),
            key,
            strangers: strangers(patience)?,
            address,
            patience,
            breaker: Breaker::default(),
            dismissed: SetOnce::new(),
            detour: Mutex::default(),
            uploaded: Mutex::default(),
        })))
    }

    pub fn address(&self) -> &Address {
        &self.0.address
    }

    pub(crate) fn patience(&self) -> Patience {
        self.0.patience
    }

    /// Returns when the server wants nothing more of this worker, with the reason.
    pub(crate) async fn dismissed(&self) -> String {
        self.0.dismissed.wait().await.clone()
    }

    pub(super) fn request<'a>(
        &self,
        method: Method,
        parts: impl IntoIterator<Item = &'a str>,
    ) -> RequestBuilder {
        let http = self.0.http.read().unwrap_or_else(PoisonError::into_inner).clone();
        let request = http.request(method, self.0.address.place(parts));
        match trace::current() {
            Some(context) => request.header(trace::HEADER, context),
            None => request,
        }
    }

    /// A request to somebody whom the server has named; it is told nothing of us.
    pub(super) fn stranger(&self, method: Method, url: &str) -> RequestBuilder {
        self.0.strangers.request(method, url)
    }

    /// Says something and reads the answer; it may take `longer` than usual.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        word: &str,
        body: &impl Serialize,
        longer: Duration,
    ) -> Result<T, Fault> {
        self.post_within(word, body, self.0.patience.answer + longer).await
    }

    /// Says something and waits this long for the answer.
    pub(super) async fn post_within<T: DeserializeOwned>(
        &self,
        word: &str,
        body: &impl Serialize,
        patience: Duration,
    ) -> Result<T, Fault> {
        let body = serde_json::to_vec(body).map_err(|error| Fault::Rejected {
            status: 0,
            code: "unspeakable".into(),
            detail: format!("cannot be put into JSON: {error}"),
        })?;
        let request = self.request(Method::POST, [word]).header(CONTENT_TYPE, "application/json").body(body);
        let asked = async {
            let response = fault::judge(request.send().await.map_err(Fault::of)?).await?;
            let body = fault::read(response, LONGEST_ANSWER).await?;
            serde_json::from_slice(&body)
                .map_err(|_| Fault::away("the answer is not what a Vodmill server would say"))
        };
        self.within(sleep(patience), asked).await
    }

    /// Sends a request about a file and waits for the beginning of the answer, until `too_long` ends.
    pub(super) async fn send(
        &self,
        request: RequestBuilder,
        too_long: impl Future<Output = ()>,
    ) -> Result<Response, Fault> {
        let asked = async { fault::judge(request.send().await.map_err(Fault::of)?).await };
        self.within(too_long, asked).await
    }

    /// As [`Client::send`] for a HEAD request.
    pub(super) async fn send_head(&self, request: RequestBuilder) -> Result<Response, Fault> {
        let asked = async { fault::judge_head(request.send().await.map_err(Fault::of)?) };
        self.within(sleep(self.0.patience.silence), asked).await
    }

    async fn within<T>(
        &self,
        too_long: impl Future<Output = ()>,
        asked: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let pass = self.pass()?;
        let answer = tokio::select! {
            answer = asked => answer,
            () = too_long => {
                self.drop_connections();
                Err(Fault::away("nothing moves, and nobody answers"))
            }
        };
        self.settle(pass, answer)
    }

    /// When one connection falls silent, those that are kept for later are as dead: each would be waited for in vain.
    /// Requests under way keep theirs.
    fn drop_connections(&self) {
        if let Ok(fresh) = connections(&self.0.key, &self.0.address, self.0.patience) {
            *self.0.http.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        }
    }

    fn pass(&self) -> Result<Pass<'_>, Fault> {
        self.0.breaker.enter(Instant::now().into_std()).ok_or_else(|| Fault::Away {
            why: "the server failed several times in a row and is left alone for a moment".into(),
            is_absent: true,
            is_storage: false,
        })
    }

    fn settle<T>(&self, pass: Pass<'_>, answer: Result<T, Fault>) -> Result<T, Fault> {
        match &answer {
            Err(Fault::Away { is_storage: false, .. }) => {
                pass.failed(Instant::now().into_std(), Jitter(rand::random_range(0..=1000)))
            }
            _ => pass.succeeded(),
        }
        if let Err(Fault::Dismissed(why)) = &answer
            && self.0.dismissed.set(why.clone()).is_ok()
        {
            error!("{why}");
        }
        answer
    }

    /// The way past the server is blocked: for a while all executions spare themselves the trying.
    pub(super) fn take_the_detour(&self) {
        let mut until = self.0.detour.lock().unwrap_or_else(PoisonError::into_inner);
        *until = Some(Instant::now() + DETOUR);
    }

    pub(super) fn is_on_the_detour(&self) -> bool {
        let until = self.0.detour.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn remember(&self, execution: ExecutionId, outputs: Vec<Output>) {
        self.uploaded().insert(execution, outputs);
    }

    pub(super) fn uploaded_by(&self, execution: ExecutionId) -> Vec<Output> {
        self.uploaded().get(&execution).cloned().unwrap_or_default()
    }

    pub(super) fn forget(&self, execution: ExecutionId) {
        self.uploaded().remove(&execution);
    }

    fn uploaded(&self) -> MutexGuard<'_, BTreeMap<ExecutionId, Vec<Output>>> {
        self.0.uploaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To the server, with the key.
fn connections(
    key: &HeaderMap,
    address: &Address,
    patience: Patience,
) -> Result<reqwest::Client, reqwest::Error> {
    outbound::choose_tls();
    let builder = reqwest::Client::builder()
        .user_agent(concat!("vodmill-worker/", env!("CARGO_PKG_VERSION")))
        .default_headers(key.clone())
        .connect_timeout(patience.connect)
        // The key is for this server and no other.
        .redirect(redirect::Policy::none())
        .referer(false)
        .http1_only();
    if address.is_loopback() { builder.no_proxy().build() } else { builder.build() }
}

fn strangers(patience: Patience) -> Result<reqwest::Client, reqwest::Error> {
    outbound::choose_tls();
    reqwest::Client::builder()
        .user_agent(concat!("vodmill-worker/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(patience.connect)
        .redirect(redirect::Policy::none())
        .referer(false)
        .http1_only()
        .build()
}
