//! The source file of an execution's job, wherever it is kept.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use files::Bucket;
use rules::failure::Kind;
use rules::task::Refusal;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};
use wire::Proof;

use super::fault::Fault;
use super::origin::{Answer, Origin, Versions};
use super::{Client, Patience};
use crate::Context;
use crate::handler::Failed;
use crate::pace::Pace;
use crate::process::{Held, Progress};
use crate::stop::Stop;

/// How much is asked for in one request: little at first, for a reader that looks here and there, and more and more
/// for one that reads on. What a reader that goes elsewhere leaves unread is wasted.
const FIRST_WINDOW: u64 = 1 << 20;
const LARGEST_WINDOW: u64 = 32 << 20;

/// Enough to tell a web page from a program.
const HEAD: u64 = 512;

const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Where chunks go; whoever reads them may leave at any time.
pub(super) type Chunks = mpsc::Sender<std::io::Result<Bytes>>;

/// A file that stays the same from the first byte read to the last, or is not read on.
#[derive(Debug)]
pub struct Source {
    origin: Origin,
    /// How people know the file.
    name: String,
    versions: Versions,
    head: Vec<u8>,
    progress: Progress,
    ending: Stop,
    bytes_in: AtomicU64,
    trouble: OnceLock<Trouble>,
    /// Why the last try to read on failed, until one succeeds.
    absence: Mutex<Option<String>>,
    patience: Patience,
}

/// Why it cannot be read on. Final for this execution.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Trouble {
    Changed,
    Gone(String),
    Lost(Refusal),
    Away(String),
    Unreachable(String),
}

impl Trouble {
    fn told(&self, name: &str) -> Failed {
        match self {
            Trouble::Changed => {
                Failed::permanent(format!("{name} was changed while a stream was made of it"))
            }
            Trouble::Gone(why) => Failed::permanent(format!("{name}: {why}")),
            Trouble::Lost(refusal) => Failed::transient(refusal.to_string()),
            Trouble::Away(why) => Failed::storage_away(format!("{name} cannot be read now: {why}")),
            Trouble::Unreachable(why) => Failed::transient(format!("{name} cannot be read: {why}")),
        }
    }

    /// Who has lost its lease need not go on.
    fn end(&self, ending: &Stop) {
        if let Trouble::Lost(refusal) = self {
            ending.stop((*refusal).into());
        }
    }

    fn of(fault: Fault) -> Self {
        match fault {
            Fault::Refused(refusal) => Trouble::Lost(refusal),
            Fault::Rejected { status: 404 | 410, detail, .. } => Trouble::Gone(detail),
            // There is less of it than there was.
            Fault::Rejected { status: 416, .. } => Trouble::Changed,
            Fault::Away { why, .. } => Trouble::Away(why),
            Fault::Dismissed(_) | Fault::Rejected { .. } => Trouble::Unreachable(fault.to_string()),
        }
    }
}

impl Source {
    /// Finds the file and looks at its beginning. While the server is away this waits, and nothing counts as progress.
    pub async fn open(client: &Client, proof: Proof, name: &str, context: &Context) -> Result<Self, Failed> {
        Source::open_at(Origin::server(client, proof), name, context).await
    }

    /// As [`Source::open`] for a worker that reaches the bucket itself, where the file has this name.
    pub async fn open_in(bucket: &Bucket, name: &str, context: &Context) -> Result<Self, Failed> {
        Source::open_at(Origin::Bucket(bucket.clone(), name.into()), name, context).await
    }

    async fn open_at(origin: Origin, name: &str, context: &Context) -> Result<Self, Failed> {
        let patience = origin.patience().within(context.stall());
        let mut wait = Wait::new(patience, &context.progress);
        let (versions, head) = loop {
            wait.asking();
            let fault = match look(&origin, patience.silence).await {
                Ok(found) => break found,
                Err(Fault::Rejected { status: 416, .. }) => {
                    return Err(Failed::permanent(format!("{name}: the file is empty: upload it again")));
                }
                Err(fault) => fault,
            };
            debug!("{name} cannot be opened: {fault}");
            if let Err(trouble) = wait.after(fault).await {
                trouble.end(context.ending());
                return Err(trouble.told(name));
            }
        };
        Ok(Source {
            origin,
            name: name.into(),
            versions,
            bytes_in: AtomicU64::new(head.len() as u64),
            head,
            progress: context.progress.clone(),
            ending: context.ending().clone(),
            trouble: OnceLock::new(),
            absence: Mutex::default(),
            patience,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn bytes(&self) -> u64 {
        self.versions.bytes()
    }

    /// Its first bytes, some hundred.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// How much was fetched so far, of what was read and what was not.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load(Ordering::Relaxed)
    }

    /// Why it cannot be read on, if so: then whatever was made of it is not to be used.
    pub fn trouble(&self) -> Option<Failed> {
        self.trouble.get().map(|trouble| trouble.told(&self.name))
    }

    /// Puts a failure of those who read it down to the storage, if that did not answer at the time.
    pub fn blame(&self, failed: Failed) -> Failed {
        match (failed.kind, &*self.absence()) {
            (Kind::Transient, Some(why)) => {
                Failed::storage_away(format!("{} could not be read on: {why}; {failed}", self.name))
            }
            _ => failed,
        }
    }

    fn absence(&self) -> MutexGuard<'_, Option<String>> {
        self.absence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings these bytes, in order and each once, whatever happens on the way; or an error, and the trouble is known.
    pub(super) async fn bring(self: Arc<Self>, range: Range<u64>, to: Chunks) {
        let (mut at, mut window) = (range.start, FIRST_WINDOW);
        let mut wait = Wait::new(self.patience, &self.progress);
        while at < range.end {
            let end = range.end.min(at + window);
            match self.bring_window(&mut at, end, &to, &mut wait).await {
                Ok(true) => window = LARGEST_WINDOW.min(window * 2),
                // Nobody reads on.
                Ok(false) => return,
                Err(fault) => {
                    debug!("reading {} broke off at byte {at} of {}: {fault}", self.name, self.bytes());
                    if let Fault::Away { why, .. } = &fault {
                        *self.absence() = Some(why.clone());
                    }
                    if let Err(trouble) = wait.after(fault).await {
                        info!("cannot read on in {}: {trouble:?}", self.name);
                        trouble.end(&self.ending);
                        let _ = self.trouble.set(trouble);
                        let _ = to.send(Err(std::io::Error::other("the source cannot be read on"))).await;
                        return;
                    }
                }
            }
        }
    }

    /// Whether somebody still reads.
    async fn bring_window(
        &self,
        at: &mut u64,
        end: u64,
        to: &Chunks,
        wait: &mut Wait,
    ) -> Result<bool, Fault> {
        let silence = self.patience.silence;
        wait.asking();
        let mut answer = self.origin.fetch(&(*at..end), silence).await?;
        self.check(&answer, *at)?;
        while *at < end {
            wait.asking();
            let next = answer.next(silence).await;
            self.origin.settle(answer.is_direct(), next.is_ok());
            let mut chunk = next?;
            chunk.truncate(usize::try_from(end - *at).unwrap_or(usize::MAX));
            let length = chunk.len() as u64;
            self.bytes_in.fetch_add(length, Ordering::Relaxed);
            wait.moved();
            *self.absence() = None;
            if to.send(Ok(chunk)).await.is_err() {
                return Ok(false);
            }
            *at += length;
        }
        Ok(true)
    }

    fn check(&self, answer: &Answer, at: u64) -> Result<(), Fault> {
        if !self.versions.agree(answer) {
            return Err(Fault::Rejected { status: 416, code: String::new(), detail: "changed".into() });
        }
        if answer.first != at {
            return Err(Fault::away(format!("asked for byte {at} and was given byte {}", answer.first)));
        }
        Ok(())
    }
}

/// Which file it is, and its first bytes.
async fn look(origin: &Origin, silence: Duration) -> Result<(Versions, Vec<u8>), Fault> {
    let mut answer = origin.fetch(&(0..HEAD), silence).await?;
    let wanted = usize::try_from(answer.bytes.min(HEAD)).unwrap_or_default();
    if answer.first != 0 {
        return Err(Fault::away(format!("asked for the beginning and was given byte {}", answer.first)));
    }
    let mut head = Vec::new();
    while head.len() < wanted {
        let next = answer.next(silence).await;
        origin.settle(answer.is_direct(), next.is_ok());
        head.extend_from_slice(&next?);
    }
    head.truncate(wanted);
    let versions = Versions::default();
    versions.agree(&answer);
    Ok((versions, head))
}

/// What happens between a try that failed and the next.
#[derive(Debug)]
struct Wait {
    patience: Duration,
    pace: Pace,
    progress: Progress,
    asked_at: Instant,
    /// When the first of the questions was asked that came to nothing.
    failing_since: Option<Instant>,
    /// A program that waits for its input does not move, though it may seem to.
    held: Option<Held>,
}

impl Wait {
    fn new(patience: Patience, progress: &Progress) -> Self {
        Wait {
            patience: patience.source,
            pace: Pace::new(FIRST_WAIT, LONGEST_WAIT),
            progress: progress.clone(),
            asked_at: Instant::now(),
            failing_since: None,
            held: None,
        }
    }

    fn asking(&mut self) {
        self.asked_at = Instant::now();
    }

    fn moved(&mut self) {
        self.pace.reset();
        (self.failing_since, self.held) = (None, None);
    }

    /// Returns when it is time to try again, unless that would be no use. A lease that has run out may be renewed
    /// yet; if it is not, whoever renews it ends the execution.
    async fn after(&mut self, fault: Fault) -> Result<(), Trouble> {
        if !matches!(fault, Fault::Away { .. } | Fault::Refused(Refusal::LeaseExpired)) {
            return Err(Trouble::of(fault));
        }
        let pause = self.pace.next();
        if self.failing_since.get_or_insert(self.asked_at).elapsed() + pause > self.patience {
            return Err(Trouble::of(fault));
        }
        self.held.get_or_insert_with(|| self.progress.hold());
        sleep(pause).await;
        Ok(())
    }
}
