//! The folder a stream is written to.
//!
//! ```text
//! OUTPUT/master.m3u8       points into the current generation; replaced as a whole when a new one is complete
//! OUTPUT/g-1f2e3d4c5b/     a generation: named for its source and settings, complete in itself, never changed
//! OUTPUT/.vodmill/         what is needed to go on: a small database, and while something runs, its parts
//! ```

use crate::settings::{Settings, Usage};
use anyhow::Context;
use files::{Files, Step};
use media::manifest::Artifact;
use media::settings::Settings as Chosen;
use rules::{ExecutionName, JobId, Priority, VideoId};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::fs::{self, File, TryLockError};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use store::detail::ExecutionView;
use store::video::NewVideo;
use store::{Location, Store};
use worker::transcode::{Order, Packaged, Published, Seen};

const STATE: &str = ".vodmill";
const GENERATION: &str = "g-";
/// Beside the master playlist only where it was asked for.
const DASH: &str = "manifest.mpd";

pub struct Folder {
    root: PathBuf,
    /// Held as long as this program lives: two at once would not harm, but neither would they help.
    _lock: File,
}

impl Folder {
    pub fn open(output: &Path) -> anyhow::Result<Self> {
        let make = || {
            fs::create_dir_all(output)?;
            // Unlike the stream, it is for this user alone.
            fs::DirBuilder::new().recursive(true).mode(0o700).create(output.join(STATE))?;
            let root = output.canonicalize()?;
            let lock = root.join(STATE).join("lock");
            Ok((root, File::options().create(true).truncate(false).write(true).open(lock)?))
        };
        let (root, lock): (PathBuf, File) = make().map_err(|error: std::io::Error| {
            Usage(format!("the folder {} cannot be used: {error}", output.display()))
        })?;
        match lock.try_lock() {
            Ok(()) => Ok(Folder { root, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                anyhow::bail!("another vodmill is at work in {}; wait for it, or stop it", output.display())
            }
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("the folder {} cannot be locked", output.display()))
            }
        }
    }

    pub fn parts(&self) -> Files {
        Files::at(self.root.join(STATE).join("parts"))
    }

    pub fn work(&self) -> PathBuf {
        self.root.join(STATE).join("work")
    }

    /// A place for a file that nobody needs.
    pub fn trial(&self) -> PathBuf {
        self.root.join(STATE).join("trial")
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub async fn store(&self, settings: &Settings) -> anyhow::Result<Store> {
        let file = self.root.join(STATE).join("vodmill.db");
        let location: Location = format!("sqlite:{}", file.display()).parse()?;
        Ok(Store::open(&location, settings.store_options()?).await?)
    }

    /// What is to be done, named so that the same wish has the same name.
    pub async fn order(
        &self,
        store: &Store,
        source: &Path,
        settings: Chosen,
        stall: Duration,
    ) -> anyhow::Result<Order> {
        let name = source.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = |path: &Path| {
            let text = path.to_str().map(str::to_owned);
            text.ok_or_else(|| Usage(format!("{} is not a name in UTF-8; rename it", path.display())))
        };
        let seen = Seen::of(&text(source)?)?;
        let generation = format!("{GENERATION}{}", &identity(source, seen, &settings)?[..10]);
        Ok(Order {
            fetch: None,
            carry: None,
            name: name.chars().take(200).collect(),
            user: "default".into(),
            priority: Priority::default(),
            video: the_video(store, &name, &text(source)?).await?,
            source: text(source)?,
            seen: Some(seen),
            settings,
            is_early_playback: false,
            pool: None,
            output: text(&self.root)?,
            generation,
            stall,
            timeout: None,
            max_attempts: 3,
            backoff_initial: Duration::from_secs(1),
        })
    }

    /// Whether everything that was published is still there.
    pub fn has(&self, published: &Published) -> bool {
        self.has_files(&published.generation, &published.packaged)
    }

    /// Whether what an unfinished job has committed is still there, so that it can go on.
    pub async fn has_parts(
        &self,
        store: &Store,
        job: JobId,
        generation: &str,
        care: Care,
    ) -> anyhow::Result<bool> {
        let is_there = |result: &Value| {
            let execution = result["execution"].as_str();
            execution.is_none_or(|execution| self.has_part(execution, result, care))
        };
        let packaged = store.results_of_stage(job, "package").await?;
        if let Some(result) = packaged.into_iter().find(|result| !result.is_null()) {
            // Killed right after it was published, it lies under its final name.
            return Ok(is_there(&result) || self.has_files(generation, &serde_json::from_value(result)?));
        }
        for stage in ["encode", "encode_optional", "audio", "subtitles", "thumbnails"] {
            let results = match store.results_of_stage(job, stage).await {
                // Only some jobs have it.
                Err(store::Error::NotFound(_)) => continue,
                results => results?,
            };
            if !results.iter().all(is_there) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_part(&self, execution: &str, result: &Value, care: Care) -> bool {
        let folder = self.parts().folder(execution);
        folder.is_dir() && artifacts(result).iter().all(|file| care.finds(&folder, file))
    }

    fn has_files(&self, generation: &str, packaged: &Packaged) -> bool {
        let folder = self.root.join(generation);
        packaged.files.iter().all(|file| Care::Sizes.finds(&folder, file))
    }

    /// Removes what others left behind: jobs of other wishes are given up, and so are parts that nobody committed.
    pub async fn tidy(&self, store: &Store, job: JobId) -> anyhow::Result<()> {
        for other in store.jobs(&store::job::Filter::default()).await? {
            if other.id != job && !other.state.is_final() {
                match store.cancel(other.id, None).await {
                    // All of it was committed already.
                    Ok(()) | Err(store::Error::Refused(_)) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        let executions = store.executions_of_job(job).await?;
        let committed = executions.iter().filter(|execution| execution.committed_at.is_some());
        // Older versions named the folders without the token.
        let names =
            |it: &ExecutionView| [it.id, ExecutionName { token: None, ..it.id }].map(|it| it.to_string());
        let kept: Vec<String> = committed.flat_map(names).collect();
        Step::ClearParts.around(|| self.parts().remove_all_but(&kept))?;
        Ok(())
    }

    /// Lets the folder show what was published, and removes what that replaces. Killed in between, the same command
    /// finishes it.
    pub fn show(&self, published: &Published) -> anyhow::Result<()> {
        for index in &published.packaged.indexes {
            let path = self.root.join(&index.name);
            Step::Show.around(|| files::replace(&path, index.text.as_bytes()))?;
        }
        Step::ClearShown.around(|| self.clear(published)).map_err(anyhow::Error::from)
    }

    fn clear(&self, published: &Published) -> std::io::Result<()> {
        let is_shown = |name: &str| published.packaged.indexes.iter().any(|index| index.name == name);
        // It would lead into what is removed now.
        if !is_shown(DASH) {
            files::remove(&self.root.join(DASH))?;
        }
        for entry in fs::read_dir(&self.root)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_generation(&name) && name != published.generation {
                files::remove(&entry.path())?;
            }
        }
        self.parts().remove_all_but(&[])?;
        for empty in ["parts", "work", "trial"] {
            files::remove(&self.root.join(STATE).join(empty))?;
        }
        Ok(())
    }
}

/// How closely files are looked at before they are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    Sizes,
    /// Also their content: what was made of them was not right.
    Hashes,
}

impl Care {
    fn finds(self, folder: &Path, file: &Artifact) -> bool {
        let path = folder.join(&file.path);
        match self {
            Care::Sizes => fs::metadata(path).is_ok_and(|found| found.len() == file.bytes),
            Care::Hashes => files::read_through(&path).is_ok_and(|found| found.sha256 == file.sha256),
        }
    }
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

fn is_generation(name: &str) -> bool {
    let id = name.strip_prefix(GENERATION);
    id.is_some_and(|id| id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The same for the same file, settings and version of this program.
fn identity(source: &Path, seen: Seen, settings: &Chosen) -> anyhow::Result<String> {
    let mut digest = Sha256::new();
    digest.update(source.as_os_str().as_encoded_bytes());
    digest.update(format!(
        "\0{}\0{}\0{}\0{}",
        seen.bytes,
        seen.modified_ns,
        serde_json::to_string(settings)?,
        env!("CARGO_PKG_VERSION")
    ));
    Ok(hex::encode(digest.finalize()))
}

async fn the_video(store: &Store, title: &str, source: &str) -> anyhow::Result<VideoId> {
    const SLUG: &str = "output";
    if let Some(video) = store.find_video(SLUG).await? {
        return Ok(video);
    }
    let new = NewVideo {
        slug: SLUG.into(),
        title: title.into(),
        user: "default".into(),
        source: Some(source.into()),
        ..NewVideo::default()
    };
    Ok(store.create_video(&new).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_generations_are_taken_for_generations() {
        assert!(is_generation("g-1f2e3d4c5b"));
        for other in ["g-", "g-holiday", "1f2e3d4c5b", "g-1f2e3d4c5b0", "g-../../../x"] {
            assert!(!is_generation(other), "{other}");
        }
    }
}
