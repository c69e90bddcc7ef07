//! A server, the line to it, and a worker's end of it.

use std::sync::Arc;
use std::time::Duration;

use rules::{Fence, JobId, TaskId, Token, WorkerId};
use serde_json::{Value, json};
use tokio::time::Instant;
use wire::{Assignment, Proof};
use worker::Context;
use worker::remote::{Client, HttpDesk, Key, Patience};

use crate::line::Line;
use crate::server::Server;

pub const KEY: &str = "vmw_5up3r53cr3tk3y";

/// The lease's token, as it is written.
pub const TOKEN: &str = "7234567890123";

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(120);

pub fn play(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let ended = runtime.block_on(async { tokio::time::timeout(DEADLINE, test).await });
    ended.expect("waited in vain");
}

pub struct Scene {
    pub server: Arc<Server>,
    pub line: Line,
    pub client: Client,
    pub desk: HttpDesk,
    pub folder: tempfile::TempDir,
}

impl Scene {
    pub async fn new() -> Self {
        let server = Server::start().await;
        let line = Line::to(server.address()).await;
        let client = Scene::client_at(&line);
        let folder = tempfile::tempdir().unwrap();
        let desk = HttpDesk::new(client.clone(), folder.path());
        Scene { server, line, client, desk, folder }
    }

    /// A client of its own, with a breaker of its own.
    pub fn client_at(line: &Line) -> Client {
        let patience = Patience {
            connect: Duration::from_secs(5),
            silence: Duration::from_secs(6),
            answer: Duration::from_secs(10),
            source: Duration::from_secs(30),
        };
        Client::new(line.url().parse().unwrap(), &Key::new(KEY).unwrap(), patience).unwrap()
    }

    pub fn context(&self, job: &Assignment) -> Context {
        Context::new(job, self.folder.path().join("execution"), Instant::now())
    }
}

pub fn proof() -> Proof {
    let token = Token(TOKEN.parse().unwrap());
    Proof { task: TaskId::new(JobId(3), 1), fence: Fence(1), token, worker: WorkerId(uuid::Uuid::nil()) }
}

pub fn job() -> Assignment {
    assignment("probe", json!({ "source": "talk.mp4" }))
}

pub fn assignment(kind: &str, payload: Value) -> Assignment {
    Assignment {
        proof: proof(),
        job: JobId(3),
        stage: kind.into(),
        kind: kind.into(),
        payload,
        segment: 0,
        input: None,
        results: Default::default(),
        attempt: 1,
        max_attempts: 3,
        lease_ms: 60_000,
        timeout_ms: None,
        stall_ms: None,
        traceparent: None,
    }
}

/// Bytes in which every place is different.
pub fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise.truncate(bytes);
    noise
}
