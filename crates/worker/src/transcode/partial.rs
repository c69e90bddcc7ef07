//! What has arrived of a file that is being fetched. It outlives its execution: the next one asks for the rest.
//!
//! ```text
//! source           as far as it has come
//! arrived.json     how much of it is surely on the disk, and of what
//! ```

use super::ingest::Fetch;
use crate::context::Context;
use crate::handler::Failed;
use crate::kept::KeptFolder;
use crate::shared::blocking;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

const FILE: &str = "source";
const NOTE: &str = "arrived.json";

/// How much is there of what.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Arrived {
    pub bytes: u64,
    /// How much there will be, if that is known.
    pub whole: Option<u64>,
    /// What must be the same for the rest to fit.
    pub version: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Note {
    /// The hash of the address and the destination: an address may hold a password.
    of: String,
    #[serde(flatten)]
    arrived: Arrived,
}

pub(super) struct Partial {
    folder: PathBuf,
    kept: Option<KeptFolder>,
}

impl Partial {
    /// While an execution before this one still uses the task's folder, this one begins again in its own.
    pub async fn open(context: &Context) -> Result<Self, Failed> {
        let kept = KeptFolder::of(context).await;
        let folder = match &kept {
            Some(kept) => kept.path().to_owned(),
            None => context.folder().await?.to_owned(),
        };
        Ok(Partial { folder, kept })
    }

    pub fn file(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// Whether the next execution finds it.
    pub fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// What an execution before this one left of the same file.
    pub async fn arrived(&self, fetch: &Fetch) -> Arrived {
        let (note, file) = (self.folder.join(NOTE), self.file());
        let found = blocking(move || Ok((std::fs::read(note)?, std::fs::metadata(file)?.len()))).await;
        let Ok((note, length)) = found else { return Arrived::default() };
        match serde_json::from_slice::<Note>(&note) {
            Ok(note) if note.of == hash(fetch) && note.arrived.bytes <= length => note.arrived,
            _ => Arrived::default(),
        }
    }

    /// The bytes are on the disk already.
    pub async fn note(&self, fetch: &Fetch, arrived: &Arrived) -> std::io::Result<()> {
        let note = Note { of: hash(fetch), arrived: arrived.clone() };
        let (path, note) = (self.folder.join(NOTE), serde_json::to_vec(&note)?);
        blocking(move || files::replace(&path, &note)).await
    }

    pub async fn remove(self) {
        if let Some(kept) = self.kept {
            kept.remove().await;
        }
    }
}

fn hash(fetch: &Fetch) -> String {
    hex::encode(Sha256::digest(format!("{}\n{}", fetch.url, fetch.to)))
}
