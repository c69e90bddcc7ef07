//! A worker, its desk, and its work.

use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use rules::TaskId;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use worker::{Error, Handlers, Options, Shutdown, Summary};

use crate::desk::FakeDesk;
use crate::play::Play;

pub struct Scene {
    pub desk: FakeDesk,
    pub play: Play,
    pub options: Options,
    pub shutdown: Shutdown,
    folder: TempDir,
}

impl Scene {
    pub fn with_slots(slots: u32) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { slots: NonZeroU32::new(slots).unwrap(), ..Options::new(folder.path()) };
        Scene { desk: FakeDesk::new(), play: Play::new(), options, shutdown: Shutdown::new(), folder }
    }

    pub fn start(&self) -> Worker {
        let handlers = Handlers::built_in().with(self.play.clone());
        let (desk, options, shutdown) = (self.desk.clone(), self.options.clone(), self.shutdown.clone());
        Worker(tokio::spawn(worker::run(desk, handlers, options, shutdown)))
    }

    /// Work that goes on until its door is opened.
    pub fn submit_play(&self) -> TaskId {
        self.desk.submit("play", Value::Null)
    }

    pub fn submit(&self, how: &str) -> TaskId {
        self.desk.submit("play", json!(how))
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

pub struct Worker(JoinHandle<Result<Summary, Error>>);

impl Worker {
    pub async fn ended(self) -> Result<Summary, Error> {
        tokio::time::timeout(Duration::from_secs(3600), self.0).await.expect("the worker never ends").unwrap()
    }

    pub fn is_running(&self) -> bool {
        !self.0.is_finished()
    }
}

/// Lets time pass.
pub async fn turn_the_clock(secs: u64) {
    tokio::time::sleep(Duration::from_secs(secs)).await;
}
