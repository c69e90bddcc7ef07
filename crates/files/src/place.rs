//! Where one file is kept.

use crate::Bucket;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub enum Place {
    Disk(PathBuf),
    /// Under this name.
    Bucket(Bucket, String),
}
