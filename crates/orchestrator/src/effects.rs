//! Effects: what a commit entails outside, delivered at least once under a key that stays the same.
//!
//! A line appended to a file appears exactly once, for the file itself remembers the keys.

use crate::Options;
use crate::duty::{Look, When, repeat};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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
        let mut by_target: BTreeMap<Target, Vec<Delivery>> = BTreeMap::new();
        for message in messages {
            match Target::of(&message.payload) {
                Some(target) if message.topic == "append" => {
                    by_target.entry(target).or_default().push(message)
                }
                // An older version put the end of each job here; nobody takes it.
                _ => delivered.push(message.id),
            }
        }
        for (target, messages) in by_target {
            delivered.extend(deliver_lines(store, target, messages).await?);
        }
        store.messages_delivered(&delivered).await?;
    }
}

/// The file that lines are appended to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Wherever the operator's own job says.
    At(String),
    /// A plain file of this folder, for jobs from HTTP.
    In { folder: String, name: String },
}

impl Target {
    fn of(payload: &Value) -> Option<Self> {
        let text = |key: &str| payload.get(key).and_then(Value::as_str).map(str::to_owned);
        match (text("path"), text("folder"), text("name")) {
            (Some(path), ..) => Some(Target::At(path)),
            (None, Some(folder), Some(name)) => Some(Target::In { folder, name }),
            _ => None,
        }
    }

    fn open(&self) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        match self {
            Target::At(path) => options.open(path),
            Target::In { folder, name } => open_in(options, Path::new(folder), name),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::At(path) => f.write_str(path),
            Target::In { folder, name } => write!(f, "{folder}/{name}"),
        }
    }
}

/// Opens one file of a folder: a name without separators, no symbolic link, no second name of a file elsewhere, nothing but
/// a plain file.
fn open_in(mut options: OpenOptions, folder: &Path, name: &str) -> std::io::Result<File> {
    let refused =
        |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidInput, format!("{name}: {what}"));
    if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
        return Err(refused("is no plain file name"));
    }
    // A pipe without a reader must not hold anything up.
    let file =
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).mode(0o600).open(folder.join(name))?;
    let found = file.metadata()?;
    match found.is_file() && found.nlink() == 1 {
        true => Ok(file),
        false => Err(refused("is no plain file of its own")),
    }
}

async fn deliver_lines(store: &Store, target: Target, messages: Vec<Delivery>) -> Result<Vec<i64>> {
    let lines: Vec<(String, String)> = messages
        .iter()
        .map(|message| {
            let line = message.payload.get("line").and_then(Value::as_str).unwrap_or_default();
            (message.key.clone(), line.to_owned())
        })
        .collect();
    failpoint::reached("append", "before");
    let place = target.to_string();
    let appended = tokio::task::spawn_blocking(move || append_once(&target, &lines));
    let appended = appended.await.unwrap_or_else(|panic| Err(std::io::Error::other(panic)));
    failpoint::reached("append", "after");
    match appended {
        Ok(()) => Ok(messages.iter().map(|message| message.id).collect()),
        Err(error) => {
            tracing::warn!("cannot append to {place}, trying again later: {error}");
            for message in &messages {
                store.postpone_message(message, &format!("cannot append to {place}: {error}")).await?;
            }
            Ok(Vec::new())
        }
    }
}

/// Appends `key<TAB>line` for each key the file does not have yet; on disk when it returns.
pub fn append_once(target: &Target, lines: &[(String, String)]) -> std::io::Result<()> {
    let mut file = target.open()?;
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

    fn at(path: &Path) -> Target {
        Target::At(path.to_str().unwrap().into())
    }

    #[test]
    fn a_confined_effect_reaches_plain_files_of_its_folder_only() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("effects");
        std::fs::create_dir(&folder).unwrap();
        let (victim, other) = (outside.path().join("victim"), outside.path().join("other"));
        for path in [&victim, &other] {
            std::fs::write(path, "precious, without a line's end").unwrap();
        }
        std::os::unix::fs::symlink(&victim, folder.join("link")).unwrap();
        std::fs::hard_link(&other, folder.join("hard")).unwrap();
        std::fs::create_dir(folder.join("folder")).unwrap();
        let append = |name: &str| {
            let folder = folder.to_str().unwrap().into();
            append_once(&Target::In { folder, name: name.into() }, &lines(&["a"]))
        };

        append("plain").unwrap();
        append("plain").unwrap();

        assert_eq!(std::fs::read_to_string(folder.join("plain")).unwrap(), "a\tx\n");
        for name in ["link", "hard", "folder", "../victim", "/etc/passwd", "..", "."] {
            assert!(append(name).is_err(), "{name}");
        }
        for path in [victim, other] {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "precious, without a line's end");
        }
    }

    #[test]
    fn a_line_appears_once_however_often_it_is_delivered() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects");

        append_once(&at(&path), &lines(&["a", "b"])).unwrap();
        append_once(&at(&path), &lines(&["b", "c"])).unwrap();

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\tx\nb\tx\nc\tx\n");
    }

    #[test]
    fn a_line_cut_short_by_a_crash_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("effects");
        std::fs::write(&path, "a\tx\nb\t").unwrap();

        append_once(&at(&path), &lines(&["b"])).unwrap();

        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\tx\nb\tx\n");
    }
}
