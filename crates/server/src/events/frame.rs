//! An event as it goes over the wire, written once for all who listen.

use bytes::Bytes;
use serde::Serialize;
use store::Cursor;
use store::event::{Event, What};

pub struct Frame {
    /// None for what nobody can ask for again.
    pub cursor: Option<Cursor>,
    job: Option<i64>,
    video: Option<i64>,
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
        fits(self.job, frame.job) && fits(self.video, frame.video)
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
    pub fn of(event: &Event) -> Self {
        let name = match event.what {
            What::Job(_) => "job",
            What::Segment(_) => "segment",
            What::Video(_) => "video",
            What::Worker(_) => "worker",
        };
        let (job, video) = (event.job.map(|id| id.0), event.video.map(|id| id.0));
        let told = Told { at: Some(event.at), job, video, what: &event.what };
        Frame { cursor: Some(event.cursor), job, video, bytes: block(Some(event.cursor), name, &told) }
    }

    /// Something that is true for a moment.
    pub fn passing(name: &str, job: Option<i64>, video: Option<i64>, what: &impl Serialize) -> Self {
        let told = Told { at: None, job, video, what };
        Frame { cursor: None, job, video, bytes: block(None, name, &told) }
    }
}

fn block(id: Option<Cursor>, name: &str, data: &impl Serialize) -> Bytes {
    // JSON has no line breaks of its own.
    let data = serde_json::to_string(data).unwrap_or_default();
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    format!("{id}event: {name}\ndata: {data}\n\n").into()
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
