//! Why a worker could not begin, or not go on.

use std::io;
use std::path::PathBuf;

use rules::placement::BadCapability;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the desk does not accept this worker: {0}")]
    Rejected(String),
    /// It worked for a while; what it had is given back.
    #[error("{0}")]
    Dismissed(String),
    #[error("cannot say what this worker is able to do")]
    Capabilities(#[from] BadCapability),
    #[error("cannot use {} as the folder to work in", folder.display())]
    Folder { folder: PathBuf, source: io::Error },
}
