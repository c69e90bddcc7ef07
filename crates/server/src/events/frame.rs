//! An event as it goes over the wire, written once for all who listen.

use crate::api::qualities::{self, PICTURES, Quality};
use bytes::{Bytes, BytesMut};
use rules::JobId;
use serde::Serialize;
use std::collections::HashMap;
use store::event::{Event, What};
use store::{Cursor, Store};

pub struct Frame {
    /// None for what nobody can ask for again.
    pub cursor: Option<Cursor>,
    job: Option<i64>,
    video: Option<i64>,
    /// Says that the history is another now.
    pub is_reset: bool,
    pub bytes: Bytes,
}

/// What one listener wants to hear.
#[derive(Debug, Clone, Copy, Default)]
pub struct Filter {
    pub job: Option<i64>,
    pub video: Option<i64>,
}

impl Filter {
    pub fn takes(&self, frame: &Frame) -> bool {
        let fits = |wanted: Option<i64>, is: Option<i64>| wanted.is_none() || wanted == is;
        frame.is_reset || fits(self.job, frame.job) && fits(self.video, frame.video)
    }
}

#[derive(Serialize)]
struct Told<'a, T> {
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    video: Option<i64>,
    #[serde(flatten)]
    what: &'a T,
}

impl Frame {
    fn of(event: &Event) -> Self {
        let name = match event.what {
            What::Job(_) => "job",
            What::Segment(_) => "segment",
            What::Video(_) => "video",
            What::Worker(_) => "worker",
        };
        let (job, video) = (event.job.map(|id| id.0), event.video.map(|id| id.0));
        let told = Told { at: Some(event.at), job, video, what: &event.what };
        let bytes = block(Some(event.cursor), name, &told);
        Frame { cursor: Some(event.cursor), job, video, is_reset: false, bytes }
    }

    /// What listeners know is not of this history: it goes on from here.
    pub fn reset(at: Cursor) -> Self {
        let bytes = format!("id: {at}\nevent: reset\ndata: {{}}\n\n").into();
        Frame { cursor: Some(at), job: None, video: None, is_reset: true, bytes }
    }

    /// The qualities are told first: who has seen the id of the event has seen them.
    fn after(self, qualities: &[Quality]) -> Self {
        #[derive(Serialize)]
        struct Qualities<'a> {
            qualities: &'a [Quality],
        }
        let told = Frame::passing("quality", self.job, self.video, &Qualities { qualities });
        let bytes = BytesMut::from_iter(told.bytes.into_iter().chain(self.bytes)).freeze();
        Frame { bytes, ..self }
    }

    /// Something that is true for a moment.
    pub fn passing(name: &str, job: Option<i64>, video: Option<i64>, what: &impl Serialize) -> Self {
        let told = Told { at: None, job, video, what };
        Frame { cursor: None, job, video, is_reset: false, bytes: block(None, name, &told) }
    }
}

fn block(id: Option<Cursor>, name: &str, data: &impl Serialize) -> Bytes {
    // JSON has no line breaks of its own.
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n").into()
}

/// Some frames, and where to read on.
pub struct Page {
    pub frames: Vec<Frame>,
    pub next: Cursor,
    pub is_last: bool,
    /// The place to read after was of another history.
    pub is_lost: bool,
}

/// What is told of events after a place. With the last piece of picture of each job goes how far its qualities are by now.
pub async fn read(store: &Store, after: Cursor, max: i64) -> store::Result<Page> {
    let page = store.events(after, max).await?;
    let last = last_pieces(&page.events);
    let jobs: Vec<JobId> = last.keys().copied().collect();
    let qualities = if jobs.is_empty() {
        HashMap::new()
    } else {
        qualities::of_jobs(store, &jobs).await?
    };
    let frame = |event: &Event| {
        let known =
            event.job.filter(|job| last.get(job) == Some(&event.cursor)).and_then(|job| qualities.get(&job));
        known.map_or_else(|| Frame::of(event), |known| Frame::of(event).after(known))
    };
    let frames = page.events.iter().map(frame).collect();
    Ok(Page { frames, next: page.next, is_last: page.is_last, is_lost: page.is_lost })
}

fn last_pieces(events: &[Event]) -> HashMap<JobId, Cursor> {
    let is_picture = |event: &&Event| matches!(&event.what, What::Segment(piece) if piece.place.as_ref().is_some_and(|at| PICTURES.contains(&at.stage.as_str())));
    events.iter().filter(is_picture).filter_map(|event| Some((event.job?, event.cursor))).collect()
}

/// The first words to a listener: when to come back, and from where if nothing else is said.
pub fn greeting(retry_ms: u128, at: Cursor) -> Bytes {
    format!("retry: {retry_ms}\nid: {at}\n\n").into()
}

/// Keeps the connection; and one that hears little learns how far it is all the same.
pub fn heartbeat(at: Cursor) -> Bytes {
    format!(": heartbeat\nid: {at}\n\n").into()
}

/// What the listener knows is not of this history.
pub fn reset() -> Bytes {
    Bytes::from_static(b"event: reset\ndata: {}\n\n")
}
