//! Notices that the database went back in time: a backup was restored, or a standby took over that lacked the latest.
//!
//! The data folder keeps a mark of the history, and so does the bucket, because the folder of a container is a fresh one. If the database has lost it, another timeline begins, so that nothing of
//! what is given twice is taken for what it was before. Restored together, both went back and nothing shows: for that
//! there is `vodmill migrate --new-timeline`.

use crate::app::App;
use crate::data::Data;
use files::Step;
use files::bucket::Told;
use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use store::Store;
use store::timeline::{Mark, Standing, Timeline};

/// In the data folder and in the bucket: the latest mark of the history.
pub const FILE: &str = "timeline.json";

/// Held while the mark is written.
const LOCK: &str = "timeline.lock";

/// What happens in this time before a crash may be unknown to the mark.
const EVERY: Duration = Duration::from_secs(2);

const RESTORED: &str =
    "the database was restored to an earlier point: it does not know what this server had seen of it";
const MOVED: &str = "a dump of another PostgreSQL was restored into this one";

/// How often at most the mark in a bucket is replaced.
const BUCKET_EVERY: Duration = Duration::from_secs(10);

/// How long a bucket may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Looks before anything is done with the database, and keeps a mark.
pub async fn check(store: &Store, data: &Data) -> store::Result<()> {
    let in_bucket = fetch(data).await;
    for mark in [read(data), in_bucket.clone().flatten()].into_iter().flatten() {
        judge(store, &mark).await?;
    }
    let judged = store.timeline().await?;
    if store.was_moved_here().await? {
        begin(store, judged, MOVED).await?;
    }
    let mark = note(store, data).await?;
    if in_bucket.is_some_and(|before| before.as_ref() != Some(&mark)) {
        send(data, &mark).await;
    }
    Ok(())
}

/// Keeps the latest mark.
pub async fn remember(store: &Store, data: &Data) -> store::Result<()> {
    let mark = note(store, data).await?;
    send(data, &mark).await;
    Ok(())
}

async fn note(store: &Store, data: &Data) -> store::Result<Mark> {
    let mark = store.mark().await?;
    if read(data).as_ref() != Some(&mark) {
        write(data, &mark);
    }
    Ok(mark)
}

/// Looks again and again, for the database may be restored under a server that runs.
pub(crate) async fn run(app: App) {
    let mut sent: Option<(Mark, Instant)> = None;
    loop {
        tokio::time::sleep(EVERY).await;
        let looked = async {
            look(&app).await?;
            note(&app.store, &app.data).await
        };
        match looked.await {
            Ok(mark) if is_due(sent.as_ref(), &mark) => {
                send(&app.data, &mark).await;
                sent = Some((mark, Instant::now()));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!("cannot look whether the database went back in time, trying again: {error}");
            }
        }
    }
}

/// A request costs money: one now and then, and only if there is something new.
fn is_due(sent: Option<&(Mark, Instant)>, mark: &Mark) -> bool {
    sent.is_none_or(|(before, at)| before != mark && at.elapsed() >= BUCKET_EVERY)
}

/// The mark in the bucket, if that answers.
async fn fetch(data: &Data) -> Option<Option<Mark>> {
    match tokio::time::timeout(PATIENCE, data.bucket()?.text(FILE)).await {
        Ok(Ok(text)) => Some(text.and_then(|text| serde_json::from_str(&text).ok())),
        Ok(Err(error)) => {
            tracing::warn!("cannot read {FILE} in the bucket: {error}");
            None
        }
        Err(_) => None,
    }
}

/// A bucket that is away does not stop a server: the mark in the folder is there, too.
async fn send(data: &Data, mark: &Mark) {
    let Some(bucket) = data.bucket() else { return };
    let text = serde_json::to_vec(mark).unwrap_or_default();
    let putting = Step::NoteMarkObject.across(bucket.put(FILE, text.into(), Told::default()));
    if let Ok(Err(error)) = tokio::time::timeout(PATIENCE, putting).await {
        tracing::warn!("cannot write {FILE} in the bucket: {error}");
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
