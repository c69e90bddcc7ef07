//! The tail: reads events as they come, once for all listeners.

use super::frame::{self, Frame};
use crate::app::App;
use std::time::Duration;
use store::Cursor;
use store::wake::Topic;

const PAGE: i64 = 500;

/// Wake-ups get lost, and not everything causes one.
const POLL: Duration = Duration::from_millis(500);

/// What happens within this time is read at once.
const GATHER: Duration = Duration::from_millis(20);

const AGAIN: Duration = Duration::from_secs(1);

pub async fn run(app: &App) {
    loop {
        app.events.somebody().await;
        match app.store.events_end().await {
            Ok(end) => {
                app.events.begin_reading();
                follow(app, end).await;
            }
            Err(error) => wait(&error).await,
        }
    }
}

/// Until nobody listens.
async fn follow(app: &App, mut at: Cursor) {
    let mut hints = app.store.wake().subscribe(Topic::Event);
    while !app.events.end_reading_if_empty() {
        hints.mark_unchanged();
        match frame::read(&app.store, at, PAGE).await {
            Ok(page) => {
                at = page.next;
                if page.is_lost {
                    app.events.tell(Frame::reset(at));
                }
                page.frames.into_iter().for_each(|frame| app.events.tell(frame));
                if !page.is_last {
                    continue;
                }
            }
            Err(error) => wait(&error).await,
        }
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = hints.changed() => tokio::time::sleep(GATHER).await,
        }
    }
}

async fn wait(error: &store::Error) {
    tracing::debug!("cannot read events, trying again: {error}");
    tokio::time::sleep(AGAIN).await;
}
