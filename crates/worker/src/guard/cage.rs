//! The cage around a command that reads files of strangers: what such a file makes of ffmpeg stays without effect.
//!
//! The guard's child closes it around itself between fork and exec, in this order:
//!
//! 1. `network`: an empty network namespace. The source of a remote worker is served on a listener inside it,
//!    which is handed to the worker over the lifeline.
//! 2. `files`: Landlock. Reads its input, programs, libraries, fonts and GPU devices; writes its work folder.
//!    Signals nothing outside, connects to one port.
//! 3. `privileges`: no new privileges, and none of root's.
//! 4. `calls`: seccomp. Starts no process, signals and inspects none, opens no socket but a stream to the relay.
//!
//! Each part works where the kernel has it, whoever the user is. [`Examined`] says which do. There is no cage on systems other than Linux.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod close;
#[cfg(target_os = "linux")]
mod examine;
#[cfg(target_os = "linux")]
mod files;
mod item;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod privileges;

use std::path::PathBuf;

#[cfg(target_os = "linux")]
pub(super) use examine::examine;
pub use item::{Examined, Item};

/// What a caged command may reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Cage {
    /// The command does not start where a part of the cage is missing.
    pub is_required: bool,
    /// Files, and folders with all they hold.
    pub reads: Vec<PathBuf>,
    /// Folders with all they hold.
    pub writes: Vec<PathBuf>,
    /// Of 127.0.0.1, where the worker serves the source. Without it there is no network at all.
    pub port: Option<u16>,
}

#[cfg(not(target_os = "linux"))]
pub(super) fn examine() -> std::io::Result<Examined> {
    let detail = "there is no cage on this system, only on Linux".into();
    Ok(Examined { items: vec![Item { name: "sandbox".into(), is_in_force: false, detail }] })
}
