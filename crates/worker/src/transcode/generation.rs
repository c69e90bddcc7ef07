//! The generation where it stays: on a disk by one rename, in a bucket file by file.
//!
//! A bucket has no rename, so a generation is written where it stays from the beginning, under a name that is its
//! execution's own: nobody else ever writes there. What players open comes last, when it is published; so whatever has a
//! master playlist is complete.

use super::Work;
use super::package::Packaged;
use super::tools::disk;
use crate::Context;
use crate::depot::{self, Depot, Fetch, ask, own_folder};
use crate::handler::Failed;
use files::bucket::{self, Told};
use files::{Bucket, Files, Step};
use futures_util::{StreamExt, TryStreamExt, stream};
use media::kind;
use media::manifest::Artifact;
use pipeline::FilePath;
use std::fs;
use std::path::{Path, PathBuf};

/// Nothing is ever written twice under one name.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// How many files are under way at a time.
const SIDE_BY_SIDE: usize = 4;

/// Where a complete tree is until it is published.
pub(super) struct Kept {
    pub execution: FilePath,
    /// In a bucket: its folder there.
    pub folder: Option<String>,
}

impl Work<'_> {
    /// What this execution is to call the generation that its job calls `name`.
    pub fn generation(&self, name: &str) -> String {
        match &self.tools.depot {
            Depot::Bucket(_) => format!("{name}-{}-{}", self.job.proof.fence, self.job.proof.token),
            Depot::Disk(_) | Depot::Server(_) => name.into(),
        }
    }

    /// Hands a complete tree to those who will publish it below `output` under the name given to this execution.
    pub async fn keep_tree(
        &self,
        tree: PathBuf,
        files: &[Artifact],
        output: &str,
        name: &str,
    ) -> Result<Kept, Failed> {
        let Depot::Bucket(bucket) = &self.tools.depot else {
            return Ok(Kept { execution: self.keep(tree).await?, folder: None });
        };
        self.context.set_step("upload");
        let (execution, folder) = (own_folder(self.job)?, format!("{output}/{name}"));
        let sending = files.iter().map(|file| {
            let to = if is_index(&file.path) { format!("parts/{execution}") } else { folder.clone() };
            self.send(bucket, &tree, file, to)
        });
        let sending: Vec<_> = sending.collect();
        stream::iter(sending).buffer_unordered(SIDE_BY_SIDE).try_collect::<()>().await?;
        Ok(Kept { execution, folder: Some(folder) })
    }

    async fn send(&self, bucket: &Bucket, tree: &Path, file: &Artifact, to: String) -> Result<(), Failed> {
        let told = Told { content_type: Some(kind::of(&file.path)), cache: Some(FOREVER) };
        let (from, name) = (tree.join(&file.path), format!("{to}/{}", file.path));
        let moved = || self.context.progress.beat();
        let sending = bucket.send(&from, &name, told, &moved);
        let sent = ask(self.context, Step::SendGeneration.across(sending)).await?;
        if sent.sha256 == file.sha256 {
            Ok(())
        } else {
            Err(Failed::transient(format!("{} changed on this disk after it was checked", file.path)))
        }
    }

    /// Shows what was packaged below `output`; what it is called there.
    pub async fn publish(&self, packaged: &Packaged, output: &str, name: String) -> Result<String, Failed> {
        match (&self.tools.depot, &packaged.folder) {
            (Depot::Bucket(bucket), Some(folder)) => {
                publish_in(self.context, bucket, packaged, folder).await?;
                Ok(folder.rsplit('/').next().unwrap_or(folder).to_owned())
            }
            (Depot::Disk(parts), None) => {
                let (from, to) = (parts.folder(&packaged.execution), Path::new(output).join(&name));
                let files = packaged.files.clone();
                self.blocking(move || place(&from, &to, &files)).await?;
                Ok(name)
            }
            _ => Err(Failed::permanent(
                "it was packaged where this worker cannot publish it; retranscode the video",
            )),
        }
    }

    /// A folder of what was packaged, on this disk.
    pub async fn packaged(&self, packaged: &Packaged, folder: &str) -> Result<PathBuf, Failed> {
        let Some(place) = &packaged.folder else {
            let parts: Files = self.tools.depot.bring(self.context, &[]).await?;
            return Ok(parts.folder(&packaged.execution).join(folder));
        };
        let tree = self.context.folder().await?.join("packaged");
        let below = format!("{folder}/");
        let wanted = packaged.files.iter().filter(|file| file.path.starts_with(&below));
        self.bring_files(place, &tree, wanted).await?;
        Ok(tree.join(folder))
    }

    /// Where a generation that was published before lies on this disk; from a bucket, these files of it.
    pub async fn bring_generation(&self, folder: &str, files: &[&str]) -> Result<PathBuf, Failed> {
        let Depot::Bucket(bucket) = &self.tools.depot else { return Ok(folder.into()) };
        let here = self.context.folder().await?.join("before");
        for file in files {
            let (name, to) = (format!("{folder}/{file}"), here.join(file));
            let moved = || self.context.progress.beat();
            ask(self.context, bucket.fetch(&name, &to, &moved)).await?;
        }
        Ok(here)
    }

    /// Brings files of a generation, if it is in a bucket.
    pub async fn bring_files<'f>(
        &self,
        folder: &str,
        here: &Path,
        files: impl Iterator<Item = &'f Artifact>,
    ) -> Result<(), Failed> {
        let Depot::Bucket(bucket) = &self.tools.depot else { return Ok(()) };
        let wanted = files.map(|file| Fetch {
            name: format!("{folder}/{}", file.path),
            to: here.join(&file.path),
            file: file.clone(),
        });
        depot::fetch(bucket, self.context, wanted.collect()).await
    }
}

/// What players open.
fn is_index(path: &str) -> bool {
    matches!(path, "master.m3u8" | "manifest.mpd")
}

/// Looks that everything is there, and then adds what players open, the master playlist last. Done twice, it comes to the
/// same.
async fn publish_in(
    context: &Context,
    bucket: &Bucket,
    packaged: &Packaged,
    folder: &str,
) -> Result<(), Failed> {
    let there = ask(context, bucket.list(folder)).await?;
    let is_there = |file: &Artifact| {
        let name = format!("{folder}/{}", file.path);
        there.iter().any(|object| object.name == name && object.bytes == file.bytes)
    };
    let media = packaged.files.iter().filter(|file| !is_index(&file.path));
    if let Some(missing) = media.clone().find(|file| !is_there(file)) {
        return Err(Failed::transient(format!("{folder}/{} is not in the storage", missing.path)));
    }
    let mut indexes: Vec<&Artifact> = packaged.files.iter().filter(|file| is_index(&file.path)).collect();
    indexes.sort_by_key(|file| file.path == "master.m3u8");
    for file in indexes {
        ask(context, add(bucket, &packaged.execution, file, folder)).await?;
    }
    Ok(())
}

async fn add(bucket: &Bucket, execution: &str, file: &Artifact, folder: &str) -> bucket::Result<()> {
    let reading = bucket.read(&format!("parts/{execution}/{}", file.path), None).await?;
    let blocks: Vec<bytes::Bytes> = reading.stream.try_collect().await?;
    let told = Told { content_type: Some(kind::of(&file.path)), cache: Some(FOREVER) };
    let name = format!("{folder}/{}", file.path);
    Step::AddIndex.across(bucket.put(&name, blocks.concat().into(), told)).await
}

/// Moves the folder as a whole. One that is there already is the same: put there by an execution that died before its
/// commit, for the name stands for the source and all settings. If it is not the same, it is taken away first.
fn place(from: &Path, to: &Path, files: &[Artifact]) -> Result<(), Failed> {
    if is_complete(to, files) {
        return Ok(());
    }
    Step::PlaceGeneration.around(|| files::place(from, to)).map_err(|error| disk("publishing", to, &error))
}

fn is_complete(folder: &Path, files: &[Artifact]) -> bool {
    files.iter().all(|file| {
        fs::metadata(folder.join(&file.path)).is_ok_and(|found| found.is_file() && found.len() == file.bytes)
    })
}
