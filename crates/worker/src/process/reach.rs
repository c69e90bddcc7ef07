//! What a command in a cage may reach.

use std::fmt;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;

/// Beside programs, libraries, fonts and GPU devices: nothing, but for this.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// Files, and folders with all they hold.
    pub reads: Vec<PathBuf>,
    /// Folders with all they hold.
    pub writes: Vec<PathBuf>,
    /// Default: no network.
    pub door: Option<Door>,
}

impl Reach {
    pub fn reading(path: impl Into<PathBuf>) -> Self {
        Reach { reads: vec![path.into()], ..Reach::default() }
    }

    pub fn through(door: Door) -> Self {
        Reach { door: Some(door), ..Reach::default() }
    }

    pub fn and_writing(mut self, folder: impl Into<PathBuf>) -> Self {
        self.writes.push(folder.into());
        self
    }
}

/// A port of 127.0.0.1 at which the worker serves. In a network namespace of its own the command finds the same port on
/// another listener, which the worker is handed to serve as well.
#[derive(Clone)]
pub struct Door {
    pub port: u16,
    serve: Arc<dyn Fn(TcpListener) + Send + Sync>,
}

impl Door {
    /// `serve` is called on the worker's runtime.
    pub fn new(port: u16, serve: impl Fn(TcpListener) + Send + Sync + 'static) -> Self {
        Door { port, serve: Arc::new(serve) }
    }

    pub(super) fn open(&self, listener: TcpListener) {
        (self.serve)(listener);
    }
}

impl fmt::Debug for Door {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Door").field("port", &self.port).finish_non_exhaustive()
    }
}
