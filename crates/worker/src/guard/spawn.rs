//! Starting the command: limited, cleanly, and never by way of a shell.

use std::ffi::{CString, OsStr, OsString, c_char};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::ptr;

use super::args::Args;
use super::cage::Cage;
use super::message::{self, Message};
use super::{signals, tree};

/// Returns the process id. The caller reaps it.
pub(super) fn spawn(args: &Args) -> io::Result<i32> {
    let program = args.command.first().ok_or(io::ErrorKind::InvalidInput)?;
    let image = Image::of(program, &args.command)?;
    let (limits, cage) = (args.limits.clone(), args.cage.clone());
    // Standard input will be another by the time it is needed.
    let lifeline = io::stdin().as_fd().try_clone_to_owned()?;
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    // SAFETY: the closure runs between fork and exec. The guard has one thread, so no other can have been forked in the
    // middle of an allocation or with a lock in its hands.
    unsafe {
        command.pre_exec(move || {
            tree::die_with_the_guard()?;
            limits.apply()?;
            signals::release()?;
            if let Some(cage) = &cage {
                enter(cage, &image, &lifeline)?;
                // Moving into another user namespace may have undone it.
                tree::die_with_the_guard()?;
            }
            Err(image.exec())
        })
    };
    command.spawn().map(|child| child.id().cast_signed())
}

/// Closes the cage, and hands its listener to the worker.
#[cfg(target_os = "linux")]
fn enter(cage: &Cage, image: &Image, lifeline: &OwnedFd) -> io::Result<()> {
    let closed = cage.close(&image.paths)?;
    let missing = closed.missing();
    if cage.is_required && !missing.is_empty() {
        let reason = format!("the sandbox is required, and this is missing of it: {}", missing.join(", "));
        message::send(lifeline.as_fd(), &Message::NotStarted { errno: None, reason }, None)?;
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    match &closed.listener {
        Some(listener) => message::send(lifeline.as_fd(), &Message::Listening, Some(listener.as_fd())),
        None => Ok(()),
    }
}

/// There is none on other systems.
#[cfg(not(target_os = "linux"))]
fn enter(_: &Cage, _: &Image, _: &OwnedFd) -> io::Result<()> {
    Ok(())
}

/// All that exec needs, made before the fork because nothing can be allocated after it.
///
/// `std` would end with `execvp`, which hands a file of unknown format to `/bin/sh`.
struct Image {
    /// Where the program may be, in the order to try.
    paths: Vec<CString>,
    /// Into `_args`, with the null pointer that ends the list.
    argv: Vec<*const c_char>,
    _args: Vec<CString>,
}

// SAFETY: the pointers lead to the heap memory of `_args`, which lives as long and is never changed.
unsafe impl Send for Image {}
// SAFETY: as above; nothing in it can be changed through a shared reference.
unsafe impl Sync for Image {}

impl Image {
    fn of(program: &OsStr, args: &[OsString]) -> io::Result<Self> {
        let search = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
        let paths = candidates(program, &search).map(c_string).collect::<io::Result<_>>()?;
        let args = args.iter().map(c_string).collect::<io::Result<Vec<_>>>()?;
        let argv = args.iter().map(|arg| arg.as_ptr()).chain([ptr::null()]).collect();
        Ok(Self { paths, argv, _args: args })
    }

    /// Returns only if no candidate could be executed. That one was found and not permitted says more than
    /// that the next was not found.
    fn exec(&self) -> io::Error {
        let mut answer = libc::ENOENT;
        for path in &self.paths {
            // SAFETY: the path and the arguments are C strings that outlive the call; a null pointer ends the
            // list.
            unsafe { libc::execv(path.as_ptr(), self.argv.as_ptr()) };
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::ENOENT | libc::ENOTDIR) => {}
                Some(libc::EACCES) => answer = libc::EACCES,
                _ => return error,
            }
        }
        io::Error::from_raw_os_error(answer)
    }
}

/// An empty entry of the search path would mean the working directory, where a command's inputs lie: it is
/// skipped.
fn candidates(program: &OsStr, search: &OsStr) -> impl Iterator<Item = OsString> {
    let is_path = program.as_bytes().contains(&b'/');
    let dirs = std::env::split_paths(search).filter(move |dir| !is_path && !dir.as_os_str().is_empty());
    let found = dirs.map(move |dir| dir.join(program).into_os_string());
    is_path.then(|| program.to_owned()).into_iter().chain(found)
}

fn c_string(text: impl AsRef<OsStr>) -> io::Result<CString> {
    Ok(CString::new(text.as_ref().as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bare_name_is_searched_for() {
        let tried = |program: &str| -> Vec<_> { candidates(program.as_ref(), "/a::b".as_ref()).collect() };

        assert_eq!(tried("ffmpeg"), ["/a/ffmpeg", "b/ffmpeg"]);
        assert_eq!(tried("./ffmpeg"), ["./ffmpeg"]);
    }
}
