//! Waiting for a signal, the lifeline, or the time, whichever comes first.
//!
//! The signals stay blocked except inside the wait itself, so none can slip in between looking and waiting. A
//! command would inherit that and never see a SIGTERM, hence [`release`]. The handlers end with exec.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Standard input, used by number: `std::io::Stdin` would put a buffer and a lock around it.
pub(super) const LIFELINE: RawFd = libc::STDIN_FILENO;

/// SIGHUP is the one the kernel sends when the worker dies; see [`super::tree::adopt_orphans`].
const CAUGHT: [libc::c_int; 4] = [libc::SIGCHLD, libc::SIGHUP, libc::SIGTERM, libc::SIGINT];

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn note(signal: libc::c_int) {
    if signal == libc::SIGTERM || signal == libc::SIGINT {
        ASKED_TO_END.store(true, Ordering::Relaxed);
    }
}

pub(super) struct Signals {
    /// The mask to wait with: nothing blocked.
    open: libc::sigset_t,
}

impl Signals {
    pub fn catch() -> io::Result<Self> {
        let mut blocked = empty_set();
        for signal in CAUGHT {
            // SAFETY: `blocked` is an initialised set and the signal is a valid one.
            unsafe { libc::sigaddset(&raw mut blocked, signal) };
        }
        set_mask(&blocked)?;
        CAUGHT.into_iter().try_for_each(install)?;
        Ok(Self { open: empty_set() })
    }

    pub fn asked_to_end(&self) -> bool {
        ASKED_TO_END.load(Ordering::Relaxed)
    }

    /// Waits for a signal, for `fd` to become readable, or for the time; says whether `fd` is readable.
    pub fn wait(&self, fd: Option<RawFd>, at_most: Duration) -> bool {
        let mut readable = MaybeUninit::<libc::fd_set>::uninit();
        let timeout = timespec(at_most);
        // SAFETY: the set is initialised by FD_ZERO before any use, `fd` is below FD_SETSIZE (it is standard
        // input), and set, timeout and mask outlive the call.
        unsafe {
            libc::FD_ZERO(readable.as_mut_ptr());
            if let Some(fd) = fd {
                libc::FD_SET(fd, readable.as_mut_ptr());
            }
            let up_to = fd.map_or(0, |fd| fd + 1);
            let nothing = ptr::null_mut();
            libc::pselect(
                up_to,
                readable.as_mut_ptr(),
                nothing,
                nothing,
                &raw const timeout,
                &raw const self.open,
            ) > 0
        }
    }
}

/// Whether the worker closed its end. Call it only when the lifeline is readable; anything it says is
/// ignored.
pub(super) fn lifeline_is_cut() -> bool {
    let mut said = [0_u8; 64];
    // SAFETY: `said` is valid for writes of its whole length.
    match unsafe { libc::read(LIFELINE, said.as_mut_ptr().cast(), said.len()) } {
        0 => true,
        -1 => io::Error::last_os_error().kind() != io::ErrorKind::Interrupted,
        _ => false,
    }
}

/// Unblocks everything. Runs between fork and exec: system calls only.
pub(super) fn release() -> io::Result<()> {
    set_mask(&empty_set())
}

fn set_mask(mask: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: `mask` is initialised and only read; the old mask is not asked for.
    match unsafe { libc::sigprocmask(libc::SIG_SETMASK, mask, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn install(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`; the handler only stores into an atomic, which is allowed at
    // any point of the program, and the old action is not asked for.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = note as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = libc::SA_NOCLDSTOP;
        libc::sigaction(signal, &raw const action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` initialises the whole set and cannot fail on a valid pointer.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    // SAFETY: all zeroes is a valid `timespec`; some targets pad it, so it cannot be written as a literal.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    time.tv_sec = libc::time_t::try_from(duration.as_secs()).unwrap_or(libc::time_t::MAX);
    time.tv_nsec = duration.subsec_nanos().into();
    time
}
