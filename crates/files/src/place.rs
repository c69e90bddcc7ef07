//! Where one file is kept.

use crate::Bucket;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub enum Place {
    Disk(PathBuf),
    /// A file of ours: below this folder, by a name that leads through no symbolic link.
    Below(PathBuf, String),
    /// Under this name.
    Bucket(Bucket, String),
}
