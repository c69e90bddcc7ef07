//! A worker's settings.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rules::placement::Capabilities;

use crate::Admission;
use crate::handler::BoxFuture;

#[derive(Debug, Clone)]
pub struct Options {
    /// How people tell workers apart; need not be unique. Default: the machine's name.
    pub name: String,
    /// Default: local.
    pub kind: wire::Kind,
    /// How many tasks it works on at a time. Default: 1.
    pub slots: NonZeroU32,
    /// What it can do besides the kinds of work it has handlers for. Default: nothing.
    pub capabilities: Capabilities,
    /// What must be there for work to be taken. Default: nothing.
    pub admission: Admission,
    /// Between heartbeats, if the desk does not say; one is also sent when the worker becomes busy or idle. Default: 30 s.
    pub heartbeat_interval: Duration,
    /// The first pause when there is no work; each further one is twice as long. Default: 50 ms.
    pub idle_min: Duration,
    /// The longest pause when there is no work. A hint from the desk ends any pause. Default: 1 s.
    pub idle_max: Duration,
    /// The first pause when the desk is away, spread by a quarter either way. Default: 5 s.
    pub error_wait: Duration,
    /// The longest pause when the desk is away. Default: 30 s.
    pub error_wait_max: Duration,
    /// How long the desk may take to answer before it counts as away. Default: 30 s.
    pub answer_timeout: Duration,
    /// How long a draining worker goes on with what it has before it gives it back. Default: 5 min.
    pub drain_deadline: Duration,
    /// A worker that its desk asks to drain ends, unless this is set: then it stays, taking nothing, until it is enabled. For a
    /// process that goes on without its worker, and could not start another. Default: not set.
    pub outlives_drain: bool,
    /// A task that finds the disk full fails, as somebody waits who can make room. Default: not set, it is given back at no
    /// cost of an attempt, and the worker takes nothing new until there is room.
    pub fails_on_full_disk: bool,
    /// Makes [`run`](crate::run()) return when there is nothing left to do. Default: none, it waits for ever.
    pub exit_when_idle: Option<IsOver>,
    /// Where executions get their working directories. Must be on this machine; its workers share it.
    pub folder: PathBuf,
}

impl Options {
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Options {
            name: hostname(),
            kind: wire::Kind::Local,
            slots: NonZeroU32::MIN,
            capabilities: Capabilities::default(),
            admission: Admission::default(),
            heartbeat_interval: Duration::from_secs(30),
            idle_min: Duration::from_millis(50),
            idle_max: Duration::from_secs(1),
            error_wait: Duration::from_secs(5),
            error_wait_max: Duration::from_secs(30),
            answer_timeout: Duration::from_secs(30),
            drain_deadline: Duration::from_secs(300),
            outlives_drain: false,
            fails_on_full_disk: false,
            exit_when_idle: None,
            folder: folder.into(),
        }
    }
}

/// Asked each time the worker has nothing to do and finds nothing to claim; `true` ends it. Only the asker
/// can know: work that is not claimable yet (a backoff, a stage that waits for another worker) looks like
/// none.
#[derive(Clone)]
pub struct IsOver(Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>);

impl IsOver {
    pub fn new<F>(ask: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        IsOver(Arc::new(move || Box::pin(ask())))
    }

    pub(crate) async fn ask(&self) -> bool {
        (self.0)().await
    }
}

impl std::fmt::Debug for IsOver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IsOver(…)")
    }
}

pub(crate) fn hostname() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for the length given, less one byte that stays zero.
    let result = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    match String::from_utf8_lossy(&name[..end]) {
        name if result == 0 && !name.is_empty() => name.into_owned(),
        _ => "unknown".into(),
    }
}
