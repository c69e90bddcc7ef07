//! What the loop, the executions, the heartbeat and the renewals have in common.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rules::WorkerId;
use rules::placement::{BadCapability, Capabilities};
use rules::worker::Status;
use serde_json::json;
use tokio::sync::{SetOnce, watch};
use tokio_util::sync::CancellationToken;
use tracing::{Span, field, info, warn};
use uuid::Uuid;
use wire::{Desk, Heartbeat, Hello};

use crate::admission::{AtWork, Shortage};
use crate::disk::Disk;
use crate::handler::Handlers;
use crate::options::hostname;
use crate::roster::Roster;
use crate::storage::Storage;
use crate::tally::Tally;
use crate::workshop::Workshop;
use crate::{Error, Options, Shutdown};

pub(crate) struct Shared<D> {
    pub id: WorkerId,
    pub hello: Hello,
    pub desk: D,
    pub handlers: Handlers,
    pub options: Options,
    pub roster: Arc<Roster>,
    pub tally: Tally,
    pub storage: Storage,
    pub disk: Disk,
    pub workshop: Arc<Workshop>,
    /// Asks this worker alone; hears whoever asked [`run`](crate::run()).
    pub shutdown: Shutdown,
    /// Set when the desk has heard of this incarnation.
    pub registered: SetOnce<()>,
    /// Why nothing new is taken although a slot is free.
    pub refusal: watch::Sender<Option<String>>,
    /// Why the desk wants nothing more of this worker.
    pub dismissed: SetOnce<String>,
    /// The desk did not accept the last heartbeat: it lost its database, or took the worker for long dead.
    is_forgotten: AtomicBool,
    /// What the desk last said this worker is.
    status: Mutex<Status>,
    /// Ends what runs beside the work, when there is no work any more.
    pub ending: CancellationToken,
}

impl<D: Desk> Shared<D> {
    /// Everything of a new incarnation; the desk has not heard of it yet.
    pub async fn new(
        desk: D,
        handlers: Handlers,
        options: Options,
        shutdown: Shutdown,
    ) -> Result<Self, Error> {
        let id = WorkerId(Uuid::now_v7());
        let hello = hello(id, &handlers, &options)?;
        let folder = options.folder.clone();
        let opened = blocking(move || Workshop::open(&folder, id)).await;
        let workshop = opened.map_err(|source| Error::Folder { folder: options.folder.clone(), source })?;
        Ok(Shared {
            id,
            hello,
            desk,
            handlers,
            options,
            roster: Arc::new(Roster::new()),
            tally: Tally::default(),
            storage: Storage::default(),
            disk: Disk::default(),
            workshop: Arc::new(workshop),
            shutdown,
            registered: SetOnce::new(),
            refusal: watch::Sender::new(None),
            dismissed: SetOnce::new(),
            is_forgotten: AtomicBool::new(false),
            status: Mutex::new(Status::Active),
            ending: CancellationToken::new(),
        })
    }

    /// Waits for the desk, but not for ever: one that does not answer is away.
    pub async fn ask<T>(
        &self,
        answer: impl Future<Output = Result<T, wire::Error>>,
    ) -> Result<T, wire::Error> {
        let patience = self.options.answer_timeout;
        let silence = |_| Err(wire::Error::Away(format!("no answer for {patience:?}")));
        tokio::time::timeout(patience, answer).await.unwrap_or_else(silence)
    }

    /// Tells the desk how things are and does as it says.
    pub async fn beat(&self, is_leaving: bool) -> Result<(), wire::Error> {
        let summary = self.tally.summary();
        let heartbeat = Heartbeat {
            worker: self.id,
            phase: self.roster.most_active_phase(),
            running: *self.roster.count().borrow(),
            is_draining: self.shutdown.is_draining(),
            is_leaving,
            done: summary.done,
            failed: summary.failed,
            refusal: self.refusal.borrow().clone(),
        };
        let answer = self.ask(self.desk.heartbeat(&heartbeat)).await;
        self.is_forgotten.store(matches!(answer, Err(wire::Error::Rejected(_))), Ordering::Relaxed);
        self.obey(answer?);
        Ok(())
    }

    pub async fn register(&self) -> Result<(), wire::Error> {
        self.ask(self.desk.register(&self.hello)).await?;
        let (id, name, able) = (self.known_as(), &self.hello.name, &self.hello.capabilities);
        if self.registered.get().is_none() {
            Span::current().record("worker.id", field::display(id));
        }
        info!("registered {name} as {id}, able to do {able}");
        self.is_forgotten.store(false, Ordering::Relaxed);
        let _ = self.registered.set(());
        Ok(())
    }

    /// As people know this worker.
    pub fn known_as(&self) -> WorkerId {
        self.desk.known_as().unwrap_or(self.id)
    }

    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten.load(Ordering::Relaxed)
    }

    fn obey(&self, status: Status) {
        if std::mem::replace(&mut *self.status(), status) == status {
            return;
        }
        match status {
            Status::Disabled => warn!("disabled: taking nothing new"),
            Status::Draining if self.options.outlives_drain => {
                info!("asked to drain by the desk: taking nothing new until enabled");
            }
            Status::Draining if !self.shutdown.is_draining() => {
                info!("asked to drain by the desk");
                self.shutdown.drain();
            }
            Status::Active | Status::Idle | Status::Busy | Status::Draining | Status::Offline => {}
        }
    }

    /// Of so many tasks, how many may be taken.
    pub async fn admit(&self, wanted: u32) -> Result<u32, Shortage> {
        let running = self.roster.running();
        let count = |running: usize| u32::try_from(running).unwrap_or(u32::MAX);
        // Of the kinds of work there are, only these encode pictures.
        let is_picture = |kind: &str| kind.parse().is_ok_and(pipeline::StageKind::is_picture);
        let encoding = running.iter().filter(|running| is_picture(&running.job.kind)).count();
        let encoding = if self.hello.capabilities.has_gpu() { count(encoding) } else { 0 };
        let at_work = AtWork { running: count(running.len()), encoding, disk: self.disk.needed() };
        let (admission, folder) = (self.options.admission.clone(), self.options.folder.clone());
        if !admission.looks() && at_work.disk == 0 {
            return admission.admit(wanted, at_work, &folder);
        }
        let looked = blocking(move || Ok(admission.admit(wanted, at_work, &folder))).await;
        looked.unwrap_or(Ok(wanted))
    }

    /// A task has found the disk full, and what it wrote is removed.
    pub async fn disk_was_full(&self) {
        let (admission, folder) = (self.options.admission.clone(), self.options.folder.clone());
        if let Ok(Some(free)) = blocking(move || Ok(admission.disk_free(&folder))).await {
            self.disk.was_full(free);
        }
    }

    /// Remembers for the next heartbeat what is wanting. That all encoder sessions are in use is as it is meant to be.
    pub fn note(&self, admitted: &Result<u32, Shortage>) {
        let refusal = match admitted {
            Err(shortage @ (Shortage::Disk { .. } | Shortage::Memory { .. })) => Some(shortage),
            Err(Shortage::Sessions { .. } | Shortage::Encoders) | Ok(_) => None,
        };
        self.refusal.send_if_modified(|told| {
            // Bytes come and go; that it is short of something is the news.
            let is_news = told.is_some() != refusal.is_some();
            *told = refusal.map(ToString::to_string);
            is_news
        });
    }

    pub fn may_claim(&self) -> bool {
        !matches!(*self.status(), Status::Disabled | Status::Draining)
    }

    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hello(id: WorkerId, handlers: &Handlers, options: &Options) -> Result<Hello, BadCapability> {
    Ok(Hello {
        worker: id,
        name: options.name.clone(),
        kind: options.kind,
        hostname: hostname(),
        version: env!("CARGO_PKG_VERSION").into(),
        slots: options.slots.get(),
        capabilities: Capabilities::new(handlers.kinds().chain(options.capabilities.iter()))?,
        metadata: json!({
            "pid": std::process::id(),
            "os": std::env::consts::OS,
            "arch": std::env::consts::ARCH,
            "cores": std::thread::available_parallelism().map_or(1, usize::from),
        }),
    })
}

/// For work on the disk, which may take its time.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
