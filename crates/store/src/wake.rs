//! Wake-ups: who waits for work is told when there may be some. A hint, with a poll behind it: hints get lost.
//!
//! Within a process a hint is a counter that grows. Between processes a [`carrier`] brings it: PostgreSQL by NOTIFY,
//! SQLite by what its file says of itself; or somebody else, who takes what arises here ([`Wake::outgoing`],
//! [`Wake::take_readied`]), gives what arose elsewhere ([`Wake::hear`]), and lets NOTIFY rest meanwhile.

mod carrier;

use crate::db::Db;
use crate::readied::Readied;
use carrier::Carrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What there may be to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    /// For workers: tasks became READY.
    Ready,
    /// For orchestrators: something was committed.
    Settle,
    /// For orchestrators: something failed.
    Judge,
    /// For orchestrators: the outside is to be told something.
    Deliver,
    /// For listeners: something happened. Every other hint says so too.
    Event,
}

impl Topic {
    pub const ALL: [Topic; 5] = [Topic::Ready, Topic::Settle, Topic::Judge, Topic::Deliver, Topic::Event];

    pub fn name(self) -> &'static str {
        match self {
            Topic::Ready => "ready",
            Topic::Settle => "settle",
            Topic::Judge => "judge",
            Topic::Deliver => "deliver",
            Topic::Event => "event",
        }
    }

    pub fn named(name: &str) -> Option<Topic> {
        Topic::ALL.into_iter().find(|topic| topic.name() == name)
    }
}

/// Clones are one and the same.
#[derive(Clone)]
pub struct Wake(Arc<Inner>);

struct Inner {
    /// For those who wait in this process.
    local: Hints,
    /// What arose in this process, for other processes.
    outgoing: Hints,
    /// What NOTIFY has to carry.
    notify: Hints,
    /// Another carries hints: NOTIFY rests.
    is_quiet: AtomicBool,
    readied: Mutex<Fresh>,
    /// How many wait for work in this process.
    waiting: watch::Sender<usize>,
    looks: watch::Sender<Looks>,
    carrier: Carrier,
}

/// Counts up with each hint, topic by topic.
#[derive(Default)]
struct Hints([watch::Sender<u64>; Topic::ALL.len()]);

impl Hints {
    fn up(&self, topic: Topic) {
        self.0[topic as usize].send_modify(|count| *count += 1);
    }

    fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.0[topic as usize].subscribe()
    }

    fn are_any(&self, topic: Topic) -> bool {
        *self.0[topic as usize].borrow() > 0
    }
}

/// How often workers of this process have looked for work, and how many tasks they got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looks {
    pub looks: u64,
    pub claimed: u64,
}

/// What became READY in this process and nobody has carried on yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fresh {
    pub readied: Readied,
    /// How the looks stood, and how many waited here for work, when the first of it became so.
    pub looks: Looks,
    pub waiting: usize,
}

impl Wake {
    pub(crate) fn new(db: &Db) -> Self {
        Wake(Arc::new(Inner {
            local: Hints::default(),
            outgoing: Hints::default(),
            notify: Hints::default(),
            is_quiet: AtomicBool::new(false),
            readied: Mutex::default(),
            waiting: watch::Sender::default(),
            looks: watch::Sender::default(),
            carrier: Carrier::new(db),
        }))
    }

    /// Hands out hints of this topic. Subscribe, then look for work, then wait: nothing falls in between.
    pub fn subscribe(&self, topic: Topic) -> watch::Receiver<u64> {
        self.0.local.subscribe(topic)
    }

    /// Waits for a hint as one who would take work, and is counted among those who do.
    pub async fn wait(&self, hints: &mut watch::Receiver<u64>) {
        let _waits = Waits::new(&self.0.waiting);
        // The channel lives as long as this does.
        let _ = hints.changed().await;
    }

    /// Carries hints to and from other processes until dropped.
    pub async fn run(&self) {
        self.0.carrier.run(self).await;
    }

    /// Tells other processes at once of what arose here: for a program that ends before it would [`Wake::run`].
    pub async fn send(&self) {
        self.0.carrier.send(self).await;
    }

    pub(crate) fn up(&self, topic: Topic) {
        self.hear(topic);
        self.0.outgoing.up(topic);
        if !self.0.is_quiet.load(Ordering::Relaxed) {
            self.0.notify.up(topic);
        }
    }

    pub(crate) fn ready(&self, readied: Readied) {
        if readied.is_empty() {
            return;
        }
        {
            let mut fresh = self.fresh();
            if fresh.readied.is_empty() {
                fresh.looks = *self.0.looks.borrow();
                fresh.waiting = *self.0.waiting.borrow();
            }
            fresh.readied.add_all(readied);
        }
        self.up(Topic::Ready);
    }

    /// A worker of this process has looked, and got so many tasks.
    pub(crate) fn looked(&self, claimed: usize) {
        self.0.looks.send_modify(|all| {
            all.looks += 1;
            all.claimed += claimed as u64;
        });
    }

    fn fresh(&self) -> std::sync::MutexGuard<'_, Fresh> {
        self.0.readied.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For another carrier of hints.
impl Wake {
    /// Hints of this topic that arose in this process.
    pub fn outgoing(&self, topic: Topic) -> watch::Receiver<u64> {
        self.0.outgoing.subscribe(topic)
    }

    /// What became READY here since this was last asked. None of it, where a hint says only that workers should look.
    pub fn take_readied(&self) -> Fresh {
        std::mem::take(&mut *self.fresh())
    }

    /// A hint from elsewhere, for those who wait here.
    pub fn hear(&self, topic: Topic) {
        self.0.local.up(topic);
        if topic != Topic::Event {
            self.0.local.up(Topic::Event);
        }
    }

    /// What happened while nobody listened is found by looking.
    pub fn hear_all(&self) {
        Topic::ALL.into_iter().for_each(|topic| self.hear(topic));
    }

    /// Whether NOTIFY rests, for another carries what it would.
    pub fn set_quiet(&self, is_quiet: bool) {
        self.0.is_quiet.store(is_quiet, Ordering::Relaxed);
    }

    /// Gives NOTIFY a hint that another could not carry.
    pub fn give_back(&self, topic: Topic) {
        self.0.notify.up(topic);
    }

    /// How many wait for work in this process.
    pub fn waiting(&self) -> watch::Receiver<usize> {
        self.0.waiting.subscribe()
    }

    pub fn looks(&self) -> watch::Receiver<Looks> {
        self.0.looks.subscribe()
    }
}

/// One who waits for work.
struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn new(waiting: &'a watch::Sender<usize>) -> Self {
        waiting.send_modify(|count| *count += 1);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
