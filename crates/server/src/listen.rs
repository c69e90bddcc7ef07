//! Connections: accepted up to their caps, given a while to say what they want, and let finish at the end.

use crate::auth;
use crate::client_address::{ClientAddresses, Peer, client_of};
use crate::connections::{Caps, Connections, Reached, Seat, Visitor};
use crate::guarded::{Answered, Deadlines, Guarded, Kept, Progress};
use crate::guesses::Guesses;
use crate::pace::Rate;
use crate::problem::Error;
use crate::request_id;
use axum::Router;
use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, Version, header};
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

/// What a head may take, and what is kept of an answer that the client has not taken yet.
pub const LARGEST_HEAD: usize = 32 << 10;

const MOST_HEADERS: usize = 100;

/// Connections that the kernel has taken and this process has not. A burst of a hostile client must not make the kernel
/// drop those of others.
const BACKLOG: u32 = 4096;

/// After an error such as too many open files there is nothing to do but wait.
const PAUSE: Duration = Duration::from_millis(200);

/// What is asked when the server is to end is answered within this. A silent client must not keep it from ending.
const FAREWELL: Duration = Duration::from_secs(10);

/// How often the log says which clients are refused.
const REPORTING: Duration = Duration::from_secs(10);

/// Binds an address that a flood of connections may come to.
pub async fn bind(address: &str) -> io::Result<TcpListener> {
    let mut failure = io::Error::new(io::ErrorKind::InvalidInput, "the name has no address");
    for address in tokio::net::lookup_host(address).await? {
        match bind_to(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn bind_to(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Whom to let in, and for how long to wait for them.
#[derive(Clone)]
pub struct Door {
    pub caps: Caps,
    pub rate: Rate,
    pub deadlines: Deadlines,
    pub addresses: ClientAddresses,
    /// Requests with credentials that were right before need not keep the pace of their address.
    pub guesses: Arc<Guesses>,
}

/// Serves until `ending`, and then for a while until everything asked before is answered.
pub async fn serve(listener: TcpListener, router: Router, door: Door, ending: impl Future<Output = ()>) {
    let mut http = http1::Builder::new();
    // The deadlines of `guarded` come first; this one is for what they might miss.
    let last_resort = door.deadlines.idle.max(door.deadlines.head) * 2;
    http.timer(TokioTimer::new()).header_read_timeout(last_resort);
    http.max_buf_size(LARGEST_HEAD).max_headers(MOST_HEADERS);
    let connections = Connections::new(door.caps, door.rate);
    let mut refusals = Refusals::default();
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
        let client = match Client::of(&door, &connections, from.ip()) {
            Ok(client) => client,
            Err(reached) => {
                refusals.note(from.ip(), reached);
                turn_away(stream, reached);
                continue;
            }
        };
        let (closing, client) = (client.seat.closing(), Arc::new(client));
        let stream = Guarded::new(at_once(stream), client.progress.clone());
        let router = TowerToHyperService::new(router.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            let (client, router) = (client.clone(), router.clone());
            async move { Ok::<_, Infallible>(client.answer(request, &router).await) }
        });
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let (connection, cut) = (open.watch(connection), cut.clone());
        tokio::spawn(async move {
            let connection = cut.run_until_cancelled(connection);
            if let Some(Some(Err(error))) = closing.run_until_cancelled(connection).await {
                tracing::trace!("a connection broke: {error}");
            }
        });
    }
    if tokio::time::timeout(FAREWELL, open.shutdown()).await.is_err() {
        tracing::warn!("cutting off those who are not done {FAREWELL:?} after the server was to end");
        cut.cancel();
    }
}

/// The other end of a connection.
struct Client {
    peer: IpAddr,
    addresses: ClientAddresses,
    guesses: Arc<Guesses>,
    /// None of a proxy: its clients are counted by request.
    visitor: Option<Arc<Visitor>>,
    progress: Arc<Progress>,
    seat: Seat,
}

impl Client {
    fn of(door: &Door, connections: &Arc<Connections>, peer: IpAddr) -> Result<Self, Reached> {
        let (seat, visitor) = if door.addresses.is_proxy(peer) {
            (connections.connect_proxy()?, None)
        } else {
            let (seat, visitor) = connections.connect(client_of(peer))?;
            (seat, Some(Arc::new(visitor)))
        };
        Ok(Client {
            peer,
            addresses: door.addresses.clone(),
            guesses: door.guesses.clone(),
            progress: Progress::new(door.deadlines, visitor.clone()),
            visitor,
            seat,
        })
    }

    async fn answer(&self, request: Request<Incoming>, router: &TowerToHyperService<Router>) -> Response {
        self.progress.answer();
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(Peer(self.peer));
        let visitor = match &self.visitor {
            Some(visitor) => Ok(visitor.clone()),
            None => self.seat.request(self.addresses.of(&parts)).map(Arc::new),
        };
        let own = self.visitor.clone();
        let may_idle = move || own.as_ref().is_none_or(|visitor| visitor.has_authenticated());
        let answered = Answered { progress: self.progress.clone(), may_idle: Box::new(may_idle) };
        let visitor = match visitor {
            Ok(visitor) => visitor,
            Err(reached) => return with(request_id::refusal(Error::TooManyConnections(reached)), answered),
        };
        // Strangers at the same address cannot make it wait.
        let is_known = auth::is_known(&parts.headers, &self.guesses);
        // While it waits it may be closed to make room: nobody may be there any more.
        if !is_known && visitor.keep_pace().await.is_err() {
            return with(closing(request_id::refusal(Error::TooManyRequests)), (answered, visitor));
        }
        if !visitor.take_up() {
            return with(request_id::refusal(Error::TooManyConnections(Reached::Total)), (answered, visitor));
        }
        if !names_one_host(&parts) {
            return with(request_id::refusal(bad_host()), (answered, visitor));
        }
        parts.extensions.insert(visitor.clone());
        let Ok(response) = router.call(Request::from_parts(parts, body)).await;
        // A client counts until it has its answer: a slow reader is at it for long.
        with(response, (answered, visitor))
    }
}

/// Nothing more is read of this connection, so that refusals have a bounded rate, too.
fn closing(mut response: Response) -> Response {
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// What stands in front of the server may take another of two hosts for the one that is meant.
fn names_one_host(parts: &Parts) -> bool {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    hosts == 1 || hosts == 0 && parts.version == Version::HTTP_10
}

fn bad_host() -> Error {
    let detail = "a request names its host in exactly one Host header".into();
    Error::Protocol { status: StatusCode::BAD_REQUEST, code: "bad_host", detail }
}

fn with<G: Send + Sync + Unpin + 'static>(response: Response, guard: G) -> Response {
    response.map(|body| Body::new(Kept::new(body, guard)))
}

/// Says why, if that is possible at once, and closes.
fn turn_away(stream: TcpStream, reached: Reached) {
    let (status, body) = (
        if reached == Reached::PerAddress {
            "429 Too Many Requests"
        } else {
            "503 Service Unavailable"
        },
        reached.detail(),
    );
    let body =
        format!("{{\"title\":\"{}\",\"code\":\"too_many_connections\",\"detail\":\"{body}\"}}", &status[4..]);
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\nRetry-After: 5\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    if let Ok(mut stream) = stream.into_std() {
        // It does not block: a new connection has room for this.
        let _ = stream.write_all(answer.as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
    }
}

/// Connections that were refused since the log last said so.
#[derive(Default)]
struct Refusals {
    reported: Option<Instant>,
    counts: HashMap<(IpAddr, &'static str), u64>,
}

impl Refusals {
    /// Addresses that one line of the log names.
    const MOST: usize = 16;

    fn note(&mut self, from: IpAddr, reached: Reached) {
        let key = (client_of(from), reached.setting());
        if self.counts.len() < Self::MOST || self.counts.contains_key(&key) {
            *self.counts.entry(key).or_default() += 1;
        }
        let now = Instant::now();
        if self.reported.is_none_or(|at| now.saturating_duration_since(at) >= REPORTING) {
            self.reported = Some(now);
            for ((from, setting), count) in self.counts.drain() {
                tracing::warn!("refused {count} connections from {from}; the setting {setting} is the limit");
            }
        }
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
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A worker's key that was right before.
    const KNOWN: &str = "a worker's key";

    const DOOR: Caps = Caps { total: 3, unauthenticated: 3, per_address: 2 };

    async fn start() -> SocketAddr {
        start_with(DOOR, Duration::from_secs(15)).await
    }

    async fn start_with(caps: Caps, head: Duration) -> SocketAddr {
        start_at(caps, head, Rate::default()).await
    }

    async fn start_at(caps: Caps, head: Duration, rate: Rate) -> SocketAddr {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let deadlines = Deadlines { head, idle: Duration::from_secs(120), write: Duration::from_secs(60) };
        let door = Door {
            caps,
            rate,
            deadlines,
            addresses: ClientAddresses::default(),
            guesses: Arc::new(Guesses::new(10)),
        };
        door.guesses.was_right(KNOWN);
        let endless = || async {
            Body::from_stream(futures_util::stream::repeat_with(|| {
                Ok::<_, Infallible>(bytes::Bytes::from_static(&[0; 1 << 16]))
            }))
        };
        let router = Router::new().route("/", get(|| async { "hello" })).route("/endless", get(endless));
        tokio::spawn(serve(listener, router, door, std::future::pending()));
        address
    }

    async fn rest(stream: &mut TcpStream) -> Vec<u8> {
        let mut answer = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    /// Time jumps ahead whenever nothing else can happen.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_sends_a_whole_head_is_closed() {
        let address = start().await;
        let begun = tokio::time::Instant::now();
        let mut half = TcpStream::connect(address).await.unwrap();
        half.write_all(b"GET / HTTP/1.1\r\nHost: ").await.unwrap();
        let mut silent = TcpStream::connect(address).await.unwrap();

        let answer = rest(&mut half).await;

        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{answer:?}");
        assert_eq!(rest(&mut silent).await, b"");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_in_has_no_more_time_than_one_that_stops() {
        let address = start().await;
        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        let mut sent = 0;

        while slow.write_all(b"X").await.is_ok() && sent < 100 {
            sent += 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }

        assert!(sent < 30, "{sent} bytes in as many seconds were taken");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_idles_after_an_answer_is_closed() {
        let address = start().await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        let begun = tokio::time::Instant::now();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();

        let answer = rest(&mut idle).await;

        assert!(answer.ends_with(b"hello"), "{}", String::from_utf8_lossy(&answer));
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_is_closed() {
        let address = start().await;
        let mut lazy = TcpStream::connect(address).await.unwrap();
        lazy.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();

        tokio::time::sleep(Duration::from_secs(200)).await;

        // What lies in the sockets' buffers, and then the end.
        let read = tokio::time::timeout(Duration::from_secs(1000), rest(&mut lazy)).await;
        assert!(read.is_ok(), "the connection is still open");
    }

    #[tokio::test]
    async fn connections_that_wait_make_room_and_those_that_are_answered_do_not() {
        let caps = Caps { total: 2, unauthenticated: 2, per_address: 9 };
        // No deadline closes anything here.
        let address = start_with(caps, Duration::from_secs(3600)).await;
        let mut reading = TcpStream::connect(address).await.unwrap();
        reading.write_all(b"GET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        reading.read_exact(&mut [0; 12]).await.unwrap();

        // One idles after its answer, the next sends half a head, and each makes room.
        let mut idle = TcpStream::connect(address).await.unwrap();
        idle.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 12];
        idle.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200");
        let mut half = connect_in_place_of(&mut idle, address).await;
        let mut last = connect_in_place_of(&mut half, address).await;
        last.write_all(b"ET /endless HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        last.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, b"HTTP/1.1 200");

        let mut refused = TcpStream::connect(address).await.unwrap();
        assert!(rest(&mut refused).await.starts_with(b"HTTP/1.1 503"));
        reading.read_exact(&mut vec![0; 8 << 20]).await.unwrap();
    }

    /// With the first byte of a head sent. For the server, an answer that has just been read may not be over yet, and then it
    /// refuses the new one.
    async fn connect_in_place_of(other: &mut TcpStream, address: SocketAddr) -> TcpStream {
        loop {
            let mut stream = TcpStream::connect(address).await.unwrap();
            let _ = stream.write_all(b"G").await;
            let mut byte = [0];
            tokio::select! {
                _ = rest(other) => return stream,
                _ = stream.read(&mut byte) => {}
                () = tokio::time::sleep(Duration::from_secs(60)) => panic!("the one that waits makes no room"),
            }
        }
    }

    #[tokio::test]
    async fn connections_beyond_the_cap_are_told_so_and_closed() {
        let address = start().await;
        let _held = [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];

        let mut third = TcpStream::connect(address).await.unwrap();
        let answer = String::from_utf8(rest(&mut third).await).unwrap();

        assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
        assert!(answer.contains("too_many_connections") && answer.contains("this address"), "{answer}");
        drop(_held);
        tokio::time::timeout(Duration::from_secs(60), async {
            loop {
                let mut again = TcpStream::connect(address).await.unwrap();
                again.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
                if rest(&mut again).await.ends_with(b"hello") {
                    break;
                }
            }
        })
        .await
        .unwrap();
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    /// All but the first request of an address wait, for as long as a test takes.
    const STANDSTILL: Rate = Rate {
        interval: Duration::from_secs(600),
        ahead: Duration::from_secs(600),
        patience: Duration::from_secs(600 * 4),
    };

    /// On a new connection from the same address.
    async fn ask_as_known(address: SocketAddr) -> Vec<u8> {
        let mut known = TcpStream::connect(address).await.unwrap();
        let head = format!("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KNOWN}\r\nConnection: close");
        known.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
        tokio::time::timeout(Duration::from_secs(30), rest(&mut known)).await.expect("it does not wait")
    }

    #[tokio::test]
    async fn what_closed_connections_asked_makes_others_wait_for_a_bounded_time_and_a_known_client_not_at_all()
     {
        let caps = Caps { total: 9, unauthenticated: 9, per_address: 9 };
        let address = start_at(caps, Duration::from_secs(15), STANDSTILL).await;
        // The first is answered, four wait, and then it is too much. Each closes before it has an answer.
        let mut refused = None;
        for _ in 0..50 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(GET).await.unwrap();
            let answer = tokio::time::timeout(Duration::from_millis(50), rest(&mut stream)).await;
            refused = answer.ok().filter(|answer| !answer.is_empty());
            if refused.is_some() {
                break;
            }
        }

        let refused = String::from_utf8(refused.unwrap()).unwrap();
        assert!(refused.starts_with("HTTP/1.1 429") && refused.contains("too_many_requests"), "{refused}");
        assert!(ask_as_known(address).await.ends_with(b"hello"));
    }

    #[tokio::test]
    async fn connections_whose_requests_wait_for_their_pace_make_room() {
        let caps = Caps { total: 2, unauthenticated: 2, per_address: 9 };
        let address = start_at(caps, Duration::from_secs(3600), STANDSTILL).await;
        let mut first = TcpStream::connect(address).await.unwrap();
        first.write_all(GET).await.unwrap();
        first.read_exact(&mut [0; 12]).await.unwrap();

        // The byte after the head hides from the server that they close.
        for _ in 0..2 {
            let mut gone = TcpStream::connect(address).await.unwrap();
            gone.write_all(&[GET, b"G"].concat()).await.unwrap();
        }

        assert!(ask_as_known(address).await.ends_with(b"hello"));
    }
}
