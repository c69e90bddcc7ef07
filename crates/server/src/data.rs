//! Where the server keeps its files.
//!
//! ```text
//! uploads/<id>             on its way in
//! sources/<id>.<ext>       whole, and named by a video; or by none, and soon removed
//! incoming/<execution>/    outputs that a remote worker is bringing
//! parts/<execution>/       what an execution made, from just before its commit until its job is over
//! videos/<video>/<generation>/
//! work/                    working folders of the workers inside
//! ```

use files::Files;
use rules::{ExecutionId, VideoId};
use std::io;
use std::path::{Path, PathBuf};

/// A folder that is the server's alone. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Data {
    root: PathBuf,
}

impl Data {
    pub fn open(root: impl AsRef<Path>) -> io::Result<Self> {
        std::fs::create_dir_all(&root)?;
        let data = Data { root: root.as_ref().canonicalize()? };
        for folder in [data.uploads(), data.sources(), data.all_incoming(), data.videos()] {
            std::fs::create_dir_all(folder)?;
        }
        Ok(data)
    }

    pub fn root(&self) -> &Path {
        &self.root
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
    let part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.len() <= 255
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.+@=".contains(&byte))
    };
    path.len() <= 1024 && path.split('/').count() <= 8 && path.split('/').all(part)
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
