//! A database and its files belong together. A server refuses to start with the files of another database, and at another
//! place than the other servers of its database: its janitor would remove what the others need.
//!
//! The data folder says in [`FILE`] whose it is. The database says where its files are: a folder or a bucket.

use crate::data::Data;
use files::Step;
use std::io::ErrorKind;
use std::path::Path;
use store::Store;

/// In a data folder: which database it belongs to.
pub const FILE: &str = "database-id";

#[derive(Debug, thiserror::Error)]
pub enum Mismatch {
    #[error(
        "the files of this database are in {recorded}, and this server is to use {given}: all servers of a database share \
         one place. Start it with that place; or, if the files were moved, stop all servers and run \
         `vodmill migrate --move-storage` with the new place"
    )]
    Elsewhere { recorded: String, given: String },
    #[error(
        "{folder} belongs to another database ({found}), and this one is {expected}: a server would remove the files of the \
         other. Name another --data-folder; or, if the files are this database's, run `vodmill migrate --move-storage`"
    )]
    Foreign { folder: String, found: String, expected: String },
    #[error(
        "{folder} holds the files of this database, and its file {FILE} is gone: is the disk mounted? If the files are there, \
         run `vodmill migrate --move-storage`"
    )]
    Unmarked { folder: String },
    #[error("cannot read or write {FILE} in the data folder: {0}")]
    Disk(#[from] std::io::Error),
    #[error("{0}")]
    Store(#[from] store::Error),
}

/// Whether these are the database's files, as far as anyone has said. Writes nothing.
pub async fn compare(store: &Store, data: &Data) -> Result<(), Mismatch> {
    let (instance, given) = (store.instance().await?, data.location());
    let recorded = store.storage().await?;
    if data.bucket().is_none() {
        let found = read(data.root())?;
        if let Some(found) = found.as_ref().filter(|found| **found != instance) {
            let folder = data.root().display().to_string();
            return Err(Mismatch::Foreign { folder, found: found.clone(), expected: instance });
        }
        if found.is_none() && recorded.as_ref() == Some(&given) {
            return Err(Mismatch::Unmarked { folder: given });
        }
    }
    match recorded.filter(|recorded| !is_here(recorded, data)) {
        Some(recorded) => Err(Mismatch::Elsewhere { recorded, given }),
        None => Ok(()),
    }
}

/// Whether this server may work on these files; the first one that asks makes them the database's.
pub async fn check(store: &Store, data: &Data) -> Result<(), Mismatch> {
    compare(store, data).await?;
    let given = data.location();
    // The folder first: killed in between, the next start finds it marked and goes on.
    if data.bucket().is_none() && read(data.root())?.is_none() {
        mark(data.root(), &store.instance().await?)?;
    }
    let taken = store.take_storage(&given).await?;
    if is_here(&taken, data) {
        Ok(())
    } else {
        Err(Mismatch::Elsewhere { recorded: taken, given })
    }
}

/// A folder may have several names.
fn is_here(recorded: &str, data: &Data) -> bool {
    let there = Path::new(recorded);
    let is_same_folder = || data.bucket().is_none() && there.is_absolute() && is_same(there, data.root());
    recorded == data.location() || is_same_folder()
}

/// A person has moved the files here, and no server runs.
pub async fn move_here(store: &Store, data: &Data) -> Result<(), Mismatch> {
    if data.bucket().is_none() {
        mark(data.root(), &store.instance().await?)?;
    }
    Ok(store.move_storage(&data.location()).await?)
}

fn mark(folder: &Path, instance: &str) -> std::io::Result<()> {
    let content = format!("{instance}\n");
    Step::MarkFolder.around(|| files::replace(&folder.join(FILE), content.as_bytes()))
}

fn read(folder: &Path) -> std::io::Result<Option<String>> {
    match std::fs::read_to_string(folder.join(FILE)) {
        Ok(text) => Ok(Some(text.trim().chars().take(64).collect())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// One folder under two names.
fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |folder: &Path| std::fs::metadata(folder).map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|one| Some(one) == id(other))
}
