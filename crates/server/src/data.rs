//! Where the server keeps its files.
//!
//! ```text
//! uploads/<id>             on its way in; in a bucket, in pieces
//! sources/<id>.<ext>       whole, and named by a video; or by none, and soon removed
//! incoming/<execution>/    outputs that a remote worker is bringing; only the server that verifies them reads there
//! parts/<execution>/       what an execution made, from just before its commit until its job is over
//! videos/<video>/<generation>/
//! work/                    working folders of the workers inside
//! ```
//!
//! With a bucket, all but `work` is there, under the same names: any number of servers share it, and what is left on a
//! server's own disk may be lost with it. Files that come through a server are in its own `incoming` until they are whole.

use crate::problem::Result;
use files::{Bucket, Files, Place, Step};
use rules::{ExecutionId, VideoId};
use std::io;
use std::path::{Path, PathBuf};

/// A folder that is the server's alone, and perhaps a bucket that is all servers'. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Data {
    root: PathBuf,
    bucket: Option<Bucket>,
}

impl Data {
    pub fn open(root: impl AsRef<Path>) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let data = Data { root: root.as_ref().canonicalize()?, bucket: None };
        for folder in [data.uploads(), data.sources(), data.all_incoming(), data.videos()] {
            std::fs::create_dir_all(folder)?;
        }
        Ok(data)
    }

    /// Sources, parts and generations are there, and not in the folder.
    pub fn with_bucket(self, bucket: Option<Bucket>) -> Self {
        Data { bucket, ..self }
    }

    pub fn bucket(&self) -> Option<&Bucket> {
        self.bucket.as_ref()
    }

    /// The place that all servers of a database share: the bucket, or the folder.
    pub fn location(&self) -> String {
        match &self.bucket {
            Some(bucket) => bucket.url().trim_end_matches('/').to_owned(),
            None => self.root.to_string_lossy().into_owned(),
        }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where generations of a video go, as its jobs are told: a folder, or a name in the bucket.
    pub fn output(&self, video: VideoId) -> String {
        match self.bucket {
            Some(_) => format!("videos/{video}"),
            None => self.video(video).to_string_lossy().into_owned(),
        }
    }

    /// A file of a generation.
    pub fn published(&self, video: VideoId, generation: &str, path: &str) -> Place {
        self.place(&format!("videos/{video}/{generation}/{path}"))
    }

    /// A file that an execution made.
    pub fn part(&self, execution: &str, path: &str) -> Place {
        self.place(&format!("parts/{execution}/{path}"))
    }

    /// Where workers put objects of an execution in a bucket. They may replace them there until the server has copied them.
    pub fn incoming_object(execution: ExecutionId, path: &str) -> String {
        format!("incoming/{execution}/{path}")
    }

    /// A video's source, as its row names it.
    pub fn source(&self, source: &Path) -> Place {
        match &self.bucket {
            // One with a path came before there was a bucket.
            Some(bucket) if source.is_relative() => {
                Place::Bucket(bucket.clone(), source.to_string_lossy().into_owned())
            }
            _ => Place::Disk(source.into()),
        }
    }

    /// What a source with this file name will be called in its row.
    pub fn source_called(&self, name: &str) -> PathBuf {
        match self.bucket {
            Some(_) => Path::new("sources").join(name),
            None => self.sources().join(name),
        }
    }

    pub async fn has_source(&self, source: &Path) -> Result<bool> {
        Ok(match self.source(source) {
            Place::Disk(path) => path.is_file(),
            Place::Below(root, name) => files::Tree::open(&root).and_then(|tree| tree.read(&name)).is_ok(),
            Place::Bucket(bucket, name) => bucket.has(&name).await?,
        })
    }

    pub async fn remove_source(&self, source: &Path) -> Result<()> {
        let removing = async {
            match self.source(source) {
                Place::Disk(path) => {
                    files::remove(&path).map_err(|error| crate::Error::disk("removing a file", &error))
                }
                Place::Below(root, name) => files::remove(&root.join(name))
                    .map_err(|error| crate::Error::disk("removing a file", &error)),
                Place::Bucket(bucket, name) => Ok(bucket.remove(&name).await?),
            }
        };
        Step::RemoveSource.across(removing).await
    }

    /// A file by its name below the place of all files: `parts/…`, `videos/…`.
    pub(crate) fn named(&self, name: &str) -> Place {
        self.place(name)
    }

    fn place(&self, name: &str) -> Place {
        match &self.bucket {
            Some(bucket) => Place::Bucket(bucket.clone(), name.into()),
            None => Place::Below(self.root.clone(), name.into()),
        }
    }

    pub fn uploads(&self) -> PathBuf {
        self.root.join("uploads")
    }

    pub fn sources(&self) -> PathBuf {
        self.root.join("sources")
    }

    pub fn all_incoming(&self) -> PathBuf {
        self.root.join("incoming")
    }

    pub fn incoming(&self, execution: ExecutionId) -> PathBuf {
        self.all_incoming().join(execution.to_string())
    }

    pub fn parts(&self) -> Files {
        Files::at(self.root.join("parts"))
    }

    pub fn videos(&self) -> PathBuf {
        self.root.join("videos")
    }

    pub fn video(&self, id: VideoId) -> PathBuf {
        self.videos().join(id.to_string())
    }

    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }
}

/// `/` between parts, none of them empty, hidden or upwards: a path that stays where it is put.
pub fn is_tame(path: &str) -> bool {
    pipeline::FilePath::is_valid(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tame_paths_are_taken() {
        for path in ["720p/seg-00001.m4s", "master.m3u8", "a/b/c.vtt"] {
            assert!(is_tame(path), "{path}");
        }
        let long = "a".repeat(256);
        for path in [
            "",
            "/",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            ".hidden",
            "a/.b",
            "a\\b",
            "a b",
            "a\0b",
            "ü",
            &long,
        ] {
            assert!(!is_tame(path), "{path}");
        }
    }
}
