//! A line between two programs that stands still, or loses its connections, and tells nobody.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    There,
    Back,
}

pub struct SilentLine {
    port: u16,
    shared: Arc<Shared>,
}

/// Connections are numbered as they come.
#[derive(Default)]
struct Shared {
    is_still: [AtomicBool; 2],
    newest: AtomicU64,
    /// Connections up to this one are lost.
    lost: AtomicU64,
    /// Uploads of which half is still to be swallowed.
    uploads: AtomicU64,
    has_ended: AtomicBool,
}

impl SilentLine {
    /// `address` is a host and a port.
    pub fn to(address: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let line = SilentLine { port: listener.local_addr().unwrap().port(), shared: Arc::default() };
        let (shared, address) = (line.shared.clone(), address.to_owned());
        std::thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(&address) else { continue };
                let number = shared.newest.fetch_add(1, SeqCst) + 1;
                let (near2, far2) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (there, back) = (shared.clone(), shared.clone());
                std::thread::spawn(move || there.forward(near, far, number, Way::There));
                std::thread::spawn(move || back.forward(far2, near2, number, Way::Back));
            }
        });
        line
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Nothing goes this way, on old connections and on new ones.
    pub fn stand_still(&self, way: Way) {
        self.shared.is_still[way as usize].store(true, SeqCst);
    }

    /// What was held back arrives, and all goes on.
    pub fn go_on(&self) {
        self.shared.is_still.iter().for_each(|it| it.store(false, SeqCst));
    }

    /// The connections that are open now stay so, and nothing passes them any more.
    pub fn lose_connections(&self) {
        self.shared.lost.store(self.shared.newest.load(SeqCst), SeqCst);
    }

    /// Loses the connection of each of the next uploads, of which half has passed.
    pub fn lose_uploads(&self, uploads: u64) {
        self.shared.uploads.store(uploads, SeqCst);
    }

    pub fn uploads_to_lose(&self) -> u64 {
        self.shared.uploads.load(SeqCst)
    }
}

impl Drop for SilentLine {
    fn drop(&mut self) {
        self.shared.has_ended.store(true, SeqCst);
    }
}

impl Shared {
    fn forward(&self, mut from: TcpStream, mut to: TcpStream, number: u64, way: Way) {
        let (mut block, mut left) = ([0; 16 << 10], usize::MAX);
        while let Ok(read) = from.read(&mut block) {
            self.wait_while(|| self.is_still[way as usize].load(SeqCst) || self.lost.load(SeqCst) >= number);
            if let Some(half) = self.half_of_an_upload(&block[..read]) {
                left = half;
            }
            let pass = read.min(left);
            if to.write_all(&block[..pass]).is_err() {
                break;
            }
            left -= pass;
            self.wait_while(|| left == 0);
            if read == 0 {
                break;
            }
        }
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }

    fn wait_while(&self, is_so: impl Fn() -> bool) {
        while is_so() && !self.has_ended.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// How much of the upload that begins with this block passes, if it is one to be lost.
    fn half_of_an_upload(&self, block: &[u8]) -> Option<usize> {
        let text = String::from_utf8_lossy(block);
        let head = text.strip_prefix("PUT /api/worker/outputs/")?.split("\r\n\r\n").next()?;
        let length = |line: &str| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok();
        let body = head.lines().find_map(length).filter(|length| *length > 1)?;
        let begins = block.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
        let taken = self.uploads.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        taken.is_ok().then_some(begins + body / 2)
    }
}
