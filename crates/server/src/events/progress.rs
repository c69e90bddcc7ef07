//! How far work is and how busy workers are: told while somebody listens, and only what has changed.
//!
//! With Redis one process looks for all ([`dispatch::herald`]), and this one hears of it; when it has heard nothing for a
//! while, or there is no Redis, it looks itself.

use super::frame::Frame;
use crate::app::App;
use dispatch::herald;
use dispatch::news::{self, News};
use serde::Serialize;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

const EVERY: Duration = Duration::from_secs(1);

/// So long after the last news, there may be nobody who tells any.
const SILENCE: Duration = Duration::from_secs(3);

#[derive(Serialize)]
struct Progress<T> {
    running: T,
}

pub async fn run(app: &App) {
    let heard = watch::Sender::new(None);
    let listen = async {
        if let Some(redis) = &app.redis {
            news::listen(redis, |news| {
                heard.send_replace(Some(Instant::now()));
                tell(app, news);
            })
            .await;
        }
    };
    tokio::join!(listen, look(app, &heard));
}

fn tell(app: &App, news: News) {
    app.events.tell(match news {
        News::Progress(news::Progress { job, video, running }) => {
            Frame::passing("progress", Some(job.0), video.map(|id| id.0), &Progress { running })
        }
        News::Load(load) => Frame::passing("worker", None, None, &load),
    });
}

async fn look(app: &App, heard: &watch::Sender<Option<Instant>>) {
    let (mut jobs, mut workers) = (HashMap::new(), HashMap::new());
    loop {
        app.events.somebody().await;
        let is_told = heard.borrow().is_some_and(|at: Instant| at.elapsed() < SILENCE);
        if !is_told {
            match herald::changes(&app.store, &mut jobs, &mut workers).await {
                Ok((progress, loads)) => {
                    for herald::Progress { job, video, running } in progress {
                        let video = video.map(|id| id.0);
                        app.events.tell(Frame::passing(
                            "progress",
                            Some(job.0),
                            video,
                            &Progress { running },
                        ));
                    }
                    loads.iter().for_each(|load| app.events.tell(Frame::passing("worker", None, None, load)));
                }
                Err(error) => tracing::debug!("cannot tell how far work is: {error}"),
            }
        }
        tokio::time::sleep(EVERY).await;
    }
}
