//! What comes over HTTP: headers, names, bodies, archives.

use crate::scratch::{Scratch, files};
use rules::{ExecutionId, ExecutionName, JobId, TaskId, WorkerId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{Debug, Display};
use std::path::{Component, Path};
use std::str::FromStr;
use wire::LeaseToken;
use wire::http::{
    ClaimRequest, CompleteRequest, DirectRequest, FailRequest, HeartbeatRequest, ProgressRequest,
    Registration, ReleaseRequest,
};

const MOST_UNPACKED: u64 = 1 << 20;

/// A tar.gz of outputs, unpacked into an execution's own folder.
pub fn archive(data: &[u8]) {
    let scratch = Scratch::new();
    let folder = scratch.folder();
    let unpacked = server::fuzz::unpack(data, &folder, MOST_UNPACKED);
    let mut found: Vec<_> = files(&folder)
        .into_iter()
        .map(|(path, content)| {
            let name =
                path.strip_prefix(&folder).expect("below the folder").to_str().expect("text").to_owned();
            (name, content.len() as u64)
        })
        .collect();
    let bytes: u64 = found.iter().map(|(_, bytes)| bytes).sum();
    assert!(bytes <= MOST_UNPACKED, "{bytes} bytes were unpacked");
    if let Ok(outputs) = unpacked {
        let mut told: Vec<_> = outputs.into_iter().map(|output| (output.path, output.bytes)).collect();
        told.sort();
        found.sort();
        assert_eq!(told, found, "the answer lists what was unpacked");
    }
    scratch.is_untouched();
}

/// The header `Upload-Metadata`.
pub fn tus_metadata(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(metadata) = server::fuzz::tus_metadata(&text) {
        let bytes: usize = metadata.values().filter_map(|value| value.as_str()).map(str::len).sum();
        assert!(bytes <= text.len(), "base64 never decodes to more");
        assert!(metadata.keys().all(|key| !key.contains(',')));
    }
}

/// `Range` for a file of a length that the first eight bytes tell, and `Content-Range` of an upload.
pub fn range(data: &[u8]) {
    let Some((length, text)) = data.split_first_chunk::<8>() else { return };
    let (length, text) = (u64::from_be_bytes(*length), String::from_utf8_lossy(text));
    if let Some((first, last)) = server::fuzz::range(&text, length) {
        assert!(first <= last && last < length, "{text:?} of {length}: {first} to {last}");
    }
    if let Ok((from, total)) = server::fuzz::content_range(&text) {
        assert!(from < total, "{text:?}: {from} of {total}");
    }
}

/// The token that a worker shows for an execution, in its header and in JSON.
pub fn lease_token(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(token) = LeaseToken::from_header(&text) {
        assert_eq!(LeaseToken::from_header(&token.to_header()), Some(token));
        assert_eq!(TaskId::new(token.task.job(), token.task.ordinal()), token.task);
        same_in_json(&token);
    }
    if let Ok(token) = serde_json::from_slice::<LeaseToken>(data) {
        assert_eq!(LeaseToken::from_header(&token.to_header()), Some(token));
    }
    written_as_read::<JobId>(&text);
    written_as_read::<TaskId>(&text);
    written_as_read::<ExecutionId>(&text);
    written_as_read::<ExecutionName>(&text);
    written_as_read::<WorkerId>(&text);
}

/// An id names folders: whatever is read as one is written as a plain name, and reads back the same.
fn written_as_read<T: FromStr + Display + PartialEq + Debug>(text: &str) {
    if let Ok(id) = text.parse::<T>() {
        let written = id.to_string();
        assert!(written.parse::<T>().is_ok_and(|again| again == id), "{text:?} became {written}");
        assert!(
            written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)),
            "{written}"
        );
        assert!(is_plain(&written), "{written}");
    }
}

fn is_plain(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Paths of outputs, and the titles that addresses are made of.
pub fn names(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if server::fuzz::is_output_path(&text) {
        assert!(is_plain(&text), "{text:?} leads elsewhere");
        assert!(text.is_ascii() && !text.contains('\0') && text.len() <= 1024, "{text:?}");
    }
    let slug = server::fuzz::slug(&text);
    assert!(server::fuzz::is_slug(&slug), "{text:?} became {slug:?}");
    assert!(is_plain(&slug) && !slug.contains('/'), "{slug:?}");
}

/// Bodies of a worker's requests.
pub fn requests(data: &[u8]) {
    body::<ClaimRequest>(data);
    body::<CompleteRequest>(data);
    body::<DirectRequest>(data);
    body::<FailRequest>(data);
    body::<HeartbeatRequest>(data);
    body::<ProgressRequest>(data);
    body::<Registration>(data);
    body::<ReleaseRequest>(data);
}

fn body<T: Serialize + DeserializeOwned>(data: &[u8]) {
    if let Ok(body) = serde_json::from_slice::<T>(data) {
        same_in_json(&body);
    }
}

fn same_in_json<T: Serialize + DeserializeOwned>(value: &T) {
    let written = serde_json::to_value(value).expect("JSON");
    let again: T = serde_json::from_value(written.clone()).expect("it reads back");
    assert_eq!(serde_json::to_value(&again).expect("JSON"), written);
}
