//! Compares the files that the database names with those that are there, on a disk or in a bucket. Changes nothing.
//!
//! Files are listed before the database is asked who needs them: what is made meanwhile is not taken for a stray.

use crate::data::Data;
use crate::problem::{Error, Result};
use crate::submission::Limits;
use files::{Place, Tree};
use futures_util::TryStreamExt;
use media::manifest::Artifact;
use pipeline::{FilePath, StageKind};
use rules::job::State;
use rules::{ExecutionName, JobId, VideoId};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use store::Store;
use store::doctor::Finding;
use store::inventory::{Committed, VideoFiles};

const GONE: &str = "every file that a commit or a video names is there, with its size";
const DIFFERS: &str = "every file has the content it was committed with";
const STRAY: &str = "every file is named by the database";

/// How closely files are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    Sizes,
    /// Also their hashes: every file is read.
    Hashes,
}

/// What was compared.
#[derive(Debug, Default, serde::Serialize)]
pub struct Inventory {
    pub files: u64,
    pub findings: Vec<Finding>,
}

/// Looks at all files of a database, and at what workers of this machine left in the folder they work in.
pub async fn examine(store: &Store, data: &Data, work: &Path, depth: Depth) -> Result<Inventory> {
    let mut look = Look { store, data, depth, restored: restored(store).await?, found: Inventory::default() };
    look.parts().await?;
    look.videos().await?;
    look.sources().await?;
    look.incoming().await?;
    look.uploads().await?;
    look.work(work)?;
    Ok(look.found)
}

/// What a job has committed and cannot be read any more, one line for each.
pub async fn lost_outputs(store: &Store, data: &Data, job: JobId) -> Result<Vec<String>> {
    let mut look = Look { store, data, depth: Depth::Sizes, restored: None, found: Inventory::default() };
    let video = store.video_of_job(job).await?;
    for committed in store.committed_files(job).await? {
        look.committed(video, &committed).await?;
    }
    Ok(look.found.findings.into_iter().map(|finding| finding.what).collect())
}

/// Opens a failed job again. If files that it has committed are gone, they cannot be read again: another job makes them,
/// and both logs say why. Which job goes on. Over HTTP, `limits` are those of jobs that are submitted over HTTP: the other
/// job is admitted as any other.
pub async fn retry(store: &Store, data: &Data, job: JobId, limits: Option<&Limits>) -> Result<JobId> {
    let lost = lost_outputs(store, data, job).await?;
    if lost.is_empty() {
        store.retry_job(job, None).await?;
        return Ok(job);
    }
    // The server itself wrote the stages of a job that makes a video.
    if let (Some(limits), None) = (limits, store.video_of_job(job).await?) {
        limits.admit_again(store.spec_of(job).await?)?;
    }
    Ok(store.make_again(job, &lost).await?)
}

struct Look<'a> {
    store: &'a Store,
    data: &'a Data,
    depth: Depth,
    /// The timeline that began when a database was restored, for people.
    restored: Option<String>,
    found: Inventory,
}

async fn restored(store: &Store) -> Result<Option<String>> {
    let latest = store.timelines().await?.pop().filter(|timeline| timeline.number > 1);
    Ok(latest.map(|timeline| format!("timeline {} began: {}", timeline.name, timeline.reason)))
}

impl Look<'_> {
    fn find(&mut self, check: &'static str, subject: impl Into<String>, what: String) {
        self.found.findings.push(Finding { check, subject: subject.into(), what });
    }

    /// What executions made, of jobs that may go on; and what nobody needs.
    async fn parts(&mut self) -> Result<()> {
        let mut there = BTreeMap::new();
        for folder in self.data.folders("parts").await? {
            there.insert(folder.clone(), self.data.list(&format!("parts/{folder}")).await?);
        }
        let mut named: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for job in self.store.jobs_that_may_go_on().await? {
            let video = self.store.video_of_job(job).await?;
            for committed in self.store.committed_files(job).await? {
                let paths = artifacts(&committed.result).into_iter().map(|file| file.path.to_string());
                named.entry(folder_of(&committed)).or_default().extend(paths);
                self.committed(video, &committed).await?;
            }
        }
        for (folder, files) in there {
            let name: Option<ExecutionName> = folder.parse().ok();
            match (named.get(&folder), name) {
                (Some(paths), _) => {
                    let strays = files.keys().filter(|path| !paths.contains(path) && !is_index(path));
                    for path in strays.cloned().collect::<Vec<_>>() {
                        self.stray(&format!("parts/{folder}/{path}"), "its execution did not commit it");
                    }
                }
                // It runs, or its result names no files.
                (None, Some(name)) if self.store.needs_files(name).await? => {}
                (None, Some(_)) => {
                    self.stray(
                        &format!("parts/{folder}"),
                        "no job needs it; the janitor of a server removes it",
                    );
                }
                (None, None) => self.stray(&format!("parts/{folder}"), "it is named after no execution"),
            }
        }
        Ok(())
    }

    async fn committed(&mut self, video: Option<VideoId>, committed: &Committed) -> Result<()> {
        let folder = folder_of(committed);
        let job = committed.execution.task.job();
        let again = match self.store.job(job).await?.state {
            State::Failed => format!("make it again: vodmill job retry {job}"),
            _ => format!("make it again once the job has failed: vodmill job retry {job}"),
        };
        for file in artifacts(&committed.result) {
            let mut places = vec![format!("parts/{folder}/{}", file.path)];
            places.extend(published_at(video, committed).into_iter().map(|at| format!("{at}/{}", file.path)));
            let remedy = format!("bring the file back from a backup, or {again}");
            self.compare(&places, &file, format!("job {job}, stage {}", committed.stage), &remedy).await?;
        }
        Ok(())
    }

    async fn videos(&mut self) -> Result<()> {
        let folders = self.data.folders("videos").await?;
        let mut there = BTreeMap::new();
        for folder in folders {
            there.insert(folder.clone(), self.data.folders(&format!("videos/{folder}")).await?);
        }
        let mut after = VideoId(0);
        loop {
            let videos = self.store.files_of_videos(after).await?;
            let Some(last) = videos.last() else { break };
            after = last.id;
            for video in &videos {
                let generations = there.remove(&video.id.to_string()).unwrap_or_default();
                self.video(video, &generations).await?;
            }
        }
        for folder in there.into_keys() {
            self.perhaps_forgotten(&format!("videos/{folder}"), "there is no such video");
        }
        Ok(())
    }

    async fn video(&mut self, video: &VideoFiles, there: &[String]) -> Result<()> {
        let id = video.id;
        let remedy = format!("bring the file back from a backup, or run vodmill video retranscode {id}");
        let mut known = Vec::new();
        for manifest in &video.manifests {
            let Some(generation) = manifest["generation"].as_str() else { continue };
            known.push(generation.to_owned());
            let folder = format!("videos/{id}/{generation}");
            let listed = self.data.list(&folder).await?;
            let named: Vec<Artifact> = serde_json::from_value(manifest["files"].clone()).unwrap_or_default();
            for file in &named {
                let place = format!("{folder}/{}", file.path);
                self.compare(&[place], file, format!("video {id}"), &remedy).await?;
            }
            let is_named = |path: &str| named.iter().any(|file| file.path == path);
            for path in listed.keys().filter(|path| !is_named(path) && !is_index(path)) {
                self.stray(&format!("{folder}/{path}"), "its generation was published without it");
            }
        }
        let unknown: Vec<&String> = there.iter().filter(|generation| !known.contains(generation)).collect();
        if !unknown.is_empty() && !self.store.may_be_published(id).await? {
            for generation in unknown {
                let why = "it was never published; the janitor of a server removes it";
                self.perhaps_forgotten(&format!("videos/{id}/{generation}"), why);
            }
        }
        Ok(())
    }

    async fn sources(&mut self) -> Result<()> {
        let mut there = self.data.list("sources").await?;
        let mut after = VideoId(0);
        loop {
            let videos = self.store.files_of_videos(after).await?;
            let Some(last) = videos.last() else { break };
            after = last.id;
            for VideoFiles { id, source, source_bytes, source_sha256, .. } in videos {
                let Some(source) = source else { continue };
                let name = Path::new(&source).file_name().map(|name| name.to_string_lossy().into_owned());
                let is_ours =
                    self.data.source_called(&name.clone().unwrap_or_default()) == Path::new(&source);
                let found = name.as_ref().filter(|_| is_ours).and_then(|name| there.remove(name));
                let remedy = "bring the file back from a backup; the streams that exist still play";
                match (is_ours, found, source_bytes) {
                    (true, None, Some(_)) => {
                        self.find(
                            GONE,
                            format!("video {id}"),
                            format!("its source {source} is gone: {remedy}"),
                        );
                    }
                    (true, Some(bytes), Some(wanted)) if bytes != wanted.unsigned_abs() => {
                        let what = format!("its source {source} has {bytes} bytes, not {wanted}: {remedy}");
                        self.find(GONE, format!("video {id}"), what);
                    }
                    (true, Some(_), Some(_)) => {
                        let name = format!("sources/{}", name.unwrap_or_default());
                        if let Some(sha256) = source_sha256
                            && self.depth == Depth::Hashes
                            && !self.data.has_hash(&name, &sha256).await?
                        {
                            let what = format!("its source {source} has another content: {remedy}");
                            self.find(DIFFERS, format!("video {id}"), what);
                        }
                    }
                    _ => {}
                }
                self.found.files += u64::from(is_ours);
            }
        }
        for name in there.into_keys() {
            // An upload is named by its video a moment after it is whole.
            let path = self.data.source_called(&name);
            if !self.store.is_source(&path.to_string_lossy()).await? {
                self.perhaps_forgotten(
                    &format!("sources/{name}"),
                    "no video was made of it; if no upload just ended, remove it",
                );
            }
        }
        Ok(())
    }

    /// What remote workers bring is on this disk until it is whole.
    async fn incoming(&mut self) -> Result<()> {
        for name in entries(&self.data.all_incoming())? {
            let why = match name.parse::<ExecutionName>() {
                Ok(execution) if self.store.needs_files(execution).await? => continue,
                Ok(_) => "its execution has ended; the janitor of a server removes it",
                Err(_) => "it is named after no execution; remove it",
            };
            self.stray(&format!("incoming/{name}"), why);
        }
        Ok(())
    }

    async fn uploads(&mut self) -> Result<()> {
        let mut there = entries(&self.data.uploads())?;
        if self.data.bucket().is_some() {
            there.extend(self.data.folders("uploads").await?);
        }
        for name in there {
            match self.store.upload(&name).await {
                Ok(_) => {}
                Err(store::Error::NotFound(_)) => {
                    self.perhaps_forgotten(&format!("uploads/{name}"), "no upload has this id; remove it");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// A worker that lives holds the lock of its folder.
    fn work(&mut self, folder: &Path) -> Result<()> {
        let left = worker::workshop::left_behind(folder);
        for left in left.map_err(|error| Error::disk("listing a folder", &error))? {
            let why = "its worker is gone; the next worker that starts with this work folder removes it";
            self.stray(&left.display().to_string(), why);
        }
        Ok(())
    }

    /// At one of these places there must be the file.
    async fn compare(
        &mut self,
        places: &[String],
        file: &Artifact,
        subject: String,
        remedy: &str,
    ) -> Result<()> {
        self.found.files += 1;
        let mut found = None;
        for place in places {
            found = self.data.size(place).await?.map(|bytes| (place, bytes));
            if found.is_some() {
                break;
            }
        }
        let Some((place, bytes)) = found else {
            self.find(GONE, subject, format!("{} is gone: {remedy}", places[0]));
            return Ok(());
        };
        if bytes != file.bytes {
            let what = format!("{place} has {bytes} bytes, not {}: {remedy}", file.bytes);
            self.find(GONE, subject, what);
        } else if self.depth == Depth::Hashes && !self.data.has_hash(place, &file.sha256).await? {
            self.find(DIFFERS, subject, format!("{place} has another content: {remedy}"));
        }
        Ok(())
    }

    fn stray(&mut self, path: &str, why: &str) {
        self.find(STRAY, path, format!("nothing names it: {why}"));
    }

    /// What the janitor leaves where it is, if it is older than the restore.
    fn perhaps_forgotten(&mut self, path: &str, why: &str) {
        let restored = self.restored.as_ref().map(|restored| {
            format!("; or it was made before {restored}. Then the janitor leaves it: keep it elsewhere, or remove it")
        });
        self.stray(path, &format!("{why}{}", restored.unwrap_or_default()));
    }
}

/// What the folder of an execution is called, which older versions named without its token. A result of a job of any shape
/// may say anything.
fn folder_of(committed: &Committed) -> String {
    let name =
        committed.result["execution"].as_str().or_else(|| committed.result["packaged"]["execution"].as_str());
    let name: Option<ExecutionName> = name.and_then(|name| name.parse().ok());
    name.map_or_else(|| committed.execution.to_string(), |name| name.to_string())
}

/// Where the files of a package are, once its generation is written or shown: below its video's own folder. Results of other
/// kinds of work name no such place.
fn published_at(video: Option<VideoId>, committed: &Committed) -> Vec<String> {
    let Some(video) = video else { return Vec::new() };
    if !matches!(committed.kind.parse(), Ok(StageKind::Package | StageKind::Publish)) {
        return Vec::new();
    }
    let (result, own) = (&committed.result, format!("videos/{video}/"));
    let folders = [&result["folder"], &result["packaged"]["folder"]].into_iter().filter_map(Value::as_str);
    let generation = result["generation"].as_str().map(|generation| format!("{own}{generation}"));
    let places = folders.map(str::to_owned).chain(generation);
    places.filter(|place| place.starts_with(&own) && place.parse::<FilePath>().is_ok()).collect()
}

/// Playlists that the folder above shows are made of the manifest.
fn is_index(path: &str) -> bool {
    !path.contains('/') && (path.ends_with(".m3u8") || path.ends_with(".mpd"))
}

/// The files that a stage's result names, wherever in it.
fn artifacts(result: &Value) -> Vec<Artifact> {
    match result {
        Value::Array(values) => values.iter().flat_map(artifacts).collect(),
        Value::Object(fields) => match serde_json::from_value(result.clone()) {
            Ok(file) => vec![file],
            Err(_) => fields.values().flat_map(artifacts).collect(),
        },
        _ => Vec::new(),
    }
}

impl Data {
    /// Files below a folder by their path in it, with their sizes. What is hidden is on its way.
    async fn list(&self, folder: &str) -> Result<BTreeMap<String, u64>> {
        if let Some(bucket) = self.bucket() {
            let prefix = format!("{folder}/");
            let found = bucket.list(folder).await?.into_iter();
            return Ok(found
                .map(|it| (it.name.strip_prefix(&prefix).unwrap_or(&it.name).to_owned(), it.bytes))
                .collect());
        }
        let root = self.root().join(folder);
        let listed = tokio::task::spawn_blocking(move || {
            let mut found = BTreeMap::new();
            walk(&root, "", &mut found).map(|()| found)
        });
        let listed = listed.await.map_err(|error| Error::Internal(error.to_string()))?;
        listed.map_err(|error| Error::disk("listing files", &error))
    }

    async fn folders(&self, folder: &str) -> Result<Vec<String>> {
        if let Some(bucket) = self.bucket() {
            return Ok(bucket.folders(folder).await?);
        }
        entries(&self.root().join(folder))
    }

    async fn size(&self, name: &str) -> Result<Option<u64>> {
        match self.named(name) {
            Place::Disk(path) => Ok(size_of(&path)),
            Place::Below(folder, name) => Ok(open_below(&folder, &name).ok().and_then(|it| size_in(&it))),
            Place::Bucket(bucket, name) => match bucket.look(&name).await {
                Ok(found) => Ok(Some(found.bytes)),
                Err(files::bucket::Error::NotFound(_)) => Ok(None),
                Err(error) => Err(error.into()),
            },
        }
    }

    async fn has_hash(&self, name: &str, sha256: &str) -> Result<bool> {
        let found = match self.named(name) {
            Place::Disk(path) => hash_of(move || File::open(path)).await?,
            Place::Below(folder, name) => hash_of(move || open_below(&folder, &name)).await?,
            Place::Bucket(bucket, name) => {
                let (mut reading, mut digest) = (bucket.read(&name, None).await?, Sha256::new());
                while let Some(block) = reading.stream.try_next().await? {
                    digest.update(&block);
                }
                hex::encode(digest.finalize())
            }
        };
        Ok(found.eq_ignore_ascii_case(sha256))
    }
}

/// What is in a folder of this disk, by its name.
fn entries(folder: &Path) -> Result<Vec<String>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| Error::disk("listing a folder", &error))?,
    };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.collect())
}

fn size_of(path: &Path) -> Option<u64> {
    std::fs::metadata(path).ok().filter(|found| found.is_file()).map(|found| found.len())
}

/// Through no symbolic link: what lies among our files may be anything.
fn open_below(folder: &Path, name: &str) -> std::io::Result<File> {
    Tree::open(folder)?.read(name)
}

fn size_in(file: &File) -> Option<u64> {
    file.metadata().ok().map(|found| found.len())
}

async fn hash_of(open: impl FnOnce() -> std::io::Result<File> + Send + 'static) -> Result<String> {
    let hash = move || {
        let (mut file, mut digest, mut block) = (open()?, Sha256::new(), vec![0; 256 << 10]);
        loop {
            match file.read(&mut block)? {
                0 => return std::io::Result::Ok(hex::encode(digest.finalize())),
                read => digest.update(&block[..read]),
            }
        }
    };
    let hashed = tokio::task::spawn_blocking(hash).await;
    let hashed = hashed.map_err(|error| Error::Internal(error.to_string()))?;
    hashed.map_err(|error| Error::disk("reading a file", &error))
}

fn walk(folder: &Path, prefix: &str, found: &mut BTreeMap<String, u64>) -> std::io::Result<()> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let path = format!("{prefix}{}", entry.file_name().to_string_lossy());
        match entry.file_type()?.is_dir() {
            true => walk(&entry.path(), &format!("{path}/"), found)?,
            false => drop(found.insert(path, entry.metadata()?.len())),
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use rules::{ExecutionId, Fence, TaskId, Token};
    use serde_json::json;

    fn committed(kind: &str, result: Value) -> Committed {
        let execution = ExecutionId { task: TaskId::new(JobId(7), 0), fence: Fence(1), token: Token(9) };
        Committed { execution, stage: "package".into(), kind: kind.into(), result }
    }

    #[test]
    fn only_a_package_says_where_else_its_files_are_and_only_in_its_videos_folder() {
        let at = |kind, result| published_at(Some(VideoId(3)), &committed(kind, result));
        let packaged = || json!({ "folder": "videos/3/g-1", "packaged": { "folder": "videos/3/g-2" } });

        assert_eq!(at("package", packaged()), ["videos/3/g-1", "videos/3/g-2"]);
        assert_eq!(at("publish", json!({ "generation": "g-1" })), ["videos/3/g-1"]);
        for kind in ["noop", "command", "encode"] {
            assert!(at(kind, packaged()).is_empty(), "{kind}");
        }
        for folder in ["/etc", "..", "videos/3/../../..", "videos/4/g-1", "sources", "videos/3/"] {
            assert!(at("package", json!({ "folder": folder })).is_empty(), "{folder}");
        }
        assert!(at("publish", json!({ "generation": "../4/g-1" })).is_empty());
        assert!(published_at(None, &committed("package", packaged())).is_empty());
    }

    #[test]
    fn a_folder_of_parts_is_named_after_an_execution() {
        let of = |name: &str| folder_of(&committed("noop", json!({ "execution": name })));
        let own = committed("noop", Value::Null).execution.to_string();

        assert_eq!(of("7-0.2"), "7-0.2");
        assert_eq!(of(&own), own);
        for name in ["../sources", "/etc", ".", "7-0.2/../../sources"] {
            assert_eq!(of(name), own, "{name}");
        }
    }

    #[tokio::test]
    async fn a_link_among_our_files_is_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path().join("data")).unwrap();
        let foreign = folder.path().join("foreign");
        std::fs::write(&foreign, "secret").unwrap();
        std::fs::create_dir_all(data.root().join("parts/7-0.1")).unwrap();
        std::os::unix::fs::symlink(&foreign, data.root().join("parts/7-0.1/a")).unwrap();
        std::fs::write(data.root().join("parts/7-0.1/b"), "ours").unwrap();

        assert_eq!(data.size("parts/7-0.1/a").await.unwrap(), None);
        assert!(data.has_hash("parts/7-0.1/a", "").await.is_err());
        assert_eq!(data.size("parts/7-0.1/b").await.unwrap(), Some(4));
        let sha256 = hex::encode(Sha256::digest("ours"));
        assert!(data.has_hash("parts/7-0.1/b", &sha256).await.unwrap());
    }
}
