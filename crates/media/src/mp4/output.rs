//! A file that is hashed while it is written.

use crate::manifest::Artifact;
use pipeline::FilePath;
use sha2::{Digest, Sha256};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A new file below a folder. It is the caller's to make it durable.
pub struct Output {
    path: FilePath,
    file: BufWriter<File>,
    hash: Sha256,
    bytes: u64,
}

impl Output {
    /// `path` is relative to `folder`, and so written into the artifact.
    pub fn create(folder: &Path, path: &str) -> io::Result<Self> {
        let path: FilePath =
            path.parse().map_err(|bad| io::Error::new(io::ErrorKind::InvalidFilename, bad))?;
        let file = folder.join(&path);
        fs::create_dir_all(file.parent().unwrap_or(folder))?;
        let file = BufWriter::new(File::create(file)?);
        Ok(Output { path, file, hash: Sha256::new(), bytes: 0 })
    }

    /// How much was written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn finish(mut self) -> io::Result<Artifact> {
        self.file.flush()?;
        Ok(Artifact { path: self.path, bytes: self.bytes, sha256: hex::encode(self.hash.finalize()) })
    }
}

impl Write for Output {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.file.write(data)?;
        self.hash.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
