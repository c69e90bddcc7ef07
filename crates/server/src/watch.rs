//! A watched folder: what is put there becomes a video. A file that is still being written is left alone.
//!
//! The kernel tells when a writer closes a file or moves one in; a look every few seconds finds what it did not tell of. A
//! file is taken when it was closed, or when nobody has touched it for a good while, and has not changed between two looks.

use crate::app::App;
use crate::ingest::Wish;
use crate::problem::{Error, Result};
use files::Step;
use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};
use notify::{RecursiveMode, Watcher};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
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
    /// It cannot become a video, as it is.
    was_refused: bool,
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
        if !is_finished(seen.get(&path), &now) {
            let before = seen.get(&path).filter(|before| before.bytes == now.bytes);
            let was_closed = before.is_some_and(|before| before.was_closed);
            let was_refused =
                before.is_some_and(|before| before.was_refused && before.modified == now.modified);
            seen.insert(path, Seen { was_closed, was_refused, ..now });
        } else if let Err(error) = take(app, &path).await {
            let was_refused = error.is_refusal();
            let then = if was_refused { "leaving it there" } else { "trying again" };
            tracing::error!("cannot take {}, {then}: {error}", path.display());
            seen.entry(path).and_modify(|seen| seen.was_refused = was_refused);
        }
    }
}

fn is_finished(before: Option<&Seen>, now: &Seen) -> bool {
    let is_same = before.is_some_and(|before| before.bytes == now.bytes && before.modified == now.modified);
    let is_old = now.modified.elapsed().is_ok_and(|age| age > UNTOUCHED);
    let was_refused = before.is_some_and(|before| before.was_refused);
    is_same && !was_refused && (before.is_some_and(|before| before.was_closed) || is_old)
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
    Some(Seen { bytes: found.len(), modified: found.modified().ok()?, was_closed: false, was_refused: false })
}

/// The file goes when its video is there, so that nothing loses it. What it is taken as depends on the file alone: whoever
/// finds it once more, after a crash in between, knows that it has been taken.
async fn take(app: &App, path: &Path) -> Result<()> {
    let disk = |error: std::io::Error| Error::disk("taking the file", &error);
    let Some(_alone) = lock(path).map_err(disk)? else { return Ok(()) };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let id = identity(path).map_err(disk)?;
    let source = app.ingest.source(&id, &name);
    if app.store.is_source(&source.to_string_lossy()).await? {
        tracing::info!("{name} in the watched folder had become a video already");
    } else {
        let received = app.ingest.adopt(source, path.into()).await?;
        let (video, _) = app.ingest.accept(&received, &name, &Wish::default(), None).await?;
        tracing::info!(video.id = %video, "took {name} out of the watched folder as video {video}");
    }
    match identity(path) {
        Ok(found) if found == id => Step::TakeWatched.around(|| std::fs::remove_file(path)).map_err(disk),
        _ => Ok(()), // Another came in its place.
    }
}

/// One server at a time takes it, of all that watch the folder; let go of when dropped, and by any crash.
fn lock(path: &Path) -> std::io::Result<Option<File>> {
    let file = File::open(path)?;
    // Where files cannot be locked, nobody else is expected.
    let is_busy = matches!(file.try_lock(), Err(std::fs::TryLockError::WouldBlock));
    let is_still_there = std::fs::metadata(path)?.ino() == file.metadata()?.ino();
    Ok((!is_busy && is_still_there).then_some(file))
}

/// Another for each file that is put there, and the same for one that has got a second name since.
fn identity(path: &Path) -> std::io::Result<String> {
    let found = std::fs::metadata(path)?;
    let modified = (found.mtime(), found.mtime_nsec());
    let told = format!("{:?}", (path.file_name(), found.ino(), found.len(), modified, found.created().ok()));
    Ok(hex::encode(&Sha256::digest(told)[..16]))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_taken_when_it_was_closed_and_has_not_changed_since() {
        let now = SystemTime::now();
        let seen = |bytes, modified, was_closed| Seen { bytes, modified, was_closed, was_refused: false };
        let young = seen(5, now, false);

        assert!(!is_finished(None, &young), "seen for the first time");
        assert!(!is_finished(Some(&young), &young), "may still be open");
        assert!(is_finished(Some(&seen(5, now, true)), &young));
        assert!(!is_finished(Some(&seen(4, now, true)), &young), "it has grown");
        let old = seen(5, now - UNTOUCHED - Duration::from_secs(1), false);
        assert!(is_finished(Some(&old), &old), "nobody saw its closing");
        assert!(!is_finished(Some(&Seen { was_refused: true, ..old }), &old), "it would be refused again");
    }

    #[test]
    fn a_file_is_the_same_under_two_names_and_another_when_it_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mp4");
        std::fs::write(&path, "one").unwrap();
        let first = identity(&path).unwrap();

        std::fs::hard_link(&path, folder.path().join("second name")).unwrap();
        assert_eq!(identity(&path).unwrap(), first);
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "two").unwrap();
        assert_ne!(identity(&path).unwrap(), first);
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
