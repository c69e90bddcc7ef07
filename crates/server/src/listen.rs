//! Connections: taken, given a while to say what they want, and let finish at the end.

use crate::guesses::Peer;
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::io;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// For the head of a request, and between two requests of a connection. Longer than clients keep idle connections: one
/// that is closed from this side just when it is used again costs a repetition.
const SILENCE: Duration = Duration::from_secs(120);

/// What a head may take.
const LARGEST_HEAD: usize = 64 << 10;

/// After an error such as too many open files there is nothing to do but wait.
const PAUSE: Duration = Duration::from_millis(200);

/// What is asked when the server is to end is answered within this. A silent client must not keep it from ending.
const FAREWELL: Duration = Duration::from_secs(10);

/// Serves until `ending`, and then for a while until everything asked before is answered.
pub async fn serve(listener: TcpListener, router: Router, ending: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(SILENCE).max_buf_size(LARGEST_HEAD);
    let (open, cut) = (GracefulShutdown::new(), CancellationToken::new());
    let mut ending = std::pin::pin!(ending);
    loop {
        let (stream, from) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    pause_after(&error).await;
                    continue;
                }
            },
            () = &mut ending => break,
        };
        let router = TowerToHyperService::new(router.clone());
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Peer(from.ip()));
            router.call(request)
        });
        let connection = http.serve_connection(TokioIo::new(at_once(stream)), service);
        let (connection, cut) = (open.watch(connection), cut.clone());
        tokio::spawn(async move {
            if let Some(Err(error)) = cut.run_until_cancelled(connection).await {
                tracing::trace!("a connection broke: {error}");
            }
        });
    }
    if tokio::time::timeout(FAREWELL, open.shutdown()).await.is_err() {
        tracing::warn!("cutting off those who are not done {FAREWELL:?} after the server was to end");
        cut.cancel();
    }
}

/// Answers are small and wanted at once.
fn at_once(stream: TcpStream) -> TcpStream {
    let _ = stream.set_nodelay(true);
    stream
}

async fn pause_after(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!("cannot take connections, trying again: {error}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Time jumps ahead whenever nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn who_never_says_what_it_wants_is_left() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut slow = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        tokio::spawn(serve(listener, Router::new(), std::future::pending()));

        slow.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
        let mut answer = Vec::new();
        slow.read_to_end(&mut answer).await.unwrap();

        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
    }
}
