//! How a worker is asked to end: first gently, then at once.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::info;

/// Clones are one and the same; a [`child`](Shutdown::child) hears its parent, and not the other way round.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    drain: CancellationToken,
    give_back: CancellationToken,
}

impl Shutdown {
    pub fn new() -> Self {
        Self::default()
    }

    /// The first SIGTERM or SIGINT drains, the second gives back. Needs a tokio runtime.
    pub fn on_signals() -> io::Result<Self> {
        let shutdown = Self::new();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let asked = shutdown.clone();
        tokio::spawn(async move {
            for ask in [Shutdown::drain, Shutdown::give_back] {
                let name = tokio::select! {
                    _ = terminate.recv() => "SIGTERM",
                    _ = interrupt.recv() => "SIGINT",
                };
                info!("asked to end by {name}");
                ask(&asked);
            }
        });
        Ok(shutdown)
    }

    pub fn child(&self) -> Self {
        Shutdown { drain: self.drain.child_token(), give_back: self.give_back.child_token() }
    }

    /// Take nothing new, finish what is running.
    pub fn drain(&self) {
        self.drain.cancel();
    }

    /// End what is running and give it back.
    pub fn give_back(&self) {
        self.drain.cancel();
        self.give_back.cancel();
    }

    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    pub async fn draining(&self) {
        self.drain.cancelled().await;
    }

    pub async fn giving_back(&self) {
        self.give_back.cancelled().await;
    }
}
