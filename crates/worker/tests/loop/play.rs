//! Work whose course the test decides: `play` goes on until its door is opened.

use std::sync::Arc;
use std::time::Duration;

use rules::TaskId;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use wire::Assignment;
use worker::{BoxFuture, Context, Failed, Handler, Outcome};

/// Clones are one and the same.
#[derive(Clone)]
pub struct Play {
    pub kind: &'static str,
    seen: Arc<watch::Sender<Seen>>,
}

#[derive(Default, Debug)]
pub struct Seen {
    pub begun: Vec<TaskId>,
    pub stopped: Vec<TaskId>,
    open: Vec<TaskId>,
}

impl Play {
    pub fn new() -> Self {
        Play { kind: "play", seen: Arc::new(watch::channel(Seen::default()).0) }
    }

    /// Lets the work on `task` succeed.
    pub fn open(&self, task: TaskId) {
        self.seen.send_modify(|seen| seen.open.push(task));
    }

    pub async fn until_begun(&self, task: TaskId) {
        self.until(|seen| seen.begun.contains(&task)).await;
    }

    pub async fn until_stopped(&self, task: TaskId) {
        self.until(|seen| seen.stopped.contains(&task)).await;
    }

    pub fn has_begun(&self, task: TaskId) -> bool {
        self.seen.borrow().begun.contains(&task)
    }

    async fn until(&self, holds: impl FnMut(&Seen) -> bool) {
        let mut seen = self.seen.subscribe();
        let waited = timeout(Duration::from_secs(3600), seen.wait_for(holds)).await.map(drop);
        assert!(waited.is_ok(), "waited in vain: {:?}", self.seen.borrow());
    }

    async fn act(&self, job: &Assignment, context: &Context) -> Result<Outcome, Failed> {
        let task = job.proof.task;
        self.seen.send_modify(|seen| seen.begun.push(task));
        let how = job.payload.as_str().unwrap_or_default();
        match how {
            "panic" => panic!("a slip of the pen"),
            "storage away" => return Err(Failed::storage_away("the bucket does not answer")),
            "disk full" => return Err(Failed::disk_full("no space is left")),
            "break" => return Err(Failed::permanent("a broken input")),
            "write" => std::fs::write(context.folder().await?.join("half.mp4"), "…").unwrap(),
            _ => {}
        }
        let mut doors = self.seen.subscribe();
        tokio::select! {
            _ = doors.wait_for(|seen| seen.open.contains(&task)) => Ok(json!({ "played": task }).into()),
            () = beat(context), if how == "beat" => unreachable!(),
            () = context.stop.cancelled(), if how != "deaf" => {
                self.seen.send_modify(|seen| seen.stopped.push(task));
                Err(Failed::transient("stopped"))
            }
        }
    }
}

async fn beat(context: &Context) {
    loop {
        context.progress.beat();
        sleep(Duration::from_secs(1)).await;
    }
}

impl Handler for Play {
    fn kind(&self) -> &str {
        self.kind
    }

    fn run<'a>(
        &'a self,
        job: &'a Assignment,
        context: &'a Context,
    ) -> BoxFuture<'a, Result<Outcome, Failed>> {
        Box::pin(self.act(job, context))
    }
}
