//! Closing the cage, part by part.

use std::ffi::{CStr, OsStr};
use std::io::{self, Read};
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Cage, calls, files, network, privileges};

/// What came of closing the cage.
#[derive(Debug, Default)]
pub(in crate::guard) struct Closed {
    /// The relay's port inside the network namespace.
    pub listener: Option<TcpListener>,
    pub has_namespace: bool,
    pub(super) landlock: files::Kept,
    has_privileges: bool,
    has_calls: bool,
    has_network: bool,
    is_script: bool,
}

impl Cage {
    /// Locks in the calling process, which must have no other thread and is about to run the first of `programs`
    /// that exists. An error means that the process is in no state to run anything.
    pub(in crate::guard) fn close(&self, programs: &[impl AsRef<CStr>]) -> io::Result<Closed> {
        let program = programs.iter().map(|path| path_of(path.as_ref())).find(|path| path.is_file());
        let is_script = program.is_some_and(is_script);
        let network = network::isolate(self.port)?;
        let has_namespace = network.is_some();
        // With a namespace of its own it reaches nothing else anyway.
        let landlock = files::restrict(self, program, is_script);
        let has_privileges = privileges::drop_all().is_ok();
        let rules = calls::Rules {
            may_connect: self.port.is_some(),
            may_start_programs: is_script,
            is_scoped: landlock.signals,
        };
        let has_calls = calls::restrict(&rules).is_ok();
        // What may connect to the relay can connect to anybody, unless something knows ports.
        let has_network = has_namespace || if self.port.is_some() { landlock.ports } else { has_calls };
        let listener = network.flatten();
        Ok(Closed { listener, has_namespace, landlock, has_privileges, has_calls, has_network, is_script })
    }
}

impl Closed {
    /// What is not in force, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        let parts = [
            (self.landlock.files, "files (Landlock)"),
            (self.has_calls, "system calls (seccomp)"),
            (self.has_privileges, "privileges"),
            (self.has_network, "network"),
            (!self.is_script, "starting programs (it is a script)"),
        ];
        parts.into_iter().filter(|(is_there, _)| !is_there).map(|(_, name)| name).collect()
    }
}

fn path_of(path: &CStr) -> &Path {
    Path::new(OsStr::from_bytes(path.to_bytes()))
}

/// A script runs by its interpreter, and starts other programs.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    let read = std::fs::File::open(program).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && &start == b"#!"
}

pub(super) fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
