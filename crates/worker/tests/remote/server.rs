//! A server as the contract has it, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use futures_util::StreamExt;
use rules::task::Refusal;
use rules::worker::Status;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;
use tokio::sync::watch;
use wire::http::{ClaimResponse, HeartbeatResponse, Problem, ProgressResponse, Verdict, header};
use wire::{Assignment, LeaseToken};

use crate::scene::{KEY, proof};

pub struct Server {
    address: SocketAddr,
    state: Mutex<Desk>,
    /// Grows with each change.
    version: watch::Sender<u64>,
}

/// What the server knows, and how it behaves.
#[derive(Default)]
pub struct Desk {
    /// What it was told, by the last part of the URL.
    pub said: Vec<(String, Value)>,
    /// Each request, as its first line and the `Range` or `Content-Range` that came with it.
    pub asked: Vec<String>,
    pub tasks: VecDeque<Assignment>,
    pub source: Vec<u8>,
    pub etag: String,
    pub outputs: BTreeMap<String, Vec<u8>>,
    /// Bytes of bodies it has received with outputs.
    pub received: usize,
    /// What it answers to words and requests about an execution.
    pub refusal: Option<Refusal>,
    /// So many times only.
    pub refusals_left: Option<usize>,
    /// The problem it answers everything with: status, code.
    pub problem: Option<(u16, &'static str)>,
    /// Another process has come with the same key.
    pub supersedes: bool,
    /// It is of a version that knows no `storage_away`.
    pub is_older: bool,
    /// It takes the next file for damaged.
    pub sees_damage: bool,
}

impl Server {
    pub async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Desk { etag: "\"one\"".into(), ..Desk::default() };
        let server = Arc::new(Server {
            address: listener.local_addr().unwrap(),
            state: Mutex::new(state),
            version: watch::channel(0).0,
        });
        let router = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn with<T>(&self, change: impl FnOnce(&mut Desk) -> T) -> T {
        let result = change(&mut self.state.lock().unwrap());
        self.version.send_modify(|version| *version += 1);
        result
    }

    pub async fn until(&self, mut holds: impl FnMut(&Desk) -> bool) {
        let mut version = self.version.subscribe();
        while !holds(&self.state.lock().unwrap()) {
            version.changed().await.unwrap();
        }
    }

    /// What was said with this word, in order.
    pub fn said(&self, word: &str) -> Vec<Value> {
        self.with(|desk| {
            desk.said.iter().filter(|(said, _)| said == word).map(|(_, body)| body.clone()).collect()
        })
    }

    pub fn asked(&self, words: &str) -> Vec<String> {
        self.with(|desk| desk.asked.iter().filter(|line| line.contains(words)).cloned().collect())
    }

    async fn hear(&self, word: &str, body: Body) -> Result<Response, Response> {
        let body: Value = serde_json::from_slice(&to_bytes(body, usize::MAX).await.unwrap()).unwrap();
        self.with(|desk| desk.said.push((word.into(), body.clone())));
        if matches!(word, "heartbeat" | "claim") && self.with(|desk| desk.supersedes) {
            return Err(problem(409, "superseded", None));
        }
        if word == "fail" && body["kind"] == "storage_away" && self.with(|desk| desk.is_older) {
            return Err(problem(422, "invalid", None));
        }
        let refusal = self.refusal();
        if let (Some(refusal), false) = (refusal, matches!(word, "heartbeat" | "claim" | "progress")) {
            return Err(refused(refusal));
        }
        let verdict = refusal.map_or(Verdict::Accepted, |refusal| Verdict::Refused { refusal });
        Ok(match word {
            "heartbeat" => json(&HeartbeatResponse {
                status: Status::Idle,
                heartbeat_interval_ms: 750,
                lease_ms: 60_000,
                server_version: "0.1.0".into(),
                worker_id: None,
            }),
            "claim" => json(&self.claim(&body).await),
            "progress" => {
                let reports = body["reports"].as_array().unwrap().len();
                json(&ProgressResponse { answers: vec![verdict; reports] })
            }
            _ => json(&verdict),
        })
    }

    async fn claim(&self, body: &Value) -> ClaimResponse {
        let max = body["max"].as_u64().unwrap() as usize;
        if body["wait_ms"].as_u64().unwrap() > 0 {
            self.until(|desk| !desk.tasks.is_empty()).await;
        }
        self.with(|desk| {
            let taken = max.min(desk.tasks.len());
            let has_work = !desk.tasks.is_empty();
            ClaimResponse { has_work, assignments: desk.tasks.drain(..taken).collect() }
        })
    }

    fn refusal(&self) -> Option<Refusal> {
        self.with(|desk| match &mut desk.refusals_left {
            Some(0) => None,
            left => {
                left.as_mut().into_iter().for_each(|left| *left -= 1);
                desk.refusal
            }
        })
    }

    fn source(&self, headers: &HeaderMap) -> Result<Response, Response> {
        self.check_proof(headers)?;
        self.with(|desk| {
            let whole = desk.source.len();
            let asked = headers["range"].to_str().unwrap().strip_prefix("bytes=").unwrap();
            let (first, last) = asked.split_once('-').unwrap();
            let first: usize = first.parse().unwrap();
            if first >= whole {
                let response =
                    Response::builder().status(416).header("content-range", format!("bytes */{whole}"));
                return Err(response.body(Body::empty()).unwrap());
            }
            let last = last.parse().unwrap_or(usize::MAX).min(whole - 1);
            let builder = Response::builder()
                .status(StatusCode::PARTIAL_CONTENT)
                .header("etag", &desk.etag)
                .header("content-range", format!("bytes {first}-{last}/{whole}"));
            Ok(builder.body(Body::from(desk.source[first..=last].to_vec())).unwrap())
        })
    }

    fn check_proof(&self, headers: &HeaderMap) -> Result<(), Response> {
        let shown = LeaseToken::from_header(headers[header::PROOF].to_str().unwrap()).unwrap();
        assert_eq!(shown.token, proof().token);
        self.refusal().map_or(Ok(()), |refusal| Err(refused(refusal)))
    }

    fn offset(&self, path: &str) -> Response {
        if self.with(|desk| desk.refusal).is_some() {
            return plain(409);
        }
        match self.with(|desk| desk.outputs.get(path).map(Vec::len)) {
            None => plain(404),
            Some(offset) => {
                Response::builder().header(header::UPLOAD_OFFSET, offset).body(Body::empty()).unwrap()
            }
        }
    }

    async fn put(&self, path: &str, headers: HeaderMap, body: Body) -> Result<Response, Response> {
        self.check_proof(&headers)?;
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        let length: usize = text("content-length").unwrap().parse().unwrap();
        let (offset, whole) = match text("content-range") {
            None => (0, length),
            Some(range) => {
                let (first, rest) = range.strip_prefix("bytes ").unwrap().split_once('-').unwrap();
                (first.parse().unwrap(), rest.split_once('/').unwrap().1.parse().unwrap())
            }
        };
        self.with(|desk| {
            let file = desk.outputs.entry(path.into()).or_default();
            assert!(offset <= file.len(), "a hole in {path}");
            file.truncate(offset);
        });
        let mut chunks = body.into_data_stream();
        while let Some(chunk) = chunks.next().await {
            let Ok(chunk) = chunk else { return Err(plain(400)) };
            self.with(|desk| {
                desk.received += chunk.len();
                desk.outputs.get_mut(path).unwrap().extend_from_slice(&chunk);
            });
        }
        let (file, sees_damage) =
            self.with(|desk| (desk.outputs[path].clone(), std::mem::take(&mut desk.sees_damage)));
        let hash = hex::encode(Sha256::digest(&file));
        if file.len() != whole || hash != text(header::SHA256).unwrap() || sees_damage {
            self.with(|desk| desk.outputs.remove(path));
            return Err(problem(422, "hash_mismatch", None));
        }
        Ok(plain(201))
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().strip_prefix("/api/worker/").expect("below the API for workers").to_owned();
    let range = parts.headers.get("range").or(parts.headers.get("content-range"));
    let range = range.map_or("", |range| range.to_str().unwrap());
    server.with(|desk| desk.asked.push(format!("{} {path} {range}", parts.method)));
    let answered = async {
        if parts.headers.get("authorization").is_none_or(|key| key != &format!("Bearer {KEY}")) {
            return Err(problem(401, "unauthorized", None));
        }
        if let Some((status, code)) = server.with(|desk| desk.problem) {
            return Err(problem(status, code, None));
        }
        match (parts.method, path.strip_prefix("outputs/")) {
            (Method::HEAD, Some(path)) => Ok(server.offset(path)),
            (Method::PUT, Some(path)) => server.put(path, parts.headers, body).await,
            (Method::GET, None) if path == "source" => server.source(&parts.headers),
            (Method::POST, None) => server.hear(&path, body).await,
            other => panic!("{other:?} {path} is not in the contract"),
        }
    };
    let mut response = answered.await.unwrap_or_else(|error| error);
    // Each request on a connection of its own, so that the line can tell them apart.
    response.headers_mut().insert("connection", "close".parse().unwrap());
    response
}

fn json(value: &impl serde::Serialize) -> Response {
    let body = Body::from(serde_json::to_vec(value).unwrap());
    Response::builder().header("content-type", "application/json").body(body).unwrap()
}

fn plain(status: u16) -> Response {
    Response::builder().status(status).body(Body::empty()).unwrap()
}

fn refused(refusal: Refusal) -> Response {
    problem(409, "refused", Some(refusal))
}

fn problem(status: u16, code: &str, refusal: Option<Refusal>) -> Response {
    let problem = Problem {
        kind: format!("/problems/{code}"),
        title: code.into(),
        status,
        detail: format!("because of {code}"),
        code: code.into(),
        request_id: None,
        refusal,
    };
    let mut response = json(&problem);
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response.headers_mut().insert("content-type", "application/problem+json".parse().unwrap());
    response
}
