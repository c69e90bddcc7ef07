//! Files that go straight to and from where the server keeps them, by URLs that it gives for one execution.
//!
//! A URL that fails is asked for anew, and after a few failures in a row everything goes through the server, which can
//! reach the storage if anybody can. Nothing here speaks with the worker's key, and no URL is told to anybody.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Response;
use wire::Proof;
use wire::http::{Direct, DirectOutput, DirectRequest, DirectResponse};

use super::Client;
use super::fault::Fault;

/// So many failures in a row, and the way is taken for blocked.
const PATIENCE: u32 = 6;

/// Asks for this many at once.
pub(super) const BATCH: usize = 500;

/// A way past the server, as long as it is one.
#[derive(Debug)]
pub(super) struct Way {
    client: Client,
    proof: Proof,
    failures: AtomicU32,
    /// It was one, and often failed.
    is_broken: AtomicBool,
    source: Mutex<Option<Kept>>,
}

#[derive(Clone)]
struct Kept(Direct);

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("…")
    }
}

impl Way {
    pub fn new(client: &Client, proof: Proof) -> Self {
        let is_broken = client.is_on_the_detour();
        let failures = if is_broken { PATIENCE } else { 0 };
        Way {
            client: client.clone(),
            proof,
            failures: failures.into(),
            is_broken: is_broken.into(),
            source: Mutex::default(),
        }
    }

    pub fn is_open(&self) -> bool {
        self.failures.load(Ordering::Relaxed) < PATIENCE
    }

    pub fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    pub fn succeeded(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    pub fn failed(&self) {
        *self.kept() = None;
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 == PATIENCE {
            self.is_broken.store(true, Ordering::Relaxed);
            self.client.take_the_detour();
        }
    }

    fn close(&self) {
        self.failures.store(PATIENCE, Ordering::Relaxed);
    }

    /// Where the source can be read; none when only the server can.
    pub async fn source(&self) -> Result<Option<Direct>, Fault> {
        if !self.is_open() {
            return Ok(None);
        }
        if let Some(Kept(direct)) = self.kept().clone() {
            return Ok(Some(direct));
        }
        let told = self.ask(true, Vec::new()).await?;
        match &told.source {
            Some(direct) => *self.kept() = Some(Kept(direct.clone())),
            None => self.close(),
        }
        Ok(told.source)
    }

    /// Where these can be put, one for each; none when only the server takes them.
    pub async fn outputs(&self, outputs: &[DirectOutput]) -> Result<Vec<Direct>, Fault> {
        if !self.is_open() {
            return Ok(Vec::new());
        }
        let told = self.ask(false, outputs.to_vec()).await?.outputs;
        if told.len() == outputs.len() {
            return Ok(told);
        }
        self.close();
        Ok(Vec::new())
    }

    async fn ask(&self, source: bool, outputs: Vec<DirectOutput>) -> Result<DirectResponse, Fault> {
        let request = DirectRequest { proof: self.proof.lease_token(), source, outputs };
        match self.client.post("direct", &request, Duration::ZERO).await {
            // A server that knows no such word takes everything itself.
            Err(Fault::Rejected { .. }) => Ok(DirectResponse::default()),
            told => told,
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<Kept>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whatever else a store says is no judgement on the execution.
pub(super) fn judge(answer: Result<Response, reqwest::Error>) -> Result<Response, Fault> {
    let response = answer.map_err(Fault::of)?;
    match response.status() {
        status if status.is_success() => Ok(response),
        status => Err(Fault::away(format!("the storage answers {status}"))),
    }
}
