//! A watched folder: what is put there becomes a video. A file that is still being written is left alone.
//!
//! The kernel tells when a writer closes a file or moves one in; a look every few seconds finds what it did not tell of. A
//! file is taken when it was closed, or when nobody has touched it for a good while, and has not changed between two looks.

use crate::app::App;
use crate::ingest::Wish;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::sync::mpsc;

const LOOK: Duration = Duration::from_secs(2);
/// A file whose closing nobody saw is taken for finished after this.
const UNTOUCHED: Duration = Duration::from_secs(60);
/// Names that programs give to what they have not finished.
const UNFINISHED: [&str; 6] = ["part", "tmp", "temp", "crdownload", "partial", "filepart"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    bytes: u64,
    modified: SystemTime,
    was_closed: bool,
}

/// Watches until the server ends. A folder that cannot be watched is looked at all the same.
pub async fn run(app: App, folder: PathBuf) {
    if let Err(error) = std::fs::create_dir_all(&folder) {
        tracing::error!("cannot watch {}: {error}", folder.display());
        return;
    }
    let (closed, mut hints) = mpsc::unbounded_channel();
    let _watching = begin(&folder, closed).inspect_err(|error| {
        tracing::warn!("cannot be told of changes in {}, looking instead: {error}", folder.display())
    });
    tracing::info!("watching {} for videos", folder.display());
    let mut seen = HashMap::new();
    loop {
        look(&app, &folder, &mut seen).await;
        tokio::select! {
            () = app.ending.cancelled() => return,
            () = tokio::time::sleep(LOOK) => {}
            Some(path) = hints.recv() => note_closed(&mut seen, path),
        }
    }
}

fn begin(
    folder: &Path,
    closed: mpsc::UnboundedSender<PathBuf>,
) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let Ok(event) = event else { return };
        let is_finished = matches!(
            event.kind,
            EventKind::Access(AccessKind::Close(AccessMode::Write))
                | EventKind::Modify(ModifyKind::Name(RenameMode::To | RenameMode::Both))
        );
        for path in event.paths.into_iter().filter(|_| is_finished) {
            let _ = closed.send(path);
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

fn note_closed(seen: &mut HashMap<PathBuf, Seen>, path: PathBuf) {
    if let Some(mut now) = state_of(&path) {
        now.was_closed = true;
        seen.insert(path, now);
    }
}

async fn look(app: &App, folder: &Path, seen: &mut HashMap<PathBuf, Seen>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| is_candidate(path)).collect();
    seen.retain(|path, _| files.contains(path));
    for path in files {
        let Some(now) = state_of(&path) else { continue };
        if is_finished(seen.get(&path), &now) {
            seen.remove(&path);
            take(app, path).await;
        } else {
            let was_closed =
                seen.get(&path).is_some_and(|before| before.was_closed && before.bytes == now.bytes);
            seen.insert(path, Seen { was_closed, ..now });
        }
    }
}

fn is_finished(before: Option<&Seen>, now: &Seen) -> bool {
    let is_same = before.is_some_and(|before| before.bytes == now.bytes && before.modified == now.modified);
    let is_old = now.modified.elapsed().is_ok_and(|age| age > UNTOUCHED);
    is_same && (before.is_some_and(|before| before.was_closed) || is_old)
}

/// Only plain files with a name that is meant to stay.
fn is_candidate(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(".");
    let extension =
        path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_lowercase();
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
    is_file && !name.starts_with('.') && !name.ends_with('~') && !UNFINISHED.contains(&extension.as_str())
}

fn state_of(path: &Path) -> Option<Seen> {
    let found = std::fs::metadata(path).ok()?;
    Some(Seen { bytes: found.len(), modified: found.modified().ok()?, was_closed: false })
}

/// Moved to the server's own folder first: whatever becomes of it, it is not taken twice.
async fn take(app: &App, path: PathBuf) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let taken = async {
        let received = app.ingest.adopt(&name, path.clone()).await?;
        app.ingest.accept(&received, &name, &Wish::default(), None).await
    };
    match taken.await {
        Ok((video, _)) => {
            tracing::info!(video.id = %video, "took {name} out of the watched folder as video {video}")
        }
        Err(error) => tracing::error!("cannot take {}: {error}", path.display()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_when_it_was_closed_and_has_not_changed_since() {
        let now = SystemTime::now();
        let seen = |bytes, modified, was_closed| Seen { bytes, modified, was_closed };
        let young = seen(5, now, false);

        assert!(!is_finished(None, &young), "seen for the first time");
        assert!(!is_finished(Some(&young), &young), "may still be open");
        assert!(is_finished(Some(&seen(5, now, true)), &young));
        assert!(!is_finished(Some(&seen(4, now, true)), &young), "it has grown");
        let old = seen(5, now - UNTOUCHED - Duration::from_secs(1), false);
        assert!(is_finished(Some(&old), &old), "nobody saw its closing");
    }

    #[test]
    fn unfinished_and_hidden_files_are_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_taken) in
            [("a.mp4", true), ("a.mp4.part", false), (".a.mp4", false), ("a.tmp", false), ("a~", false)]
        {
            let path = folder.path().join(name);
            std::fs::write(&path, "x").unwrap();
            assert_eq!(is_candidate(&path), is_taken, "{name}");
        }
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("link.mp4")).unwrap();
        assert!(!is_candidate(&folder.path().join("link.mp4")));
    }
}
