//! A source at a server, for programs on this machine that can read a URL and nothing else: a tiny HTTP server on the
//! loopback interface, for one execution and as long as it lasts.
//!
//! Programs are given its URL and never the worker's key. Other users of the machine can see the URL among a program's
//! arguments, and have no use for it: a program in a network namespace of its own reads through a listener that exists
//! only in there, and the listener outside answers only to this user's processes. The path cannot be guessed all the
//! same, so that no page in this user's browser can ask for it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use axum::Router;
use axum::body::Body;
use axum::extract::connect_info::Connected;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use axum::http::{HeaderValue, Method, StatusCode, response};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::serve::{IncomingStream, Listener};
use futures_util::stream;
use rand::RngCore;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{Instrument, Span, warn};

use super::{Source, range};
use crate::process::Door;

/// How many chunks, of some hundred kilobytes at most, are fetched ahead of the reader.
const READ_AHEAD: usize = 16;

/// How many connections are served at a time; the programs that encode use one for each file that they open. Further ones
/// wait.
const CONNECTIONS: usize = 16;

/// Takes connections one by one, as places become free.
struct Limited {
    listener: TcpListener,
    places: Arc<Semaphore>,
    /// Its own address, where other users of the machine can reach it. They take no places: they are given nothing anyway.
    public: Option<SocketAddr>,
}

impl Limited {
    fn new(listener: TcpListener, public: Option<SocketAddr>) -> Self {
        Limited { listener, places: Arc::new(Semaphore::new(CONNECTIONS)), public }
    }
}

impl Listener for Limited {
    type Io = Placed;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Placed, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let place = match self.public {
            Some(own) if !super::peer::is_own_user(peer, own) => None,
            // The semaphore is never closed.
            _ => self.places.clone().acquire_owned().await.ok(),
        };
        (Placed { stream, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// Where a connection comes from.
#[derive(Debug, Clone, Copy)]
struct Peer(SocketAddr);

impl Connected<IncomingStream<'_, Limited>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Peer(*stream.remote_addr())
    }
}

/// A connection, with its place.
struct Placed {
    stream: TcpStream,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsyncRead for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Placed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Serves until dropped.
#[derive(Debug)]
pub struct Relay {
    source: Arc<Source>,
    door: Door,
    /// Of the server.
    authority: String,
    path: String,
    _ending: DropGuard,
}

#[derive(Clone)]
struct Shared {
    source: Arc<Source>,
    path: Arc<str>,
    ending: CancellationToken,
    /// Of the execution that reads.
    span: Span,
}

impl Shared {
    fn router(self) -> Router {
        Router::new().fallback(serve).with_state(self)
    }

    /// On a listener inside a program's own network namespace, where nobody else can be.
    fn serve_inside(self, listener: std::net::TcpListener) {
        let listener = listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener));
        match listener {
            Ok(listener) => {
                let ended = self.ending.clone().cancelled_owned();
                let router = self.router();
                let listener = Limited::new(listener, None);
                tokio::spawn(
                    async move { axum::serve(listener, router).with_graceful_shutdown(ended).await },
                );
            }
            Err(error) => warn!("cannot serve a source: {error}"),
        }
    }
}

impl Relay {
    pub async fn start(source: Source) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let authority = address.to_string();
        let path = format!("/{}/source{}", unguessable(), extension(source.name()));
        let (source, ending) = (Arc::new(source), CancellationToken::new());
        let shared = Shared {
            source: source.clone(),
            path: path.as_str().into(),
            ending: ending.clone(),
            span: Span::current(),
        };
        let router = shared.clone().router().layer(from_fn_with_state(address, answer_own_user));
        let service = router.into_make_service_with_connect_info::<Peer>();
        let listener = Limited::new(listener, Some(address));
        let ended = ending.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(listener, service).with_graceful_shutdown(ended).await });
        let door = Door::new(address.port(), move |listener| shared.clone().serve_inside(listener));
        Ok(Relay { source, door, authority, path, _ending: ending.drop_guard() })
    }

    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What a program on this machine reads it by.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.authority, self.path)
    }

    /// Where a program in a cage reads it.
    pub(crate) fn door(&self) -> Door {
        self.door.clone()
    }

    /// Host and port, as they stand in messages about connections.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

async fn answer_own_user(
    State(own): State<SocketAddr>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    request: Request,
    next: Next,
) -> Response {
    if super::peer::is_own_user(peer, own) {
        next.run(request).await
    } else {
        warn!("another user of this machine asked for a source; nothing was given");
        plain(StatusCode::FORBIDDEN)
    }
}

fn unguessable() -> String {
    let mut bytes = [0; 24];
    rand::rng().fill_bytes(&mut bytes);
    hex::encode(bytes)
}

/// Programs guess a format from the end of a name where the bytes leave them in doubt, so the URL ends as the name does.
fn extension(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((_, end)) if (1..=8).contains(&end.len()) && end.chars().all(|c| c.is_ascii_alphanumeric()) => {
            format!(".{end}")
        }
        _ => String::new(),
    }
}

async fn serve(State(shared): State<Shared>, request: Request) -> Response {
    if request.uri().path() != &*shared.path || shared.ending.is_cancelled() {
        return plain(StatusCode::NOT_FOUND);
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return plain(StatusCode::METHOD_NOT_ALLOWED);
    }
    let bytes = shared.source.bytes();
    let asked = request.headers().get(RANGE).map(|value| value.to_str().unwrap_or_default());
    let Some(range) = range::asked(asked, bytes) else {
        let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE);
        head(&mut response, CONTENT_RANGE, &format!("bytes */{bytes}"));
        return response;
    };
    let mut response = plain(if asked.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK });
    head(&mut response, ACCEPT_RANGES, "bytes");
    head(&mut response, CONTENT_TYPE, "application/octet-stream");
    head(&mut response, CONTENT_LENGTH, &(range.end - range.start).to_string());
    if asked.is_some() {
        head(&mut response, CONTENT_RANGE, &range::content(&range, bytes));
    }
    if request.method() == Method::GET {
        *response.body_mut() = body(shared, range);
    }
    response
}

/// Fetched a little ahead, by a task that ends when nobody reads any more.
fn body(shared: Shared, range: std::ops::Range<u64>) -> Body {
    let (to, mut chunks) = mpsc::channel(READ_AHEAD);
    let span = shared.span.clone();
    let bring = async move {
        let left = to.clone();
        tokio::select! {
            () = shared.source.bring(range, to) => {}
            () = left.closed() => {}
            () = shared.ending.cancelled() => {}
        }
    };
    tokio::spawn(bring.instrument(span));
    Body::from_stream(stream::poll_fn(move |cx| chunks.poll_recv(cx)))
}

fn plain(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn head(response: &mut response::Response<Body>, name: axum::http::HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_extension_is_passed_on() {
        assert_eq!(extension("talk.MOV"), ".MOV");
        assert_eq!(extension("a.b/c d.mkv"), ".mkv");
        for none in ["talk", "talk.", "talk.a b", "talk.%2e", "talk.notanextension", "a.ü"] {
            assert_eq!(extension(none), "", "{none}");
        }
    }
}
