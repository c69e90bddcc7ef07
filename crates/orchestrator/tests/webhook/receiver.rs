//! A receiver of webhooks that answers as it was told.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// In place of a status: no answer at all.
pub const NEVER: u16 = 0;

pub struct Receiver {
    pub address: SocketAddr,
    heard: mpsc::UnboundedReceiver<Got>,
    serving: JoinHandle<()>,
}

#[derive(Debug)]
pub struct Got {
    pub path: String,
    headers: HeaderMap,
    pub body: String,
}

impl Got {
    pub fn header(&self, name: &str) -> String {
        self.headers[name].to_str().unwrap().to_owned()
    }
}

#[derive(Clone)]
struct Script {
    answers: Arc<Mutex<VecDeque<u16>>>,
    heard: mpsc::UnboundedSender<Got>,
}

impl Receiver {
    /// Gives these answers first, and 204 from then on.
    pub async fn start<const N: usize>(answers: [u16; N]) -> Self {
        Receiver::start_at("127.0.0.1:0".parse().unwrap(), answers).await
    }

    pub async fn start_at<const N: usize>(address: SocketAddr, answers: [u16; N]) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, heard) = mpsc::unbounded_channel();
        let script = Script { answers: Arc::new(Mutex::new(answers.into())), heard: sender };
        let app = Router::new().fallback(answer).with_state(script);
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Receiver { address, heard, serving }
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub async fn stop(self) {
        self.serving.abort();
        let _ = self.serving.await;
    }

    pub async fn next(&mut self) -> Got {
        tokio::time::timeout(Duration::from_secs(30), self.heard.recv()).await.expect("a request").unwrap()
    }

    pub fn heard(&mut self) -> Option<Got> {
        self.heard.try_recv().ok()
    }

    pub fn heard_nothing_more(&mut self) -> bool {
        self.heard().is_none()
    }
}

async fn answer(State(script): State<Script>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let answer = script.answers.lock().unwrap().pop_front().unwrap_or(204);
    let got = Got {
        path: parts.uri.path().to_owned(),
        headers: parts.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    };
    script.heard.send(got).unwrap();
    match answer {
        NEVER => std::future::pending().await,
        302 => (StatusCode::FOUND, [("location", "/other")]).into_response(),
        status => StatusCode::from_u16(status).unwrap().into_response(),
    }
}
