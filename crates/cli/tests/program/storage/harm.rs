//! A line to the storage that knows requests when it sees them, and does one kind of harm to those of some methods.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// All but the last four come to every second request for each object, beginning with the first. All listings are one
/// object: of those who list at the same time, one may come to harm again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// 500
    Error,
    /// 503, as S3 says it
    SlowDown,
    /// The answer comes late.
    Slow,
    /// Of an object that is read half comes, of one that is written half goes.
    Truncated,
    /// The connection is cut before anything is done.
    Cut,
    /// It is done, and the answer gets lost.
    Unanswered,
    /// What is read does not come, but for the first bytes of a file, for as long as the harm lasts.
    StuckReading,
    /// 500 to every request, for as long as the harm lasts.
    Failing,
    /// The same to all that writes.
    FailingWriting,
    /// Every answer takes seconds.
    Crawling,
}

#[derive(Clone)]
pub struct Harmed {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    to: u16,
    harm: Mutex<Option<Harm>>,
    /// Of each method that comes to harm: how many requests did.
    struck: [(&'static str, AtomicUsize); 2],
    /// Of each method and object: how many requests came.
    came: Mutex<HashMap<String, usize>>,
}

/// A request whose body is still to come, but for its first bytes.
struct Request {
    head: String,
    body: Vec<u8>,
}

impl Harmed {
    pub fn before(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap(),
            harm: Mutex::new(None),
            struck: ["GET", "PUT"].map(|method| (method, AtomicUsize::new(0))),
            came: Mutex::default(),
        });
        let line = Harmed { port, shared: shared.clone() };
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                let shared = shared.clone();
                std::thread::spawn(move || shared.carry(connection));
            }
        });
        line
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn set(&self, harm: Option<Harm>) {
        *self.shared.harm.lock().unwrap() = harm;
    }

    /// How many requests of each method came to harm.
    pub fn struck(&self) -> [(&'static str, usize); 2] {
        [0, 1].map(|at| {
            let (method, struck) = &self.shared.struck[at];
            (*method, struck.load(Ordering::Relaxed))
        })
    }
}

impl Shared {
    fn carry(&self, mut near: TcpStream) -> Option<()> {
        let request = Request::read(&mut near)?;
        match self.harm_to(&request) {
            None => self.pass(&near, &request, usize::MAX, true),
            Some(Harm::Slow) => {
                std::thread::sleep(Duration::from_millis(700));
                self.pass(&near, &request, usize::MAX, true)
            }
            Some(Harm::Crawling) => {
                std::thread::sleep(Duration::from_secs(2));
                self.pass(&near, &request, usize::MAX, true)
            }
            Some(Harm::Error | Harm::Failing | Harm::FailingWriting) => {
                request.refuse(near, "500 Internal Server Error", "InternalError")
            }
            Some(Harm::SlowDown) => request.refuse(near, "503 Slow Down", "SlowDown"),
            Some(Harm::Truncated) => self.pass(&near, &request, usize::MAX, false),
            Some(Harm::Cut) => None,
            Some(Harm::Unanswered) => self.pass(&near, &request, 0, true),
            Some(Harm::StuckReading) => {
                while *self.harm.lock().unwrap() == Some(Harm::StuckReading) {
                    std::thread::sleep(Duration::from_millis(20));
                }
                None
            }
        }
    }

    fn harm_to(&self, request: &Request) -> Option<Harm> {
        let harm = (*self.harm.lock().unwrap())?;
        let is_meant = |method: &str| request.head.starts_with(&format!("{method} "));
        let (method, struck) = self.struck.iter().find(|(method, _)| is_meant(method))?;
        let is_struck = match harm {
            Harm::StuckReading => *method == "GET" && !request.head.contains("bytes=0-511"),
            Harm::Failing | Harm::Crawling => true,
            Harm::FailingWriting => *method == "PUT",
            _ => {
                let object = request.head.split(['?', '\r']).next().unwrap_or_default();
                let object = object.trim_end_matches(" HTTP/1.1").to_owned();
                let mut came = self.came.lock().unwrap();
                let times = came.entry(object).or_default();
                *times += 1;
                *times % 2 == 1
            }
        };
        struck.fetch_add(usize::from(is_struck), Ordering::Relaxed);
        is_struck.then_some(harm)
    }

    /// Passes a request on and its answer back; of that no more than `limit`, and of either only half if not whole.
    fn pass(&self, mut near: &TcpStream, request: &Request, limit: usize, is_whole: bool) -> Option<()> {
        let mut far = TcpStream::connect(("127.0.0.1", self.to)).ok()?;
        far.write_all(request.head.as_bytes()).ok()?;
        let length = request.length();
        let sent = if is_whole { length } else { length / 2 };
        let begun = request.body.len().min(sent);
        far.write_all(&request.body[..begun]).ok()?;
        std::io::copy(&mut near.take((sent - begun) as u64), &mut far).ok()?;
        if sent < length {
            let _ = far.shutdown(Shutdown::Both);
            return None;
        }
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).ok()?;
        let shown = if is_whole { limit } else { answer.len() / 2 };
        near.write_all(&answer[..shown.min(answer.len())]).ok()
    }
}

impl Request {
    /// One for each connection: the storage is told to close it.
    fn read(near: &mut TcpStream) -> Option<Self> {
        let (mut read, mut block) = (Vec::new(), [0; 8 << 10]);
        let end = loop {
            if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            match near.read(&mut block) {
                Ok(bytes) if bytes > 0 => read.extend_from_slice(&block[..bytes]),
                _ => return None,
            }
        };
        let head = String::from_utf8_lossy(&read[..end]).into_owned();
        let lines = head.lines().filter(|line| !line.to_lowercase().starts_with("connection:"));
        let head = format!("{}\r\nConnection: close\r\n\r\n", lines.collect::<Vec<_>>().join("\r\n"));
        Some(Request { head, body: read.split_off(end + 4) })
    }

    fn length(&self) -> usize {
        let header = self.head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        header.unwrap_or(0)
    }

    fn refuse(&self, mut near: TcpStream, status: &str, code: &str) -> Option<()> {
        let rest = self.length().saturating_sub(self.body.len());
        std::io::copy(&mut (&near).take(rest as u64), &mut std::io::sink()).ok()?;
        let body = format!("<Error><Code>{code}</Code><Message>a test wants it so</Message></Error>");
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        near.write_all(format!("{head}{body}").as_bytes()).ok()
    }
}
