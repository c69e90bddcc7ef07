//! A database and its files belong together. A server refuses to start with the files of another database, and at another
//! place than the other servers of its database: its janitor would remove what the others need.
//!
//! The data folder, or the bucket, says in [`FILE`] whose it is. The database says where its files are: a folder, or a bucket
//! and the service that has it.

use crate::data::Data;
use files::Step;
use files::bucket::{self, Told};
use futures_util::FutureExt;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;
use store::Store;

/// In a data folder or a bucket: which database it belongs to.
pub const FILE: &str = "database-id";

/// Beside where the files are, in the database: which service has the bucket. Older servers know nothing of it.
const ENDPOINT: &str = "storage_endpoint";

/// How long a bucket may take to say whose it is. One that does not answer is asked again before anything is removed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    #[error(
        "the files of this database are in {recorded}, and this server is to use {given}: all servers of a database share \
         one place. Start it with that place; or, if the files were moved, stop all servers and run \
         `vodmill migrate --move-storage` with the new place"
    )]
    Elsewhere { recorded: String, given: String },
    #[error(
        "{place} belongs to another database ({found}), and this one is {expected}: a server would remove the files of the \
         other. Name another --data-folder or another --storage; or, if the files are this database's, run \
         `vodmill migrate --move-storage`"
    )]
    Foreign { place: String, found: String, expected: String },
    #[error(
        "{folder} holds the files of this database, and its file {FILE} is gone: is the disk mounted? If the files are there, \
         run `vodmill migrate --move-storage`"
    )]
    Unmarked { folder: String },
    #[error("{0} does not answer, so it is not known whose files are there")]
    Silent(String),
    #[error("cannot read or write {FILE} in the data folder: {0}")]
    Disk(#[from] std::io::Error),
    #[error("cannot read or write {FILE} in the bucket: {0}")]
    Bucket(#[from] bucket::Error),
    #[error("{0}")]
    Store(#[from] store::Error),
}

/// Whether these are the database's files, as far as anyone has said. Writes nothing.
pub async fn compare(store: &Store, data: &Data) -> Result<(), Mismatch> {
    compared(store, data).await.map(drop)
}

async fn compared(store: &Store, data: &Data) -> Result<Found, Mismatch> {
    let (instance, recorded) = (store.instance().await?, store.storage().await?);
    let found = read(data).await?;
    if let Found::Of(found) = &found
        && *found != instance
    {
        let (place, found) = (data.location(), found.clone());
        return Err(Mismatch::Foreign { place, found, expected: instance });
    }
    // A bucket may be older than its mark; a folder is not.
    if data.bucket().is_none() && found == Found::None && recorded.as_ref() == Some(&data.location()) {
        return Err(Mismatch::Unmarked { folder: data.location() });
    }
    if let Some(recorded) = recorded.filter(|recorded| !is_here(recorded, data)) {
        return Err(Mismatch::Elsewhere { recorded, given: data.location() });
    }
    // One service may have several addresses: the mark tells.
    match store.setting(ENDPOINT).await? {
        Some(recorded) if recorded != endpoint(data) && found != Found::Of(instance) => {
            Err(elsewhere(&recorded, data))
        }
        _ => Ok(found),
    }
}

/// Whether this server may work on these files; the first one that asks makes them the database's.
pub async fn check(store: &Store, data: &Data) -> Result<(), Mismatch> {
    let mut found = compared(store, data).await?;
    let given = data.location();
    // The mark first: killed in between, the next start finds it and goes on.
    if found == Found::None {
        mark(data, &store.instance().await?, Taken::Stays).await?;
        // Another database may have been faster.
        found = compared(store, data).await?;
    }
    let taken = store.take_storage(&given).await?;
    if !is_here(&taken, data) {
        return Err(Mismatch::Elsewhere { recorded: taken, given });
    }
    if data.bucket().is_some() && found != Found::Unknown {
        store.set_once(ENDPOINT, &endpoint(data)).await?;
    }
    Ok(())
}

/// Before anything is removed that the database does not name: the place has to say that it is this database's. A bucket may
/// have been silent when the server started.
pub(crate) async fn make_sure(store: &Store, data: &Data) -> Result<(), Mismatch> {
    if is_marked(store, data).await? {
        return Ok(());
    }
    check(store, data).await?;
    match is_marked(store, data).await? {
        true => Ok(()),
        false => Err(Mismatch::Silent(data.location())),
    }
}

async fn is_marked(store: &Store, data: &Data) -> Result<bool, Mismatch> {
    Ok(read(data).await? == Found::Of(store.instance().await?))
}

/// A folder may have several names.
fn is_here(recorded: &str, data: &Data) -> bool {
    let there = Path::new(recorded);
    let is_same_folder = || data.bucket().is_none() && there.is_absolute() && is_same(there, data.root());
    recorded == data.location() || is_same_folder()
}

/// The service that has the bucket; nothing for a folder.
fn endpoint(data: &Data) -> String {
    data.bucket().map_or("", |bucket| bucket.endpoint().unwrap_or("the provider's own")).into()
}

fn elsewhere(recorded: &str, data: &Data) -> Mismatch {
    let at = |endpoint: &str| match endpoint {
        "" => data.location(),
        endpoint => format!("{} at {endpoint}", data.location()),
    };
    Mismatch::Elsewhere { recorded: at(recorded), given: at(&endpoint(data)) }
}

/// A person has moved the files here, and no server runs.
pub async fn move_here(store: &Store, data: &Data) -> Result<(), Mismatch> {
    mark(data, &store.instance().await?, Taken::Goes).await?;
    Ok(store.move_storage(&data.location(), &endpoint(data)).await?)
}

/// What becomes of a mark that is there already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Stays,
    Goes,
}

async fn mark(data: &Data, instance: &str, taken: Taken) -> Result<(), Mismatch> {
    let content = format!("{instance}\n");
    let Some(bucket) = data.bucket() else {
        let path = data.root().join(FILE);
        return Ok(Step::MarkFolder.around(|| files::replace(&path, content.as_bytes()))?);
    };
    let marking = match taken {
        Taken::Stays => bucket.create(FILE, content.into()).boxed(),
        Taken::Goes => bucket.put(FILE, content.into(), Told::default()).boxed(),
    };
    match Step::MarkBucket.across(marking).await {
        Err(bucket::Error::Taken(_)) => Ok(()),
        marked => Ok(marked?),
    }
}

/// Whose a place says that it is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Of(String),
    None,
    /// The bucket does not answer.
    Unknown,
}

async fn read(data: &Data) -> Result<Found, Mismatch> {
    let text = match data.bucket() {
        None => match std::fs::read_to_string(data.root().join(FILE)) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            text => Some(text?),
        },
        Some(bucket) => match tokio::time::timeout(PATIENCE, bucket.text(FILE)).await {
            Ok(Err(error)) if !error.is_absence() => return Err(error.into()),
            Ok(Ok(text)) => text,
            Ok(Err(_)) | Err(_) => return Ok(Found::Unknown),
        },
    };
    Ok(text.map_or(Found::None, |text| Found::Of(text.trim().chars().take(64).collect())))
}

/// One folder under two names.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |folder: &Path| std::fs::metadata(folder).map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}
