//! Notices that the database went back in time: a backup was restored, or a standby took over that lacked the latest.
//!
//! The data folder keeps a mark of the history. If the database has lost it, another timeline begins, so that nothing of
//! what is given twice is taken for what it was before. Restored together, both went back and nothing shows: for that
//! there is `vodmill migrate --new-timeline`.

use crate::app::App;
use crate::data::Data;
use files::Step;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::Duration;
use store::Store;
use store::timeline::{Mark, Standing, Timeline};

/// In the data folder: the latest mark of the history.
pub const FILE: &str = "timeline.json";

/// Held while the mark is written.
const LOCK: &str = "timeline.lock";

/// What happens in this time before a crash may be unknown to the mark.
const EVERY: Duration = Duration::from_secs(2);

const RESTORED: &str =
    "the database was restored to an earlier point: it does not know what this server had seen of it";
const MOVED: &str = "a dump of another PostgreSQL was restored into this one";

/// Looks before anything is done with the database, and keeps a mark.
pub async fn check(store: &Store, data: &Data) -> store::Result<()> {
    if let Some(mark) = read(data) {
        judge(store, &mark).await?;
    }
    let judged = store.timeline().await?;
    if store.was_moved_here().await? {
        begin(store, judged, MOVED).await?;
    }
    remember(store, data).await
}

/// Keeps the latest mark.
pub async fn remember(store: &Store, data: &Data) -> store::Result<()> {
    let mark = store.mark().await?;
    if read(data).as_ref() != Some(&mark) {
        write(data, &mark);
    }
    Ok(())
}

/// Looks again and again, for the database may be restored under a server that runs.
pub(crate) async fn run(app: App) {
    loop {
        tokio::time::sleep(EVERY).await;
        let looked = async {
            look(&app).await?;
            remember(&app.store, &app.data).await
        };
        if let Err(error) = looked.await {
            tracing::debug!("cannot look whether the database went back in time, trying again: {error}");
        }
    }
}

/// Begins another timeline if the database went back.
pub(crate) async fn look(app: &App) -> store::Result<()> {
    app.store.follow_history().await?;
    match read(&app.data) {
        Some(mark) => judge(&app.store, &mark).await,
        None => Ok(()),
    }
}

/// Others may notice at the same time: only the timeline that was judged is followed by another.
async fn judge(store: &Store, mark: &Mark) -> store::Result<()> {
    let judged = store.timeline().await?;
    match store.standing(mark).await? {
        Standing::Kept | Standing::Earlier => Ok(()),
        Standing::Lost => begin(store, judged, RESTORED).await,
    }
}

async fn begin(store: &Store, after: Timeline, reason: &str) -> store::Result<()> {
    let begun = store.begin_timeline(Some(after), reason).await?;
    tracing::warn!("timeline {begun} begins after {after}: {reason}");
    Ok(())
}

fn path(data: &Data) -> PathBuf {
    data.root().join(FILE)
}

/// None also if it cannot be read: then nothing is known, as at a first start.
fn read(data: &Data) -> Option<Mark> {
    serde_json::from_slice(&std::fs::read(path(data)).ok()?).ok()
}

/// A full disk does not stop a server. Where several share the folder, one writes at a time, and its mark is as good.
fn write(data: &Data, mark: &Mark) {
    let text = serde_json::to_vec(mark).unwrap_or_default();
    let writing = || {
        let lock = File::options().create(true).truncate(false).write(true).open(data.root().join(LOCK))?;
        match lock.try_lock() {
            Ok(()) => Step::NoteMark.around(|| files::replace(&path(data), &text)),
            Err(TryLockError::WouldBlock) => Ok(()),
            Err(TryLockError::Error(error)) => Err(error),
        }
    };
    if let Err(error) = writing() {
        tracing::warn!("cannot write {}: {error}", path(data).display());
    }
}
