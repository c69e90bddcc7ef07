//! A line between two programs: it counts what passes, and can be made to fail.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Good,
    /// Of each connection, drawn from the seed: refused with 503, slow, cut after some bytes, or good.
    Moody,
    /// Nobody answers.
    Down,
}

#[derive(Clone)]
pub struct Line {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    to: u16,
    mood: Mutex<Mood>,
    random: Mutex<StdRng>,
    passed: AtomicU64,
    /// How many connections were refused or cut.
    struck: AtomicU64,
}

enum Fate {
    Whole,
    Slow,
    Refused,
    /// After so many bytes from the other end.
    Cut(usize),
}

impl Line {
    pub fn to(url: &str, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            to: url.rsplit(':').next().unwrap().trim_end_matches('/').parse().unwrap(),
            mood: Mutex::new(Mood::Good),
            random: Mutex::new(StdRng::seed_from_u64(seed)),
            passed: AtomicU64::new(0),
            struck: AtomicU64::new(0),
        });
        let line = Line { port, shared: shared.clone() };
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

    pub fn set(&self, mood: Mood) {
        *self.shared.mood.lock().unwrap() = mood;
    }

    /// Bytes, both ways.
    pub fn passed(&self) -> u64 {
        self.shared.passed.load(Ordering::Relaxed)
    }

    pub fn struck(&self) -> u64 {
        self.shared.struck.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn carry(&self, mut near: TcpStream) {
        let fate = match *self.mood.lock().unwrap() {
            Mood::Good => Fate::Whole,
            Mood::Down => return,
            Mood::Moody => self.draw(),
        };
        match fate {
            Fate::Refused => {
                self.struck.fetch_add(1, Ordering::Relaxed);
                let _ = near.read(&mut [0; 4096]);
                let _ = near
                    .write_all(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
            Fate::Slow => {
                std::thread::sleep(Duration::from_millis(300));
                self.join(near, usize::MAX);
            }
            Fate::Whole => self.join(near, usize::MAX),
            Fate::Cut(after) => {
                self.struck.fetch_add(1, Ordering::Relaxed);
                self.join(near, after);
            }
        }
    }

    fn draw(&self) -> Fate {
        let mut random = self.random.lock().unwrap();
        match random.random_range(0..10) {
            0 | 1 => Fate::Refused,
            2 => Fate::Slow,
            3..=5 => Fate::Cut(random.random_range(0..60_000)),
            // Not for ever: or a connection that is kept would never meet the mood.
            _ => Fate::Cut(random.random_range(60_000..600_000)),
        }
    }

    /// `limit` is how much comes back before the line is cut.
    fn join(&self, near: TcpStream, limit: usize) {
        let Ok(far) = TcpStream::connect(("127.0.0.1", self.to)) else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| self.pour(&near, &far, usize::MAX));
            self.pour(&far, &near, limit);
        });
    }

    fn pour(&self, mut from: &TcpStream, mut to: &TcpStream, limit: usize) {
        let (mut block, mut left) = (vec![0; 16 << 10], limit);
        loop {
            let wanted = block.len().min(left);
            if wanted == 0 || *self.mood.lock().unwrap() == Mood::Down {
                break;
            }
            match from.read(&mut block[..wanted]) {
                Ok(read) if read > 0 && to.write_all(&block[..read]).is_ok() => {
                    self.passed.fetch_add(read as u64, Ordering::Relaxed);
                    left -= read;
                }
                _ => break,
            }
        }
        for end in [from, to] {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}
