//! One listener: caught up from the database, then told what comes.

use super::frame::{self, Filter, Frame};
use super::hub::Seat;
use crate::app::App;
use crate::problem::Result;
use bytes::Bytes;
use futures_util::Stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::Cursor;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

const PAGE: i64 = 200;
const AGAIN: Duration = Duration::from_secs(1);

/// Where a listener begins.
pub enum Start {
    Now,
    After(Cursor),
    /// It named a place that is none.
    Lost,
}

pub struct Listener {
    app: App,
    seat: Seat,
    filter: Filter,
    frames: Receiver<Arc<Frame>>,
    /// Everything up to here was heard, or was not wanted.
    at: Cursor,
    /// There may be something in the database that the channel did not bring.
    is_behind: bool,
    /// To be sent next.
    ready: VecDeque<Bytes>,
    /// When it is told that nothing happens, if nothing does: also if much happens that it does not want.
    beats_at: Instant,
}

impl Listener {
    /// The channel is listened to before the database is read: nothing falls in between.
    pub async fn new(app: App, seat: Seat, filter: Filter, start: Start) -> Result<Self> {
        let frames = seat.listen().await;
        let end = app.store.events_end().await?;
        let known = match start {
            Start::Now => Some(end),
            Start::After(at) => app.store.place_in_this_history(at).await?,
            Start::Lost => None,
        };
        let (at, is_lost) = (known.unwrap_or(end), known.is_none());
        let mut ready = VecDeque::from([frame::greeting(app.options.sse_retry.as_millis(), at)]);
        if is_lost {
            ready.push_back(frame::reset());
        }
        Ok(Listener { app, seat, filter, frames, at, is_behind: true, ready, beats_at: Instant::now() })
    }

    /// Ends with the server, or when nobody reads it any more.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        futures_util::stream::unfold(self, |mut listener| async {
            let bytes = listener.next().await?;
            Some((Ok(bytes), listener))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let ending = self.app.ending.clone();
        loop {
            if let Some(bytes) = self.ready.pop_front() {
                self.beats_at = Instant::now() + self.app.options.sse_heartbeat;
                return Some(bytes);
            }
            tokio::select! {
                () = ending.cancelled() => return None,
                () = self.go_on() => {}
            }
        }
    }

    async fn go_on(&mut self) {
        if self.is_behind {
            return self.catch_up().await;
        }
        match tokio::time::timeout_at(self.beats_at, self.frames.recv()).await {
            Ok(Ok(frame)) => self.hear(&frame),
            Ok(Err(RecvError::Lagged(_))) => self.is_behind = true,
            // The sender lives as long as the app does.
            Ok(Err(RecvError::Closed)) => std::future::pending().await,
            Err(_) => self.ready.push_back(frame::heartbeat(self.at)),
        }
    }

    async fn catch_up(&mut self) {
        let page = {
            let _turn = self.seat.turn().await;
            frame::read(&self.app.store, self.at, PAGE).await
        };
        match page {
            Ok(page) => {
                if page.is_lost {
                    self.ready.push_back(Frame::reset(page.next).bytes);
                }
                page.frames.iter().for_each(|frame| self.hear(frame));
                self.at = page.next;
                self.is_behind = !page.is_last;
            }
            Err(error) => {
                tracing::debug!("cannot catch a listener up, trying again: {error}");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// What was heard already is passed over: it may come from the database and by the channel.
    fn hear(&mut self, frame: &Frame) {
        let is_known = |cursor: Cursor| match cursor.is_comparable(self.at) {
            true => cursor <= self.at,
            // The tail went over to another history, which this listener has not; or this listener has already.
            false => !frame.is_reset,
        };
        if frame.cursor.is_some_and(is_known) {
            return;
        }
        self.at = frame.cursor.unwrap_or(self.at);
        if self.filter.takes(frame) {
            self.ready.push_back(frame.bytes.clone());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{AdminSecret, Data, Options, events};
    use futures_util::StreamExt;
    use rules::WorkerId;
    use serde_json::json;
    use std::pin::Pin;
    use store::submit::NewJob;
    use store::{Location, Store};
    use wire::{Commit, Hello, Proof, Usage};

    type Heard = Pin<Box<dyn Stream<Item = Result<Bytes, Infallible>> + Send>>;

    async fn app(folder: &std::path::Path, options: Options) -> App {
        let store = Store::open(&Location::Sqlite(folder.join("db")), Default::default()).await.unwrap();
        App::new(store, Data::open(folder).unwrap(), AdminSecret::given("x"), options)
    }

    async fn listen(app: &App, filter: Filter) -> Heard {
        listen_from(app, filter, Start::Now).await
    }

    async fn listen_from(app: &App, filter: Filter, start: Start) -> Heard {
        let seat = app.events.take_seat().unwrap();
        Box::pin(Listener::new(app.clone(), seat, filter, start).await.unwrap().stream())
    }

    fn job() -> NewJob {
        let spec = json!({ "name": "test", "stage": [{ "name": "work", "kind": "noop" }] });
        NewJob { spec: serde_json::from_value(spec).unwrap(), video: None, idempotency_key: None }
    }

    /// The next so many that happened for good.
    async fn hear(heard: &mut Heard, count: usize) -> Vec<Bytes> {
        let lasting = heard.by_ref().filter_map(|block| async {
            let block = block.unwrap();
            (block.starts_with(b"id: ") && block.windows(6).any(|at| at == b"event:")).then_some(block)
        });
        let heard = lasting.take(count).collect();
        tokio::time::timeout(Duration::from_secs(60), heard).await.expect("all is heard")
    }

    #[tokio::test]
    async fn one_that_fell_behind_the_channel_is_caught_up() {
        let folder = tempfile::tempdir().unwrap();
        let app = app(folder.path(), Options::default()).await;
        let reading = tokio::spawn(events::run(app.clone()));
        let (mut slow, mut quick) =
            (listen(&app, Filter::default()).await, listen(&app, Filter::default()).await);
        app.store.submit(&job()).await.unwrap();
        assert_eq!(hear(&mut slow, 1).await, hear(&mut quick, 1).await, "both follow the channel by now");
        let mut told = Vec::new();

        for _ in 0..15 {
            app.store.submit_all(&vec![job(); 100]).await.unwrap();
            told.extend(hear(&mut quick, 100).await);
        }

        assert_eq!(hear(&mut slow, 1500).await, told, "more than the channel holds, each once and in order");
        reading.abort();
    }

    /// Has all but the last of so many tasks committed at once.
    async fn commit_together(store: &Store, tasks: u32) {
        let stages = json!([{ "name": "work", "kind": "noop", "segments": tasks }]);
        let spec = serde_json::from_value(json!({ "name": "test", "stage": stages })).unwrap();
        store.submit(&NewJob { spec, ..job() }).await.unwrap();
        let hello = Hello {
            worker: WorkerId(uuid::Uuid::new_v4()),
            name: "one".into(),
            kind: wire::Kind::Local,
            hostname: "here".into(),
            version: "1".into(),
            slots: 1,
            capabilities: "noop".parse().unwrap(),
            metadata: json!(null),
        };
        store.register_worker(&hello).await.unwrap();
        let mut claimed = store.claim(hello.worker, tasks).await.unwrap();
        claimed.pop();
        let commits: Vec<Commit> = claimed.iter().map(|task| commit(task.proof)).collect();
        store.commit(&commits).await.unwrap();
    }

    fn commit(proof: Proof) -> Commit {
        let (usage, steps) = (Usage::default(), Vec::new());
        Commit { proof, result: None, publication: None, arrival: None, usage, steps }
    }

    fn id(block: &Bytes) -> Cursor {
        let line = block.split(|byte| *byte == b'\n').next().and_then(|line| line.strip_prefix(b"id: "));
        std::str::from_utf8(line.unwrap()).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn one_that_comes_back_inside_a_run_of_tasks_hears_the_rest_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let app = app(folder.path(), Options::default()).await;
        let reading = tokio::spawn(events::run(app.clone()));
        let mut first = listen(&app, Filter::default()).await;

        commit_together(&app.store, 601).await;
        let told = hear(&mut first, 603).await;

        for last in [2, 3, 250, 601] {
            let mut back = listen_from(&app, Filter::default(), Start::After(id(&told[last]))).await;
            assert_eq!(hear(&mut back, 602 - last).await, told[last + 1..], "after {}", id(&told[last]));
        }
        reading.abort();
    }

    #[tokio::test]
    async fn one_that_wants_none_of_all_that_happens_hears_heartbeats() {
        let folder = tempfile::tempdir().unwrap();
        let interval = Duration::from_millis(400);
        let app = app(folder.path(), Options { sse_heartbeat: interval, ..Options::default() }).await;
        let reading = tokio::spawn(events::run(app.clone()));
        let wanted = Filter { job: Some(i64::MAX), video: None };
        let (mut quiet, mut busy) = (listen(&app, wanted).await, listen(&app, Filter::default()).await);
        let traffic = async {
            loop {
                app.store.submit(&job()).await.unwrap();
                hear(&mut busy, 1).await;
            }
        };

        let beat = async {
            quiet.next().await;
            quiet.next().await.unwrap().unwrap()
        };
        let heard = tokio::select! {
            heard = tokio::time::timeout(Duration::from_secs(30), beat) => heard.expect("a heartbeat"),
            () = traffic => unreachable!(),
        };

        assert!(heard.starts_with(b": heartbeat\nid: "), "{heard:?}");
        reading.abort();
    }
}
