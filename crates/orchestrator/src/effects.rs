//! Effects: what a commit entails outside, delivered at least once under a key that stays the same.
//!
//! A line appended to a file appears exactly once, for the file itself remembers the keys.

use crate::Options;
use crate::duty::{Look, When, repeat};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use store::outbox::Delivery;
use store::wake::Topic;
use store::{Result, Store};

const BATCH: i64 = 500;

pub(crate) async fn run(store: &Store, options: &Options) {
    let wakeups = store.wake().subscribe(Topic::Deliver);
    repeat("deliver effects", When::Woken(wakeups, options.poll), || deliver(store)).await;
}

async fn deliver(store: &Store) -> Result<Look> {
    loop {
        let messages = store.take_messages(BATCH).await?;
        if messages.is_empty() {
            return Ok(Look::Idle);
        }
        let mut delivered = Vec::new();
        let mut by_path: BTreeMap<String, Vec<Delivery>> = BTreeMap::new();
        for message in messages {
            match message.payload.get("path").and_then(Value::as_str) {
                Some(path) if message.topic == "append" => {
                    by_path.entry(path.into()).or_default().push(message)
                }
                // An older version put the end of each job here; nobody takes it.
                _ => delivered.push(message.id),
            }
        }
        for (path, messages) in by_path {
            delivered.extend(deliver_lines(store, path, messages).await?);
        }
        store.messages_delivered(&delivered).await?;
    }
}

async fn deliver_lines(store: &Store, path: String, messages: Vec<Delivery>) -> Result<Vec<i64>> {
    let lines: Vec<(String, String)> = messages
        .iter()
        .map(|message| {
            let line = message.payload.get("line").and_then(Value::as_str).unwrap_or_default();
            (message.key.clone(), line.to_owned())
        })
        .collect();
    failpoint::reached("append", "before");
    let appended =
        tokio::task::spawn_blocking(move || append_once(Path::new(&path), &lines).map_err(|e| (path, e)));
    let appended = appended.await.unwrap_or_else(|panic| Err(("?".into(), std::io::Error::other(panic))));
    failpoint::reached("append", "after");
    match appended {
        Ok(()) => Ok(messages.iter().map(|message| message.id).collect()),
        Err((path, error)) => {
            tracing::warn!("cannot append to {path}, trying again later: {error}");
            for message in &messages {
                store.postpone_message(message, &format!("cannot append to {path}: {error}")).await?;
            }
            Ok(Vec::new())
        }
    }
}

/// Appends `key<TAB>line` for each key the file does not have yet; on disk when it returns.
pub fn append_once(path: &Path, lines: &[(String, String)]) -> std::io::Result<()> {
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
    // Released when the file is closed, also by a crash.
    file.lock()?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    // A line cut short by a crash was never delivered.
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    if whole < text.len() {
        file.set_len(whole as u64)?;
        file.seek(SeekFrom::End(0))?;
        text.truncate(whole);
    }
    let known: HashSet<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    let missing = lines.iter().filter(|(key, _)| !known.contains(key.as_str()));
    let new: String = missing.map(|(key, line)| format!("{key}\t{line}\n")).collect();
    file.write_all(new.as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(keys: &[&str]) -> Vec<(String, String)> {
        keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect()
    }

    #[test]
    fn a_line_appears_once_however_often_it_is_delivered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects");

        append_once(&path, &lines(&["a", "b"])).unwrap();
        append_once(&path, &lines(&["b", "c"])).unwrap();

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\tx\nb\tx\nc\tx\n");
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects");
        std::fs::write(&path, "a\tx\nb\t").unwrap();

        append_once(&path, &lines(&["b"])).unwrap();

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\tx\nb\tx\n");
    }
}
