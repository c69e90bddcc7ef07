//! One listener: caught up from the database, then told what comes.

use super::frame::{self, Filter, Frame};
use super::hub::Seat;
use crate::app::App;
use crate::problem::Result;
use bytes::Bytes;
use futures::Stream;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use store::Cursor;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

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
}

impl Listener {
    /// The channel is listened to before the database is read: nothing falls in between.
    pub async fn new(app: App, seat: Seat, filter: Filter, start: Start) -> Result<Self> {
        let frames = seat.listen().await;
        let end = app.store.events_end().await?;
        // A place behind the end is of another database, or of one that was restored from a backup.
        let (at, is_lost) = match start {
            Start::Now => (end, false),
            Start::After(at) => (at.min(end), at > end),
            Start::Lost => (end, true),
        };
        let mut ready = VecDeque::from([frame::greeting(app.options.sse_retry.as_millis(), at)]);
        if is_lost {
            ready.push_back(frame::reset());
        }
        Ok(Listener { app, seat, filter, frames, at, is_behind: true, ready })
    }

    /// Ends with the server, or when nobody reads it any more.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> + Send {
        futures::stream::unfold(self, |mut listener| async {
            let bytes = listener.next().await?;
            Some((Ok(bytes), listener))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        let ending = self.app.ending.clone();
        loop {
            if let Some(bytes) = self.ready.pop_front() {
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
        let heartbeat = self.app.options.sse_heartbeat;
        match tokio::time::timeout(heartbeat, self.frames.recv()).await {
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
            self.app.store.events(self.at, PAGE).await
        };
        match page {
            Ok(page) => {
                page.events.iter().for_each(|event| self.hear(&Frame::of(event)));
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
        if frame.cursor.is_some_and(|cursor| cursor <= self.at) {
            return;
        }
        self.at = frame.cursor.unwrap_or(self.at);
        if self.filter.takes(frame) {
            self.ready.push_back(frame.bytes.clone());
        }
    }
}
